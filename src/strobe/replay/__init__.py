"""`strobe replay`: a recorded rollout under other settings, in simulated time."""
