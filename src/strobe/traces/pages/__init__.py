"""What a report says of traces and profiles."""
