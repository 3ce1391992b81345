"""Differences and trends as data."""
