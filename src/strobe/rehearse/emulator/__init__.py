"""Servos on a serial bus, cameras that replay, faults that strike."""
