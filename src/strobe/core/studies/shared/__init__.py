"""Helpers of several studies: sampling, counting, checking actions, profilers, and runs compared with each other."""
