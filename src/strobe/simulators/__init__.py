"""Simulators: LeRobot's environments with a policy in them, and scripted experts whose episodes can be recorded."""
