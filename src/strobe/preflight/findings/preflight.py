"""Rules on the policy's actions on recorded frames: its R², and changes of the wiring that would raise it."""

from __future__ import annotations

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.preflight.findings import first_actions
from strobe.preflight.results.open_loop import HypothesisKind, NaiveName, PairedError
from strobe.preflight.results.preflight import PreflightResult

NAIVEST: NaiveName = "the mean action"
WELL = 0.5  # least R² of a sound policy
WORSE = 2.0  # times the error on training episodes: the policy overfits
TITLES: dict[HypothesisKind, str] = {
    "cameras": "Two cameras are swapped",
    "channels": "Red and blue of the images are swapped",
    "image-range": "The images have another range than the policy takes",
    "state-order": "The state comes in another order than the policy takes",
    "action-order": "The actions are in another order than the data's",
    "order": "State and action are in another order than the policy's",
    "units": "The data has another unit than the policy takes",
    "statistics": "The policy was trained with another normalisation",
    "sign": "An action dimension has the opposite sign",
    "relative": "The policy and the data differ in relative and absolute actions",
    "shift": "The actions are shifted in time",
    "rate": "The policy was trained at another rate",
    "prompt": "The policy was trained with another prompt",
}


@finding("wired-otherwise-{kind}", "warning")
def better_hypotheses(result: PreflightResult, _: Thresholds) -> Found:
    """Hypotheses that predict the recorded actions better than the present wiring.

    Title: {title}
    Found: If {hypothesis}, the policy predicts the recorded actions with R² = {other}; now R² = {now}. With that change
        its error is {ratio:.2f} times as large{within}, over {paired.episodes} episodes.
    Why: On the robot the policy would act as wrongly as here.
    Do: {fix}
    """
    for each in result.hypotheses:
        if each.outcome == "claimed" and (paired := each.paired) is not None:
            title, fix, ends = TITLES[each.kind], each.fix, paired.interval
            within = f" [{ends.low:.2f}, {ends.high:.2f}]" if ends is not None else ""
            other, now = _share(each.explained), _share(each.wired)
            evidence = {"kind": each.kind, "hypothesis": each.name, "explained": each.explained, "wired": each.wired}
            yield {**evidence, "ratio": paired.ratio}, locals()


@finding("open-loop-explains-nothing", "warning")
def explains_little(result: PreflightResult, _: Thresholds) -> Found:
    """The policy predicts these actions no better than {naive}.

    Found: Its error is {part.rms:.2g} σ, that of {naive} {naive_rms:.2g} σ (σ: the spread of each action dimension). No
        other wiring that Strobe tried predicts the actions better.
    Why: The policy was not trained on data like this, or for too short a time, or its wiring differs in a way that
        Strobe does not try. On the robot it would not do its task.
    Do: Name the data that the policy was trained on, with --dataset.root=FOLDER.
    """
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is None or _any_claimed(result):
        return
    for name in ("hold still", "the last action", "the mean action"):
        error = next((each for each in part.naive if each.name == name), None)
        if error is not None and error.paired is not None and _is_no_better(error.paired, than_mean=name == NAIVEST):
            naive, naive_rms = "holding still" if name == "hold still" else name, error.rms or 0
            yield {"explained": part.explained}, locals()
            return


def _is_no_better(paired: PairedError, *, than_mean: bool) -> bool:
    if paired.smaller is not None:
        return not paired.smaller
    return than_mean and (paired.interval is not None or paired.ratio >= 1)


@finding("open-loop-learnt-by-heart", "info")
def held_out_worse(result: PreflightResult, _: Thresholds) -> Found:
    """The policy overfits its training episodes.

    Found: Its error is {training.rms:.2g} σ on training episodes, and {other.rms:.2g} σ on {other.episodes} held-out
        episodes, where R² = {share} (σ: the spread of each action dimension).
    Why: On the robot every episode is new.
    Do: Train on more episodes, for fewer steps, or with image augmentation.
    """
    parts = {part.name: part for part in result.open_loop.parts} if result.open_loop is not None else {}
    training, other = parts.get("training"), parts.get("held out")
    if training is not None and other is not None and training.rms > 0 and other.rms > WORSE * training.rms:
        share = _share(other.explained)
        yield {"ratio": other.rms / training.rms}, locals()


@finding("open-loop-explains", "good")
def explains_well(result: PreflightResult, _: Thresholds) -> Found:
    """The policy predicts the recorded actions with R² = {share}.

    Found: Over {part.episodes} episodes its error is smaller than that of {others}.
    Why: With this wiring the policy acts on these frames as in its training.
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
    return "–" if share is None else f"{share:.2f}"


def _join_names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


RULES = (better_hypotheses, *first_actions.RULES, explains_little, held_out_worse, explains_well)
