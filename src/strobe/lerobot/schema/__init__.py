"""LeRobot's configs read from their source: names, types and defaults of fields, and nothing of LeRobot is imported."""
