"""Stand-ins for a subject, a simulator, a robot or a reporter."""
