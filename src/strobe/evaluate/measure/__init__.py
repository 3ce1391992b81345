"""Verdicts on episodes."""
