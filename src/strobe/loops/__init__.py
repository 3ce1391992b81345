"""What a recording of a control loop is: LeRobot's loops run as they are, with probes; their record, and its figures."""
