"""Findings: rules that read an answer and say what was found, why it matters, what to do and what that should gain.

A rule is a pure function of an answer and the thresholds, yields whole findings, and fires only on measured numbers.
`strobe.core.kinds` says which rules are for which answer. Another package adds its own under the entry-point group
``strobe.rules``: they run on breakdowns and comparisons, or on the answers that they name with
`strobe.core.findings.rules.declare_answers`.
"""

from strobe.core.findings.thresholds import DEFAULTS, Thresholds

__all__ = ["DEFAULTS", "Thresholds"]
