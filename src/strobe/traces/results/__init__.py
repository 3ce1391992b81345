"""Traces and profiles as data."""
