"""Faults of a LeRobotDataset: where they are, by how much, and what mends them."""
