"""Advice: rules that read a result and say what was seen, why it matters, what to do and what that should buy.

A rule is a pure function of a result and the thresholds, and fires only on measured numbers. Another package adds its
own under the entry-point group ``strobe.rules``.
"""

from strobe.advice.rules import Rule, advise
from strobe.advice.thresholds import DEFAULTS, Thresholds

__all__ = ["DEFAULTS", "Rule", "Thresholds", "advise"]
