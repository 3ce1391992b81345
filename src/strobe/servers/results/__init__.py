"""Calls of a policy server as data."""
