"""Rules on rollouts: of the robot, of remote inference, of the loop."""
