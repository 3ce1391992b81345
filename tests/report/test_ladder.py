"""A ladder as people read it: console, page, plot, Markdown; a reached target, a missed one, an interrupted climb."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console
from support.example_runs import MACHINE, SUBJECT, judge, measurement

from strobe import kinds
from strobe.measure.budget import needs
from strobe.measure.components import common_parts
from strobe.measure.episodes import judge as judge_episodes
from strobe.measure.in_time import in_time
from strobe.measure.verdicts import unpaired_verdict
from strobe.report import console, ladder, markdown
from strobe.results.agreement import Agreement
from strobe.results.answer import OptimizeResult
from strobe.results.budget import Latency
from strobe.results.comparison import Comparison
from strobe.results.episodes import Episode, EpisodePair, PairedEpisodes
from strobe.results.ladder import Ladder, Rung, Try
from strobe.results.limit import Limit, Lower
from strobe.results.measurement import Measurement

PARTS = {"policy": (0.96, {"vision tower": 0.35, "prefix KV cache": 0.4, "denoise step": 0.2}), "preprocessing": 0.02}
VISION = "precision=bf16, precision.part=model.paligemma_with_expert.paligemma.model.vision_tower"


def rung(name: str, treatment: str, m: Measurement, **more) -> Rung:
    return Rung(name=name, treatment=treatment, parts=common_parts([m])[0], **more)


def climbed(target_hz: float = 8.0, **more) -> OptimizeResult:
    took = {"as it is": 200, "rung 1": 150, "rung 2": 120}
    measured = [measurement(name, PARTS, ms, seed=ms) for name, ms in took.items()]
    comparisons = [
        Comparison(
            baseline=a.name,
            candidate=b.name,
            verdict=judge(a.samples.values, b.samples.values, baseline_name=a.name, candidate_name=b.name),
            difference_ms=b.samples.summary.median - a.samples.summary.median,
            agreement=Agreement(cosine=0.99987, largest_error=0.012, mean_error=0.001, observations=30),
        )
        for a, b in ((measured[0], measured[1]), (measured[0], measured[2]), (measured[1], measured[2]))
    ]
    rungs = [
        rung("as it is", "", measured[0]),
        rung("rung 1", "cameras=batched", measured[1], part="vision tower", build_s=0.01),
        rung("rung 2", VISION, measured[2], part="vision tower", effect="rounding", build_s=3.24),
    ]
    tries = [
        Try(treatment="cameras=batched", rung=1, parts=["vision tower"], before_ms=200, outcome="kept"),
        Try(treatment=VISION, rung=2, parts=["vision tower"], before_ms=150, outcome="kept"),
        Try(treatment="int8=true", rung=3, before_ms=120, outcome="guard", reason="guard: cosine 0.9971 < 0.999",
            agreement=Agreement(cosine=0.9971, largest_error=0.3, mean_error=0.01, observations=16)),
        Try(treatment="compile=true", rung=3, before_ms=120, outcome="not tried", reason="12 s were left"),
    ]  # fmt: skip
    result = OptimizeResult(
        strobe_version="0.1.0", title="pi05: a ladder", subject=SUBJECT, machine=MACHINE,
        measurements=measured, comparisons=comparisons,
    )  # fmt: skip
    last = measured[2].samples.summary.median
    met = last <= 1e3 / target_hz
    steps = Latency(steps=1, total_ms=last, parts=rungs[2].parts)
    missing = [] if met else needs(steps, 1e3 / target_hz)
    for need in missing:
        need.treatments = ["int8=true: guard: cosine 0.9971 < 0.999"]
    result.ladder = Ladder(
        **{"target_hz": target_hz, "target_ms": 1e3 / target_hz, "guard": "cosine>=0.999", "met": met,
           "ended": "the target was reached" if met else "nothing was left to try", "chosen": "rung 2", "rungs": rungs,
           "tries": tries, "needs": missing} | more
    )  # fmt: skip
    return result


def said(result: OptimizeResult) -> str:
    screen = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.render(kinds.document(result), screen)
    return " ".join(screen.export_text().split())


def test_a_reached_target_says_how_and_what_each_rung_bought():
    answers = kinds.document(climbed()).answers
    assert answers[0].startswith("act reaches 8 Hz (125 ms) by its median. ")
    assert answers[1] == "The cosine of its actions to the untouched policy's is 0.999870."
    assert answers[2].startswith("2 rungs: cameras=batched (1.")
    assert "precision.part=…vision_tower (1." in answers[2]
    assert answers[-1] == "recipe.yaml in the run's folder puts all of them on."
    text = said(climbed())
    assert "for 8 Hz a chunk must be ready within 125 ms" in text
    assert "COMPONENT LATENCIES PER RUNG" in text
    assert "guard: cosine 0.9971 < 0.999" in text
    assert "WHAT IS MISSING" not in text
    assert "PARTS SIDE BY SIDE" not in text, "the page has it"


def seen(chunks: int, late: int, within_ms: float = 125.0):
    """A ladder's answer, and its findings, where ``late`` of ``chunks`` came after the target."""
    result = climbed()
    assert result.ladder is not None
    times = np.array([within_ms - 1] * chunks)
    times[np.random.default_rng(0).choice(chunks, late, replace=False)] = within_ms + 1
    result.ladder.in_time = in_time(times, within_ms)
    result.ladder.met = result.ladder.in_time.outcome == "reached"
    return kinds.document(result).answers[0], {finding.rule: finding for finding in kinds.advise(result)}


