"""A ladder as people read it: console, page, plot, Markdown; a reached target, a missed one, an interrupted climb."""

from __future__ import annotations

import numpy as np
import pytest
from support.checks.approval import approve_cases
from support.checks.renderings import answer_text, console_text, whole
from support.examples.ladder import make_climb

from strobe.core import kinds
from strobe.core.measure.verdicts import unpaired_verdict
from strobe.core.results.data import Interval
from strobe.core.results.measurement import Limit, Lower, PartLimit
from strobe.evaluate.measure.episodes import judge as judge_episodes
from strobe.evaluate.pairs import EpisodePair, PairedEpisodes
from strobe.ladder import page as ladder
from strobe.ladder.in_time import judge_in_time
from strobe.ladder.results import OptimizeResult
from strobe.simulators.results import Episode


def late(chunks: int, late: int, within_ms: float = 125.0) -> OptimizeResult:
    """A ladder of which ``late`` of ``chunks`` came after the target."""
    result = make_climb()
    assert result.ladder is not None
    times = np.array([within_ms - 1] * chunks)
    times[np.random.default_rng(0).choice(chunks, late, replace=False)] = within_ms + 1
    result.ladder.in_time = judge_in_time(times, within_ms)
    result.ladder.met = result.ladder.in_time.outcome == "reached"
    return result


def test_it_is_shown_as_it_was_approved():
    interrupted = make_climb(interleaved=False, ended="interrupted")
    interrupted.status = "interrupted"
    refused = make_climb(chosen="step 1")
    refused.ladder.rungs[2].guarded, refused.ladder.rungs[2].refused = False, "cosine 0.9 < 0.999 in the closing run"
    loses = make_climb(chosen="step 1")
    loses.episodes = [make_paired_episodes("LLLLLLLLSSSS", broken="it does worse in pusht")]
    loses.ladder.rungs[2].guarded, loses.ladder.rungs[2].refused = False, "it does worse in pusht"
    approve_cases(
        "ladder",
        {
            "a target that is reached": whole(make_climb(), "ladder", "needs", "episodes"),
            "a target that is missed": whole(make_climb(target_hz=10.0), "ladder", "needs", "episodes"),
            "3 of 300 chunks are late": answer_text(late(300, 3)),
            "125 of 269 chunks are late": answer_text(late(269, 125)),
            "none of 12 chunks is late": answer_text(late(12, 0)),
            "interrupted": answer_text(interrupted),
            "too few calls": whole(hardly_called(), "ladder", "needs", "episodes"),
            "nothing made it faster": whole(make_unimproved_result(), "ladder", "needs", "episodes"),
            "a rung that broke the guard": answer_text(refused),
            "paired episodes": whole(make_result_with_episodes("SSSSSSSSSLWF"), "ladder", "needs", "episodes"),
            "episodes that are lost": answer_text(loses),
            "episodes that end early without a success": answer_text(make_result_with_episodes("FFFFFFF")),
            "episodes that are decided early": answer_text(make_result_with_episodes("LLLLLLLL")),
            "a machine that is faster in integers": answer_text(make_integer_ladder()),
        },
    )


def test_parts_of_every_rung_add_up_to_its_milliseconds():
    result = make_climb()
    (plot,) = ladder.plots(result)["ladder"]
    assert [trace["name"] for trace in plot.data][-1] == "other"
    for index, m in enumerate(result.measurements):
        assert sum(trace["x"][index] for trace in plot.data) == pytest.approx(m.samples.summary.median)


def hardly_called() -> OptimizeResult:
    result = make_climb()
    for one in result.comparisons:
        one.verdict = unpaired_verdict([200.0], [1e3 / 6], baseline_name=one.baseline, candidate_name=one.candidate)
    return result


def make_unimproved_result() -> OptimizeResult:
    """A policy that nothing made faster."""
    result = make_climb(target_hz=10.0)
    only = result.ladder.rungs[:1]
    result.measurements, result.comparisons = result.measurements[:1], []
    result.ladder = result.ladder.model_copy(update={"rungs": only, "chosen": "baseline"})
    return result


