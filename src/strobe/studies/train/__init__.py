"""A real lerobot-train, watched from inside."""
