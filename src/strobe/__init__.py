"""Strobe: a performance lab for robot policies."""

__version__ = "0.1.0"
