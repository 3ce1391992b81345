"""Recordings of control loops: LeRobot's loops run as they are, with probes; what they record, and figures of it."""
