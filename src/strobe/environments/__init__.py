"""The same policy in another Python environment."""
