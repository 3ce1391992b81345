"""Figures of a rollout's events."""
