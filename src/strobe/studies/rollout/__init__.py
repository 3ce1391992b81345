"""A rollout on a robot, and its waits: LeRobot's own loop, watched."""
