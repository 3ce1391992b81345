"""A ladder as people read it: console, page, plot, Markdown; a reached target, a missed one, an interrupted climb."""

from __future__ import annotations

import numpy as np
import pytest
from support.approved import approve_cases
from support.example_ladder import climbed
from support.shown import printed, spoken

from strobe import kinds
from strobe.measure.episodes import judge as judge_episodes
from strobe.measure.in_time import in_time
from strobe.measure.verdicts import unpaired_verdict
from strobe.report import ladder, markdown
from strobe.report.document import Section
from strobe.results.answer import OptimizeResult
from strobe.results.episodes import Episode, EpisodePair, PairedEpisodes
from strobe.results.measurement import Limit, Lower


def late(chunks: int, late: int, within_ms: float = 125.0) -> OptimizeResult:
    """A ladder of which ``late`` of ``chunks`` came after the target."""
    result = climbed()
    assert result.ladder is not None
    times = np.array([within_ms - 1] * chunks)
    times[np.random.default_rng(0).choice(chunks, late, replace=False)] = within_ms + 1
    result.ladder.in_time = in_time(times, within_ms)
    result.ladder.met = result.ladder.in_time.outcome == "reached"
    return result


def rules(result: OptimizeResult) -> set[str]:
    return {finding.rule for finding in kinds.advise(result)}


def section(result: OptimizeResult, key: str) -> Section:
    (found,) = [section for section in kinds.document(result).sections if section.key == key]
    return found


def test_sentences_are_those_that_were_approved():
    interrupted = climbed(interleaved=False, ended="interrupted")
    interrupted.status = "interrupted"
    refused = climbed(chosen="rung 1")
    refused.ladder.rungs[2].guarded, refused.ladder.rungs[2].refused = False, "cosine 0.9 < 0.999 in the closing run"
    loses = climbed(chosen="rung 1")
    loses.episodes = [played("LLLLLLLLSSSS", broken="it does worse in pusht")]
    loses.ladder.rungs[2].guarded, loses.ladder.rungs[2].refused = False, "it does worse in pusht"
    approve_cases(
        "ladder",
        {
            "a target that is reached": spoken(climbed()),
            "a target that is missed": spoken(climbed(target_hz=10.0)),
            "3 of 300 chunks are late": spoken(late(300, 3)),
            "125 of 269 chunks are late": spoken(late(269, 125)),
            "none of 12 chunks is late": spoken(late(12, 0)),
            "interrupted": spoken(interrupted),
            "too few calls": spoken(hardly_called()),
            "nothing made it faster": spoken(no_faster()),
            "a rung that broke the guard": spoken(refused),
            "paired episodes": spoken(with_episodes("SSSSSSSSSLWF")),
            "episodes that are lost": spoken(loses),
            "episodes that end early without a success": spoken(with_episodes("FFFFFFF")),
            "episodes that are decided early": spoken(with_episodes("LLLLLLLL")),
            "a machine that is faster in integers": spoken(in_integers()),
        },
    )


def test_a_target_is_reached_by_its_chunks_and_not_by_their_median():
    assert not {"chunks-late", "target-not-judged", "target-missed"} & rules(late(300, 3))
    assert "chunks-late" in rules(late(269, 125))
    assert "target-not-judged" in rules(late(12, 0))


def test_a_missed_target_says_what_was_tried():
    assert section(climbed(target_hz=10.0), "needs").table.rows[0].cells[-1] == (
        "int8=true: guard: cosine 0.9971 < 0.999"
    )
    assert "needs" not in {section.key for section in kinds.document(climbed()).sections}


def test_parts_of_every_rung_add_up_to_its_milliseconds():
    result = climbed()
    (plot,) = ladder.plots(result)["ladder"]
    assert [trace["name"] for trace in plot.data][-1] == "other"
    for index, m in enumerate(result.measurements):
        assert sum(trace["x"][index] for trace in plot.data) == pytest.approx(m.samples.summary.median)
    assert {shape["x0"] for shape in plot.layout["shapes"]} == {125.0}
    assert plot.layout["xaxis"]["range"][1] > 200


def test_the_gains_are_the_comparisons_own_factors():
    result = climbed()
    table = next(section.table for section in kinds.document(result).sections if section.key == "ladder")
    titles = [column.title for column in table.columns]
    last = table.rows[2].cells
    assert last[titles.index("× so far")] == f"{1 / result.comparisons[1].verdict.ratio:.2f}"
    assert last[titles.index("× this rung")] == f"{1 / result.comparisons[2].verdict.ratio:.2f}"
    assert table.rows[0].cells[titles.index("× so far")] is None


