"""`strobe rollout`: LeRobot's own loops on the robot, watched."""
