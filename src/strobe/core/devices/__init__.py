"""Accelerators as torch knows them: their names, their memory, the state of their random numbers."""
