"""A profiler's events, and what follows from them."""
