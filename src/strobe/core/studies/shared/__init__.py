"""Helpers of several studies: sampling, counting, checking actions, profilers, and runs held against each other."""
