"""LeRobot's environments: how they start, and which of their images are drawn."""
