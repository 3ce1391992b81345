"""The list of rules, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points

from strobe.advice import (
    backbone,
    delays,
    episodes,
    ladder,
    levers,
    machine,
    parts,
    precision,
    profiles,
    rtc,
    training,
    trust,
)
from strobe.advice.thresholds import DEFAULTS, Thresholds
from strobe.advice.view import plausible
from strobe.results.answer import Result
from strobe.results.finding import Finding

Rule = Callable[[Result, Thresholds], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    *parts.RULES,
    *delays.RULES,
    *rtc.RULES,
    *backbone.RULES,
    *machine.RULES,
    *precision.RULES,
    *levers.RULES,
    *profiles.RULES,
    *trust.RULES,
)

# A training's steps are judged by rules of their own: the others take their parts for those of a breakdown.
OF_TRAINING: tuple[Rule, ...] = (*training.RULES, trust.unseen, trust.stand_ins)

# A ladder says itself where the time goes and what can be done about it.
OF_LADDER: tuple[Rule, ...] = (*ladder.RULES, *episodes.RULES, trust.too_noisy, trust.stand_ins)

_LEVELS = ("warning", "info", "good")


def advise(result: Result, thresholds: Thresholds = DEFAULTS) -> list[Finding]:
    """What the rules find in ``result``: warnings first, then by the share of the whole that they could save.

    A rule that fails costs the user its finding, which says so, and never the measured result.
    """
    seen = plausible(result)
    found: list[Finding] = []
    ours = {"train": OF_TRAINING, "optimize": OF_LADDER}.get(result.study, RULES)
    for name, load in _rules(ours).items():
        try:
            found += load()(seen, thresholds)
        except Exception as error:
            found.append(_failed(name, error))
    return sorted(found, key=_importance)


def _rules(ours: Sequence[Rule]) -> dict[str, Callable[[], Rule]]:
    rules: dict[str, Callable[[], Rule]] = {
        f"{rule.__module__}.{rule.__qualname__}": (lambda rule=rule: rule) for rule in ours
    }
    return rules | {entry.value: entry.load for entry in entry_points(group="strobe.rules")}


def _importance(finding: Finding) -> tuple[int, float]:
    gain = finding.evidence.get("gain_share")
    return _LEVELS.index(finding.level), -gain if isinstance(gain, int | float) else 0.0


def _failed(rule: str, error: Exception) -> Finding:
    return Finding(
        rule="rule-failed",
        level="warning",
        title=f"The rule '{rule}' failed",
        seen=f"{type(error).__name__}: {error}",
        why="What it looks for was not looked for; the measurements are not affected.",
        do="Report it to the package that the rule comes from.",
    )
