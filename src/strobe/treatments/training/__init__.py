"""Treatments of a training step."""
