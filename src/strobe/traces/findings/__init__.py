"""Rules on traces and profiles."""
