"""What a report says of episodes."""
