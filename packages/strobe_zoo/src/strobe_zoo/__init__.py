"""Strobe's records of policies of LeRobot's that few use: a file for each type, found by ``strobe.families``."""
