"""A file for each of LeRobot's kinds of policies."""
