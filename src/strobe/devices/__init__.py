"""Accelerators as torch knows them: which one is meant, its memory, the state of its random numbers."""
