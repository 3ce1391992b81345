"""LeRobot's rollout, teleoperate and remote loops, run as they are, with probes; what they record, and its reader."""
