"""LeRobot's loops, run as they are, with probes: training, rollout, teleoperation, robot client and policy server."""
