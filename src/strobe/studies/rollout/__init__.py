"""What a rollout on a robot waited for: LeRobot's own loop, watched."""
