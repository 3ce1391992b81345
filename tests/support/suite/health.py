"""Hypothesis' checks of a test's health, to be suppressed where making an example takes long."""

from __future__ import annotations

from hypothesis import HealthCheck

EVERY_CHECK = [
    HealthCheck[name] for name in HealthCheck.__members__ if name not in ("return_value", "not_a_test_method")
]
