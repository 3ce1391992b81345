"""An emulated robot: servos on a serial bus, in a process of its own, that LeRobot's drivers take for real ones."""
