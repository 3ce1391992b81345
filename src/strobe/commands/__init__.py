"""`strobe breakdown`, `compare` and `verify` of policies and backbones, in LeRobot's flags."""
