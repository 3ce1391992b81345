"""Findings: rules that read an answer and say what was seen, why it matters, what to do and what that should buy.

A rule is a pure function of an answer and the thresholds, and fires only on measured numbers. `strobe.kinds` says which
rules are for which answer. Another package adds its own under the entry-point group ``strobe.rules``: they run on
breakdowns and comparisons, or on the answers that they name with `rule_for`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strobe.findings.thresholds import DEFAULTS, Thresholds

if TYPE_CHECKING:
    from strobe.findings.rules import Rule, rule_for

__all__ = ["DEFAULTS", "Rule", "Thresholds", "rule_for"]


# Loaded on first use: a command's flags have thresholds, and rules bring the classes of all answers.
def __getattr__(name: str) -> Any:
    if name in ("Rule", "rule_for"):
        from strobe.findings import rules

        return getattr(rules, name)
    raise AttributeError(f"module 'strobe.findings' has no attribute '{name}'")