def hardly_called() -> OptimizeResult:
    result = climbed()
    for one in result.comparisons:
        one.verdict = unpaired_verdict([200.0], [1e3 / 6], baseline_name=one.baseline, candidate_name=one.candidate)
    return result


def test_too_few_calls_give_a_factor_without_an_interval():
    assert section(hardly_called(), "ladder").table.rows[1].cells[-4:] == ["1.20", None, "1.20", None]


def no_faster() -> OptimizeResult:
    """A policy that nothing made faster."""
    result = climbed(target_hz=10.0)
    only = result.ladder.rungs[:1]
    result.measurements, result.comparisons = result.measurements[:1], []
    result.ladder = result.ladder.model_copy(update={"rungs": only, "chosen": "as it is"})
    return result


def test_a_policy_that_nothing_made_faster_has_no_factors():
    assert "× so far" not in printed(no_faster())


def played(ends: str, **more) -> PairedEpisodes:
    """Pairs in pusht: S both succeed, L only the policy as it is, W only the rung, F neither."""
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
    judged = judge_episodes(pairs, baseline="as it is", candidate="rung 2", environment="pusht", planned=12)
    return judged.model_copy(update=more)


def with_episodes(ends: str) -> OptimizeResult:
    result = climbed()
    result.episodes = [played(ends)]
    return result


def test_paired_episodes_stand_beside_the_actions():
    result = with_episodes("SSSSSSSSSLWF")
    assert "PAIR BY PAIR" not in printed(result)
    page = kinds.page(result)
    assert "pair by pair" in page
    assert "Reward of each pair" in page
    (plot,) = ladder.plots(result)["episodes-0"]
    assert [trace["name"] for trace in plot.data] == [
        "both succeed", "only as it is succeeds", "only rung 2 succeeds", "neither succeeds",
    ]  # fmt: skip
    assert sum(len(trace["x"]) for trace in plot.data) == 12
    assert "episodes-say-little" in rules(result)


def test_rewards_as_large_as_a_float_can_be_leave_a_page():
    result = climbed()
    result.episodes = [played("SLWFSS")]
    for index, pair in enumerate(result.episodes[0].pairs):
        pair.baseline.reward, pair.candidate.reward = 1.7e308 * (-1) ** index, 1.7e308 * (-1) ** (index // 2)
    assert "Reward of each pair" in kinds.page(result)
    assert "PAIRED EPISODES" in printed(result)


def test_a_rung_that_loses_episodes_is_warned_of_and_one_that_never_succeeds_is_told():
    assert "episodes-worse" in rules(with_episodes("LLLLLLLLSSSS"))
    assert "never-succeeds" in rules(with_episodes("FFFFFFF"))


def test_findings_are_about_what_is_missing_and_what_the_guard_refused():
    assert {"target-missed", "guard-refused"} <= rules(climbed(target_hz=10.0))
    assert "backbone-dominates" not in rules(climbed(target_hz=10.0))
    assert "target-missed" not in rules(climbed())


def in_integers() -> OptimizeResult:
    """A ladder on a machine that is faster in integers."""
    result = climbed(target_hz=10.0)
    lower = [Lower(dtype="int8", least_ms=31.0)]
    result.measurements[-1].limit = Limit(dtype="float32", parts=[], ceiling_share=0.5, least_ms=90.0, lower=lower)
    return result


def test_integers_are_offered_where_the_machine_is_faster_in_them_and_they_were_not_allowed():
    result = in_integers()

    def way() -> str:
        return next(finding.do for finding in kinds.advise(result) if finding.rule == "target-missed")

    assert "--allow=lossy" in way()
    result.config["allow"] = "lossy"
    assert "--allow=lossy" not in way()


def test_names_from_outside_stay_text():
    result = climbed()
    result.ladder.tries[2].reason = result.ladder.rungs[1].treatment = "<img src=x onerror=alert(1)>"
    page = kinds.page(result)
    assert "<img src=x" not in page
    assert "not tried: 12 s were left" in markdown.render(kinds.document(result))


def test_the_page_draws_the_ladder_in_a_browser(browse):
    dom = browse(kinds.page(climbed(target_hz=10.0)))
    assert 'data-settled="true"' in dom
    assert "data-errors" not in dom
    assert "Milliseconds per rung, by part" in dom
