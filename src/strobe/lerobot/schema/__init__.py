"""Read LeRobot's configs from their source: names, types and defaults of fields. Nothing of LeRobot is imported."""
