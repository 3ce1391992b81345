"""The wiring as data."""
