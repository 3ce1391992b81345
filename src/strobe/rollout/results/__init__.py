"""Rollouts as data."""
