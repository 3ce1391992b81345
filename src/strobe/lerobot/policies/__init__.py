"""LeRobot's policies with their processors and inputs, as subjects."""
