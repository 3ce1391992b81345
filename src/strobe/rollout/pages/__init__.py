"""What a report says of a rollout."""
