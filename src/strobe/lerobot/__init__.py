"""LeRobot's versions, arguments and refusals, and its configs read from their source."""
