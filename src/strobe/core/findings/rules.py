"""Rules, and how they are run: Strobe's own, then those of other packages that are for the answer at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from strobe.core.findings.thresholds import DEFAULTS, Thresholds
from strobe.core.results.answer import Answer, BreakdownResult, CompareResult
from strobe.core.results.finding import Finding, warning

A = TypeVar("A", bound=Answer)
Rule = Callable[[A, Thresholds], Iterable[Finding]]
R = TypeVar("R", bound=Callable[..., Iterable[Finding]])

GROUP = "strobe.rules"
BY_DEFAULT: tuple[type[Answer], ...] = (BreakdownResult, CompareResult)
_ANSWERS = "strobe_answers"  # the attribute of a rule that says which answers it is for
_LEVELS = ("warning", "info", "good")


def declare_answers(*answers: type[Answer]) -> Callable[[R], R]:
    """Say which answers a rule of another package is for. Those classes count, and what derives from them.

    A rule without it runs on breakdowns and comparisons::

        @rule_for(TrainResult)
        def few_epochs(result: TrainResult, thresholds: Thresholds) -> Iterator[Finding]: ...
    """

    def mark(rule: R) -> R:
        setattr(rule, _ANSWERS, answers)
        return rule

    return mark


def run(rules: Sequence[Rule[A]], answer: A, thresholds: Thresholds = DEFAULTS) -> list[Finding]:
    """The findings of ``rules`` and of other packages' rules: warnings first, then by the share that they could save.

    A rule that fails costs the user its finding, which says so, and never the measured result.
    """
    findings: list[Finding] = []
    for rule in rules:
        findings += _findings(f"{rule.__module__}.{rule.__qualname__}", rule, answer, thresholds)
    for entry in entry_points(group=GROUP):
        findings += _run_package_rule(entry, answer, thresholds)
    return sorted(findings, key=_importance)


def _run_package_rule(entry: EntryPoint, answer: Answer, thresholds: Thresholds) -> list[Finding]:
    try:
        rule = entry.load()
        wanted = issubclass(type(answer), getattr(rule, _ANSWERS, BY_DEFAULT))
    except Exception as error:  # nobody knows what it is for, so it is missed where rules run by default
        return [_rule_failure(entry.value, error)] if issubclass(type(answer), BY_DEFAULT) else []
    return _findings(entry.value, rule, answer, thresholds) if wanted else []


def _findings(name: str, rule: Rule[A], answer: A, thresholds: Thresholds) -> list[Finding]:
    try:
        return list(rule(answer, thresholds))
    except Exception as error:
        return [_rule_failure(name, error)]


def _importance(finding: Finding) -> tuple[int, float]:
    gain = finding.evidence.get("gain_share")
    return _LEVELS.index(finding.level), -gain if isinstance(gain, int | float) else 0.0


def _rule_failure(rule: str, error: Exception) -> Finding:
    return warning(
        rule="rule-failed",
        title=f"The rule '{rule}' failed",
        found=f"{type(error).__name__}: {error}",
        why="Strobe did not look for the fault that this rule finds. The measurements are not affected.",
        do="Report the rule's error to the package that it comes from.",
    )