def test_a_target_is_reached_by_its_chunks_and_not_by_their_median():
    said, found = seen(300, 3)
    assert said.startswith("act reaches 8 Hz (125 ms): 99 % of 300 chunks are in time (at least 9")
    assert not {"chunks-late", "target-not-judged", "target-missed"} & set(found)
    said, found = seen(269, 125)
    assert said.startswith("act misses 8 Hz (125 ms): 53.5 % of 269 chunks are in time (at most ")
    assert "where 95 % must be" in said
    assert found["chunks-late"].title == "46 % of chunks come too late for 8 Hz"
    said, found = seen(12, 0)
    assert said.startswith("Too few chunks to say whether act reaches 8 Hz (125 ms): 12 of 12 chunks were in time")
    assert "--iterations=59" in said
    assert "--iterations=59" in found["target-not-judged"].do


def test_a_missed_target_says_what_must_fall_to_what_and_what_was_tried():
    page = kinds.document(climbed(target_hz=10.0))
    assert page.answers[0].startswith("act misses 10 Hz (100 ms) by ")
    assert page.answers[3].startswith("What is missing: prefix KV cache would have to fall from ")
    (missing,) = [section for section in page.sections if section.key == "needs"]
    assert missing.table.rows[0].cells[-1] == "int8=true: guard: cosine 0.9971 < 0.999"


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


def test_an_interrupted_climb_does_not_claim_one_run():
    result = climbed(interleaved=False, ended="interrupted")
    result.status = "interrupted"
    text = said(result)
    assert "Interrupted" in text
    assert "not measured in one run" in text
    assert "It stopped because it was interrupted." in text


def test_too_few_calls_give_a_factor_without_an_interval():
    result = climbed()
    for one in result.comparisons:
        one.verdict = unpaired_verdict([200.0], [1e3 / 6], baseline_name=one.baseline, candidate_name=one.candidate)
    page = kinds.document(result)
    assert page.answers[0].endswith("1.20 × (too few calls for an interval) as fast.")
    (rungs,) = [section for section in page.sections if section.key == "ladder"]
    assert rungs.table.rows[1].cells[-4:] == ["1.20", None, "1.20", None]


def test_a_policy_that_nothing_made_faster():
    result = climbed(target_hz=10.0)
    only = result.ladder.rungs[:1]
    result.measurements, result.comparisons = result.measurements[:1], []
    result.ladder = result.ladder.model_copy(update={"rungs": only, "chosen": "as it is"})
    answers = kinds.document(result).answers
    assert "and nothing that was tried made it faster" in answers[0]
    assert not any("recipe.yaml" in answer for answer in answers)
    assert "× so far" not in said(result)


def test_a_rung_that_broke_the_guard_is_told():
    result = climbed(chosen="rung 1")
    result.ladder.rungs[2].guarded, result.ladder.rungs[2].refused = False, "cosine 0.9 < 0.999 in the closing run"
    assert "Refused after the climb: rung 2 (cosine 0.9 < 0.999 in the closing run). The ladder ends with rung 1." in (
        kinds.document(result).answers
    )


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


