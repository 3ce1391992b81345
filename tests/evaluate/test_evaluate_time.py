"""Time to task in an evaluation: from the episodes to the verdict, the page and the findings."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fakes.made_up_episodes import made_up
from support.fakes.made_up_simulator import MadeUp, plan, run_evaluation

from strobe.core.cli.keep import render_text
from strobe.core.findings.thresholds import DEFAULTS
from strobe.core.kinds import advise, document, figures, page
from strobe.core.results.data import Interval, Summary
from strobe.core.runs import store
from strobe.evaluate.episode_log import EpisodeLine
from strobe.evaluate.episodes.play import FIRST
from strobe.evaluate.results import ChunkTimes, EvaluateResult
from strobe.loops.results.motion import Motion

SAME: dict[str, float] = dict.fromkeys((FIRST, "5 steps", "2 steps"), 0.95)


class Timed(MadeUp):
    """Takes the seconds of each variant for its successes, in episodes of at most 10 s."""

    def __init__(self, seconds: dict[str, float], rates: dict[str, float] | None = None, limit_s: float | None = 10.0):
        super().__init__(rates or SAME)
        self.seconds, self.limit_s = seconds, limit_s

    def play(self, candidate, task, seed) -> EpisodeLine:
        line = made_up(candidate.name, task, seed, self.rates)
        self.played.append((candidate.name, task, seed))
        took = self.seconds[candidate.name] * (1 + seed % 3 / 10)
        path = 0.5 if candidate.name == FIRST else 0.6
        return line.model_copy(
            update={
                "seconds": (took if line.success else self.limit_s) if self.limit_s else None,
                "limit_s": self.limit_s,
                "motion": Motion(path=path, jerk=0.001, within=0.4, seam=0.8),
            }
        )


def evaluate_timed(folder: Path, seconds: dict[str, float], **more) -> EvaluateResult:
    return run_evaluation(folder, plan(60), Timed(seconds, **more))


def set_chunk_times(result: EvaluateResult, times: float) -> EvaluateResult:
    ms = Summary(n=10, median=10, mean=10, std=1, min=9, max=11, p95=11)
    ends = Interval(low=0.9 * times, high=1.1 * times, level=0.99)
    for variant in result.variants[1:]:
        variant.chunk = ChunkTimes(ms=ms, hz=100, parts={}, times=times, times_interval=ends)
    return result


def rules(result: EvaluateResult) -> dict[str, str]:
    return {finding.rule: finding.found for finding in advise(result, DEFAULTS)}


def test_each_variant_is_judged_in_pairs_and_said_with_its_success_first(tmp_path):
    result = evaluate_timed(tmp_path, {FIRST: 4.2, "5 steps": 3.0, "2 steps": 6.3})
    first, five, two = result.variants
    assert first.time is not None
    assert first.time.paired is None
    assert five.time.paired.kind == "sooner"
    assert five.time.paired.ratio == pytest.approx(1.4)
    assert two.time.paired.kind == "later"
    said = document(result).answers
    assert "5 steps: it is not worse by more than 10 points, and it finishes 1.4 × sooner [1.4, 1.4]." in said
    assert "2 steps: it is not worse by more than 10 points, and it takes 1.5 × as long [1.5, 1.5]." in said
    assert any(line.startswith(f"{FIRST}: the task takes 4.61 s (mean of") for line in said)
    text = " ".join(render_text(result).split())
    assert "a failure counted as its limit of 10 s" in text
    assert {"at_s", "not_done"} <= set(first.time.model_dump())
    store.save(result, tmp_path)
    assert store.load_answer(tmp_path) == result


@pytest.mark.parametrize(("more_ms", "resets"), [(0.0, None), (0.5, 59), (8.0, 0)])
def test_calls_that_grow_over_an_episode_or_a_run_are_told(tmp_path, more_ms, resets):
    """By half a millisecond a call until the next episode, or by eight from each episode to the next; or not."""

    class Grows(Timed):
        def play(self, candidate, task, seed) -> EpisodeLine:
            line = super().play(candidate, task, seed)
            per_call = 0.0 if resets == 0 else more_ms
            ms = [8.0 + per_call * at + (more_ms - per_call) * seed for at in range(25)]
            return line.model_copy(update={"call_ms": ms})

    result = run_evaluation(tmp_path, plan(60), Grows(dict.fromkeys(SAME, 3.0)))
    grown = [finding for finding in advise(result, DEFAULTS) if finding.rule == "calls-grow"]
    assert [finding.evidence["resets"] for finding in grown] == [] if resets is None else [resets] * 3
    assert all(("heat" in finding.why) == (resets == 0) for finding in grown)


def test_a_faster_time_never_hides_a_loss_of_success(tmp_path):
    rates = {FIRST: 0.95, "5 steps": 0.95, "2 steps": 0.4}
    result = evaluate_timed(tmp_path, {FIRST: 4.0, "5 steps": 4.0, "2 steps": 1.0}, rates=rates)
    (line,) = [line for line in document(result).answers if line.startswith("2 steps: ")]
    assert line.startswith("2 steps: it succeeds less often, and it ")
    (tmp_path / "few").mkdir()
    few = run_evaluation(tmp_path / "few", plan(20), Timed({FIRST: 4.2, "5 steps": 3.0, "2 steps": 3.0}))
    (line,) = [line for line in document(few).answers if line.startswith("5 steps: ")]
    assert line == "5 steps: success is undecided, and it finishes 1.4 × sooner [1.4, 1.4]."


def test_the_planted_paradox_is_called_and_a_waiting_button_too(tmp_path):
    result = set_chunk_times(evaluate_timed(tmp_path, {FIRST: 3.0, "5 steps": 4.2, "2 steps": 3.0}), 2.0)
    found = rules(result)
    assert "A chunk is 1.8 to 2.2 × as fast. The variant takes 1.4 × as long" in found["faster-chunk-slower-task"]
    assert "does not finish sooner" in found["faster-chunk-not-sooner"]
    assert any("× as long [1.4, 1.4], though a chunk is 2 × as fast." in line for line in document(result).answers)


@pytest.mark.parametrize(
    ("seconds", "times"),
    [({FIRST: 4.2, "5 steps": 3.0, "2 steps": 3.0}, 2.0), ({FIRST: 3.0, "5 steps": 4.2, "2 steps": 3.0}, 1.05)],
    ids=["sooner with a faster chunk", "a chunk that is not shown to be faster"],
)
def test_the_finding_on_a_faster_chunk_is_silent_where_there_is_none(seconds, times, tmp_path):
    found = rules(set_chunk_times(evaluate_timed(tmp_path, seconds), times))
    assert not {"faster-chunk-slower-task", "faster-chunk-not-sooner"} & set(found)


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("did not save their limit", {"limit_s": None}),
        ("no episode succeeded", {"rates": dict.fromkeys(SAME, 0.0)}),
        ("every success lasted until the limit", {"limit_s": 3.0}),
    ],
)
def test_what_cannot_be_judged_says_why_in_the_answer_and_on_the_page(reason, more, tmp_path):
    result = run_evaluation(tmp_path, plan(2), Timed(dict.fromkeys(SAME, 3.0), **more))
    assert all(variant.time is None for variant in result.variants)
    said = [line for line in document(result).answers if line.startswith("Time to task is not judged: ")]
    assert len(said) == 1
    assert reason in said[0]
    assert f"{FIRST}: not judged, because" in page(result)
    assert "time" not in figures(result)


def test_the_page_has_survival_curves_and_smoothness_in_seconds(tmp_path):
    result = evaluate_timed(tmp_path, {FIRST: 4.2, "5 steps": 3.0, "2 steps": 6.3})
    (plot,) = figures(result)["time"]
    assert [trace["name"] for trace in plot.data] == [FIRST, "5 steps", "2 steps"]
    assert plot.data[0]["y"][0] == 100
    assert result.variants[1].path_ratio == pytest.approx(0.6 / 0.5)
    assert "Jerk per tick³" in page(result)
    result.fps = 10.0
    table = next(section.table for section in document(result).sections if section.key == "motion")
    assert table.columns[-1].title == "Jerk (per s³)"
    assert table.rows[0].cells[-1] == "1"
    assert table.rows[0].cells[-2] == "2"  # a step to a new chunk over one within


def test_actions_that_were_not_kept_are_not_judged(tmp_path):
    result = evaluate_timed(tmp_path, {FIRST: 4.2, "5 steps": 3.0, "2 steps": 6.3})
    result.variants[1].motion = None
    assert "5 steps: not judged, because its actions were not saved or are not finite." in page(result)
