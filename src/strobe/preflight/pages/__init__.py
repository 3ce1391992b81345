"""What a report says of the wiring."""
