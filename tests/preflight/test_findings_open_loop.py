"""Findings of a preflight's look at recorded frames."""

from __future__ import annotations

from support.examples.findings_results import approve_findings

from strobe.core.kinds import advise, document, page
from strobe.core.results.data import Interval
from strobe.open_loop.results import (
    DimensionError,
    Hypothesis,
    NaiveError,
    OpenLoop,
    PairedError,
    PartErrors,
    PredictedChunk,
    Strip,
)
from strobe.preflight.results.wiring import Feature, FeatureKind, Place, PreflightResult, WiredFeature, Wiring


def ratio(value: float, reach: float = 0.1) -> PairedError:
    return PairedError(ratio=value, interval=Interval(low=value - reach, high=value + reach), episodes=8)


def part(name: str = "all", rms: float = 0.2, against: float = 0.2) -> PartErrors:
    naive = [NaiveError(name=each, rms=1.0, paired=ratio(against)) for each in ("the mean action", "the last action")]
    return PartErrors(name=name, episodes=8, frames=80, rms=rms, explained=1 - rms**2, naive=naive)  # type: ignore[arg-type]


def answer(*parts: PartErrors, hypotheses: tuple[Hypothesis, ...] = ()) -> PreflightResult:
    chunk = PredictedChunk(tick=1, values=[[2.0, 3.5]])
    strip = Strip(episode=3, ticks=[0, 1, 2], recorded=[[1.0, 2.0, 3.0]], chunks=[chunk])
    loop = OpenLoop(
        frames=80, episodes=8, chunk=2, fps=30, parts=list(parts), names=["pan"], along=[0.1, 0.2], strips=[strip],
        naive_along={"the mean action": [1.0, 1.0]},
        dimensions=[DimensionError(name="pan", spread=4.0, rms=0.2, offset=-0.1, explained=0.96)],
    )  # fmt: skip
    wiring = Wiring(policy="act", sources={"policy": "checkpoint", "dataset": "data"}, wires=[])
    return PreflightResult(
        strobe_version="0",
        title="act: do policy, data and robot match?",
        wiring=wiring,
        open_loop=loop,
        hypotheses=list(hypotheses),
    )


CLAIMED = Hypothesis(
    kind="cameras", name="the cameras top and wrist change places", outcome="claimed", fix="--rename_map=…",
    explained=0.9, wired=0.1, paired=ratio(0.3),
)  # fmt: skip


def test_what_is_found() -> None:
    surpassed, files = CLAIMED.model_copy(update={"outcome": "surpassed"}), answer(part())
    claimed = answer(part(), hypotheses=(CLAIMED, surpassed))
    files.open_loop = None
    approve_findings("open-loop", {".*": {
        "beats every yardstick": ("", answer(part())),
        "explains nothing": ("open-loop-explains-nothing", answer(part(rms=1.0, against=1.0))),
        "too few episodes to say": ("", answer(part(rms=0.95, against=0.98))),
        "a claimed hypothesis": ("wired-otherwise-cameras", claimed),
        "episodes known by heart": (
            "open-loop-learnt-by-heart", answer(part(), part("training", 0.1), part("held out", 0.5))),
        "episodes hardly known better": ("", answer(part(), part("training", 0.2), part("held out", 0.3))),
        "only files": ("", files),
    }})  # fmt: skip
    claimed.findings = advise(claimed)
    assert claimed.serious == 1
    said = document(answer(part(rms=0.95, against=0.98))).answers
    assert any("whether it beats the mean action" in line for line in said)


def test_the_report_says_what_was_seen_and_draws_it() -> None:
    unjudged = Hypothesis(kind="channels", name="the channels change places", why="--seconds=300")
    result = answer(part(), hypotheses=(CLAIMED, unjudged))
    said = document(result)
    assert any("predicts the actions with R² = 0.96" in sentence for sentence in said.answers)
    assert any("R² would be 0.90 if the cameras top and wrist change places" in each for each in said.answers)
    notes = [note for section in said.sections for note in section.text]
    assert any("Not judged: the channels change places: --seconds=300" in note for note in notes)
    shown = page(result)
    assert "Episode 3" in shown
    assert "Error along the chunk" in shown


def test_the_verdict_follows_the_strongest_evidence() -> None:
    poor = part(rms=0.8, against=0.8)
    poor.naive.append(NaiveError(name="hold still", rms=0.5, paired=ratio(1.6)))
    result = answer(poor)
    result.findings = advise(result)
    assert document(result).answers[0] == "Unclear: the policy predicts these actions no better than holding still."
    assert result.serious == 1, "the exit code is that of a warning"
    sound = answer(part())
    sound.findings = advise(sound)
    assert document(sound).answers[0].startswith("No mismatch found by ")


def test_the_number_of_joints_comes_before_subtler_faults() -> None:
    ends: dict[Place, int] = {"policy": 4, "robot": 6}
    kinds: dict[str, FeatureKind] = {"observation.state": "state", "action": "action"}
    wires = [
        WiredFeature(name=name, kind=kind, ends={
            place: Feature(name=name, kind=kind, shape=[size]) for place, size in ends.items()
        })
        for name, kind in kinds.items()
    ]  # fmt: skip
    result = answer(part(rms=1.0, against=1.0))
    result.wiring = Wiring(policy="act", sources={"policy": "checkpoint", "robot": "so101_follower"}, wires=wires)
    result.refused = "strobe rollout"
    result.findings = advise(result)
    said = document(result).answers
    assert said[0] == "Not started: the policy has 4 joints, the robot has 6."
    assert said[1].startswith("2 faults: ")
    assert "Next: use the robot that this policy was trained on (--robot.type)." in said
