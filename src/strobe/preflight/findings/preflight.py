"""Rules on a preflight's look at recorded frames: what the policy explains of them, and what would explain more."""

from __future__ import annotations

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.preflight.findings import first_actions
from strobe.preflight.results.hypothesis import HypothesisKind
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


@finding("wired-otherwise-{kind}", "warning")
def better_hypotheses(result: PreflightResult, _: Thresholds) -> Found:
    """Hypotheses that explain the data better than the wiring as it is.

    Title: {title}
    Seen: If {hypothesis}, the policy explains {other} of the recorded actions. As it is wired it explains {now}. With
        that change its error is {ratio:.2f} times as large{within}, over {paired.episodes} episodes.
    Why: On the robot it would do the same as here: something else than in its training.
    Do: {fix}
    """
    for each in result.hypotheses:
        if each.outcome == "claimed" and (paired := each.paired) is not None:
            title, fix, ends = TITLES[each.kind], each.fix, paired.interval
            within = f" [{ends.low:.2f}, {ends.high:.2f}]" if ends is not None else ""
            other, now = _share(each.explained), _share(each.wired)
            evidence = {"kind": each.kind, "hypothesis": each.name, "explained": each.explained, "wired": each.wired}
            yield {**evidence, "ratio": paired.ratio}, locals()


@finding("open-loop-explains-nothing", "info")
def explains_little(result: PreflightResult, _: Thresholds) -> Found:
    """The policy explains nothing of this data.

    Seen: Its actions are {part.rms:.2g} σ from the recorded actions. The mean action is {mean_rms:.2g} σ from them. No
        other wiring that was tried explains more.
    Why: It was not trained on data like this, or it was trained for too short a time, or its wiring differs in a way
        that Strobe does not try.
    Do: Name the data that it was trained on, with --dataset.root.
    """
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is not None and not _any_claimed(result):
        mean = next((each for each in part.naive if each.name == "the mean action"), None)
        if mean is not None and mean.paired is not None and mean.paired.smaller is not True:
            yield {"explained": part.explained}, {"part": part, "mean_rms": mean.rms or 0}


@finding("open-loop-learnt-by-heart", "info")
def held_out_worse(result: PreflightResult, _: Thresholds) -> Found:
    """The policy knows its training episodes by heart.

    Seen: Its actions are {training.rms:.2g} σ from the recorded ones in training episodes, and {other.rms:.2g} σ in
        {other.episodes} other episodes. Of the actions there it explains {share}.
    Why: On the robot every episode is a new one.
    Do: Train on more episodes, for fewer steps, or with image augmentation.
    """
    parts = {part.name: part for part in result.open_loop.parts} if result.open_loop is not None else {}
    training, other = parts.get("training"), parts.get("held out")
    if training is not None and other is not None and training.rms > 0 and other.rms > WORSE * training.rms:
        share = _share(other.explained)
        yield {"ratio": other.rms / training.rms}, locals()


@finding("open-loop-explains", "good")
def explains_well(result: PreflightResult, _: Thresholds) -> Found:
    """The policy explains {share} of the recorded actions.

    Seen: Over {part.episodes} episodes it is nearer to them than {others}.
    Why: As it is wired, it acts on these frames as in its training.
    """
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is None or part.explained < WELL or _any_claimed(result):
        return
    naive = {each.name: each.paired.smaller for each in part.naive if each.paired is not None}
    if naive and all(smaller is True for smaller in naive.values()):
        share, others = _share(part.explained), _join_names(list(naive))
        yield {"explained": part.explained}, locals()


def _any_claimed(result: PreflightResult) -> bool:
    return any(hypothesis.outcome == "claimed" for hypothesis in result.hypotheses)


def _share(share: float | None) -> str:
    if share is None:
        return "–"
    return "nothing" if share <= 0 else f"{share * 100:.0f} %"


def _join_names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


RULES = (better_hypotheses, *first_actions.RULES, explains_little, held_out_worse, explains_well)
