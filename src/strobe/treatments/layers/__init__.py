"""Treatments of a model's layers, whatever the model."""