def test_paired_episodes_stand_beside_the_actions(tmp_path):
    result = climbed()
    result.episodes = [played("SSSSSSSSSLWF")]
    text = said(result)
    assert "PAIRED EPISODES: RUNG 2 AGAINST AS IT IS" in text
    assert (
        "Of 12 pairs: in 9 both succeed, in 1 only as it is succeeds, in 1 only rung 2 succeeds, in 1 neither" in text
    )
    assert "difference" in text
    assert "+0 points" in text
    assert "up to 0.25 apart" in text
    assert "no difference shown in 12 paired episodes of pusht: success 83.3 % against 83.3 %" in text
    assert "PAIR BY PAIR" not in text
    page = kinds.page(result)
    assert "pair by pair" in page
    assert "Reward of each pair" in page
    (plot,) = ladder.plots(result)["episodes-0"]
    assert [trace["name"] for trace in plot.data] == [
        "both succeed", "only as it is succeeds", "only rung 2 succeeds", "neither succeeds",
    ]  # fmt: skip
    assert sum(len(trace["x"]) for trace in plot.data) == 12
    assert "episodes-say-little" in {finding.rule for finding in kinds.advise(result)}


def test_rewards_as_large_as_a_float_can_be_leave_a_page():
    result = climbed()
    result.episodes = [played("SLWFSS")]
    for index, pair in enumerate(result.episodes[0].pairs):
        pair.baseline.reward, pair.candidate.reward = 1.7e308 * (-1) ** index, 1.7e308 * (-1) ** (index // 2)
    assert "Reward of each pair" in kinds.page(result)
    assert "PAIRED EPISODES" in said(result)


def test_a_rung_that_loses_episodes_is_refused_and_warned_of():
    result = climbed(chosen="rung 1")
    result.episodes = [played("LLLLLLLLSSSS", broken="it does worse in pusht")]
    result.ladder.rungs[2].guarded, result.ladder.rungs[2].refused = False, "it does worse in pusht"
    assert "Refused: it does worse in pusht." in said(result)
    found = {finding.rule: finding for finding in kinds.advise(result)}
    assert found["episodes-worse"].level == "warning"
    assert "success 33.3 % against 100 %" in found["episodes-worse"].seen


def test_episodes_that_ended_early_or_never_succeed_say_so():
    result = climbed()
    result.episodes = [played("FFFFFFF")]
    assert "Interrupted: 7 of 12 pairs were played." in said(result)
    result.episodes = [played("LLLLLLLL")]
    assert "Decided early: 8 of 12 pairs were played." in said(result)
    result.episodes = [played("FFFFFFF")]
    assert "never-succeeds" in {finding.rule for finding in kinds.advise(result)}


def test_findings_say_what_is_missing_and_what_the_guard_refused():
    result = climbed(target_hz=10.0)
    found = {finding.rule: finding for finding in kinds.advise(result)}
    assert found["target-missed"].title.endswith(" are missing to 10 Hz (17 % of a chunk)")
    assert "compile=true" in found["target-missed"].do
    assert "int8=true (cosine 0.99710, largest error 0.3)" in found["guard-refused"].seen
    assert "backbone-dominates" not in found
    assert "8-bit" not in found["target-missed"].do, "this machine's limits are not known"
    assert "target-missed" not in {finding.rule for finding in kinds.advise(climbed())}


def test_integers_are_offered_where_the_machine_is_faster_in_them_and_they_were_not_allowed():
    result = climbed(target_hz=10.0)
    lower = [Lower(dtype="int8", least_ms=31.0)]
    result.measurements[-1].limit = Limit(dtype="float32", parts=[], ceiling_share=0.5, least_ms=90.0, lower=lower)

    def ways() -> str:
        return next(finding.do for finding in kinds.advise(result) if finding.rule == "target-missed")

    assert "Products of 8-bit integers, which are lossy, would take 31.0 ms at the least: --allow=lossy" in ways()
    result.config["allow"] = "lossy"
    assert "8-bit" not in ways()


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
