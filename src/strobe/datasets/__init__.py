"""A LeRobotDataset: what is wrong with it, and the loader that trains on it."""
