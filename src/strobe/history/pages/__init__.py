"""What a report says of differences and trends."""