def make_paired_episodes(ends: str, **more) -> PairedEpisodes:
    """Pairs in pusht: S both succeed, L only the baseline, W only the rung, F neither."""
    sides = {"S": (True, True), "L": (True, False), "W": (False, True), "F": (False, False)}
    pairs = []
    for seed, end in enumerate(ends):
        two = [
            Episode(success=success, reward=100.0 + seed + 5 * success, best_reward=1.0, ticks=90)
            for success in sides[end]
        ]
        pairs.append(
            EpisodePair(task="pusht", seed=seed, baseline=two[0], candidate=two[1], same_ticks=3, largest_error=0.25)
        )
    judged = judge_episodes(pairs, baseline="baseline", candidate="step 2", environment="pusht", planned=12)
    return judged.model_copy(update=more)


def make_result_with_episodes(ends: str) -> OptimizeResult:
    result = make_climb()
    result.episodes = [make_paired_episodes(ends)]
    return result


def test_rewards_as_large_as_a_float_can_be_leave_a_page():
    result = make_climb()
    result.episodes = [make_paired_episodes("SLWFSS")]
    for index, pair in enumerate(result.episodes[0].pairs):
        pair.baseline.reward, pair.candidate.reward = 1.7e308 * (-1) ** index, 1.7e308 * (-1) ** (index // 2)
    assert "Paired episodes" in kinds.page(result)
    assert "PAIRED EPISODES" in console_text(result)


def make_integer_ladder() -> OptimizeResult:
    """A ladder on a machine that is faster in integers."""
    result = make_climb(target_hz=10.0)
    lower = [Lower(dtype="int8", least_ms=31.0)]
    result.measurements[-1].limit = Limit(dtype="float32", parts=[], ceiling_share=0.5, least_ms=90.0, lower=lower)
    return result


def test_integers_are_offered_where_the_machine_is_faster_in_them_and_they_were_not_allowed():
    result = make_integer_ladder()

    def way() -> str:
        return next(finding.do for finding in kinds.advise(result) if finding.rule == "target-missed")

    assert "--allow=lossy" in way()
    result.config["allow"] = "lossy"
    assert "--allow=lossy" not in way()


def test_a_median_whose_interval_straddles_the_target_has_no_digits_of_a_miss():
    result = make_climb(target_hz=10.0)
    result.measurements[-1].samples.summary.interval = Interval(low=88.0, high=149.0)
    head = " ".join(kinds.document(result).answers[:2])
    assert "Whether act reaches 10 Hz is inconclusive." in head
    assert "the median is inconclusive, 95 % CI 88 to 149 ms" in head


def test_a_limit_far_below_the_time_of_a_tiny_model_is_not_called_headroom():
    result = make_climb()
    last = result.measurements[-1]
    for times, shown in ((19, True), (21, False)):
        least_ms = last.samples.summary.median / times
        part = PartLimit(part="head", ms=100.0, compute_ms=least_ms, memory_ms=0.0, least_ms=least_ms, bound="compute")
        last.limit = Limit(dtype="float32", parts=[part], ceiling_share=0.5, least_ms=least_ms)
        assert any(line.startswith("act takes 121 ms") for line in kinds.document(result).answers) == shown


def test_that_nothing_was_faster_is_said_only_if_all_candidates_were_judged():
    result = make_unimproved_result()
    result.config["time_limit"] = 20
    assert "3 of 4 treatments could be judged" in kinds.document(result).answers[1]
    for tried in result.ladder.tries:
        tried.outcome = "inconclusive"
    assert kinds.document(result).answers[1].endswith("0 of 4 treatments could be judged; none of them made it faster.")
    assert kinds.document(result).answers[2].endswith("--time_limit=600")
    for tried in result.ladder.tries:
        tried.outcome = "slower"
    assert kinds.document(result).answers[1].endswith("No treatment made it faster.")
