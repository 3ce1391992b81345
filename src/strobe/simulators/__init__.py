"""LeRobot's environments with a policy in them; scripted experts; `strobe record`."""
