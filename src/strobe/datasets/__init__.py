"""A LeRobotDataset: its faults, and the loader that trains on it."""
