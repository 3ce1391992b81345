"""The search for the loader's settings."""
