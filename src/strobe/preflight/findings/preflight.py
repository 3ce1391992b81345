"""Rules on a preflight's look at recorded frames: what the policy explains of them, and what would explain more."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.preflight.findings import first_actions
from strobe.preflight.results.hypothesis import Hypothesis, HypothesisKind
from strobe.preflight.results.open_loop import NaiveError, PartErrors
from strobe.preflight.results.preflight import PreflightResult

WELL = 0.5  # share of the data that a sound policy explains
WORSE = 2.0  # times the error on training episodes: the policy has learnt these by heart
TITLES: dict[HypothesisKind, str] = {
    "cameras": "Two cameras change places",
    "channels": "The images' red and blue change places",
    "image-range": "The images have another range than the policy takes",
    "state-order": "The state comes in another order than the policy takes",
    "action-order": "The actions are in another order than the data's",
    "order": "State and action are in another order than the policy's",
    "units": "Another unit than the policy's",
    "statistics": "Another normalisation than the policy's",
    "sign": "An action dimension goes the other way",
    "relative": "Relative actions on one side, absolute ones on the other",
    "shift": "The actions are shifted in time",
    "rate": "Another rate than the policy's",
    "prompt": "Another prompt than the policy's",
}


def claimed(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    """Hypotheses that explain the data better than the wiring as it is."""
    for hypothesis in result.hypotheses:
        if hypothesis.outcome == "claimed" and hypothesis.paired is not None:
            yield _finding(hypothesis)


def _finding(hypothesis: Hypothesis) -> Finding:
    paired = hypothesis.paired
    assert paired is not None
    interval = paired.interval
    within = f" [{interval.low:.2f}, {interval.high:.2f}]" if interval is not None else ""
    return Finding(
        rule=f"wired-otherwise-{hypothesis.kind}",
        level="warning",
        title=TITLES[hypothesis.kind],
        seen=f"If {hypothesis.name}, the policy explains {_share(hypothesis.explained)} of the recorded actions. As "
             f"it is wired it explains {_share(hypothesis.wired)}. With that change its error is {paired.ratio:.2f} "
             f"times as large{within}, over {paired.episodes} episodes.",
        why="On the robot it would do the same as here: something else than in its training.",
        do=hypothesis.mend,
        evidence={
            "kind": hypothesis.kind,
            "hypothesis": hypothesis.name,
            "explained": hypothesis.explained,
            "wired": hypothesis.wired,
            "ratio": paired.ratio,
        },
    )  # fmt: skip


def explains_little(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    """A policy that is no nearer to the recorded actions than their mean, for which no hypothesis gives a reason."""
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is None or any(hypothesis.outcome == "claimed" for hypothesis in result.hypotheses):
        return
    mean = _naive(part, "the mean action")
    if mean is None or mean.paired is None or mean.paired.smaller is True:
        return
    yield Finding(
        rule="open-loop-explains-nothing",
        level="info",
        title="The policy explains nothing of this data",
        seen=f"Its actions are {part.rms:.2g} σ from the recorded actions. The mean action is {mean.rms or 0:.2g} σ "
             "from them. No other wiring that was tried explains more.",
        why="It was not trained on data like this, or it was trained for too short a time, or its wiring differs in "
            "a way that Strobe does not try.",
        do="Name the data that it was trained on, with --dataset.root.",
        evidence={"explained": part.explained},
    )  # fmt: skip


def held_out_worse(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    """A policy whose error on episodes that it was not trained on is many times that on the others."""
    parts = {part.name: part for part in result.open_loop.parts} if result.open_loop is not None else {}
    training, other = parts.get("training"), parts.get("held out")
    if training is not None and other is not None and training.rms > 0 and other.rms > WORSE * training.rms:
        yield Finding(
            rule="open-loop-learnt-by-heart",
            level="info",
            title="The policy knows its training episodes by heart",
            seen=f"Its actions are {training.rms:.2g} σ from the recorded ones in training episodes, and "
                 f"{other.rms:.2g} σ in {other.episodes} other episodes. Of the actions there it explains "
                 f"{_share(other.explained)}.",
            why="On the robot every episode is a new one.",
            do="Train on more episodes, for fewer steps, or with image augmentation.",
            evidence={"ratio": other.rms / training.rms},
        )  # fmt: skip


def explains_well(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    """A policy that is nearer to the recorded actions than every prediction without a policy."""
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is None or part.explained < WELL or any(each.outcome == "claimed" for each in result.hypotheses):
        return
    naive = [each for each in part.naive if each.paired is not None]
    if naive and all(each.paired is not None and each.paired.smaller is True for each in naive):
        yield Finding(
            rule="open-loop-explains",
            level="good",
            title=f"The policy explains {_share(part.explained)} of the recorded actions",
            seen=f"Over {part.episodes} episodes it is nearer to them than {_listed([each.name for each in naive])}.",
            why="As it is wired, it acts on these frames as in its training.",
            evidence={"explained": part.explained},
        )


def _naive(part: PartErrors, name: str) -> NaiveError | None:
    return next((each for each in part.naive if each.name == name), None)


def _share(share: float | None) -> str:
    if share is None:
        return "–"
    return "nothing" if share <= 0 else f"{share * 100:.0f} %"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


RULES = (claimed, *first_actions.RULES, explains_little, held_out_worse, explains_well)
