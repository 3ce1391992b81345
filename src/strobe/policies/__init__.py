"""Policies and backbones with their inputs, and the records of their families."""
