"""The older name of `strobe.findings`, for packages that bring rules of their own (entry points ``strobe.rules``)."""

from strobe.findings.rules import Rule, rule_for
from strobe.findings.thresholds import DEFAULTS, Thresholds

__all__ = ["DEFAULTS", "Rule", "Thresholds", "rule_for"]
