"""Earlier ladders of a machine and a policy: they order what is tried, and nothing is kept for their sake."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.fakes.sleeper import Clock, Lines, Planted, Sleeper, entry

from strobe.core.measure import machine
from strobe.core.measure.guard import Guards
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Interval
from strobe.core.runs.cache import cache_folder
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments import catalogue
from strobe.ladder import earlier as earlier_ladders
from strobe.ladder import settings
from strobe.ladder.candidates import Choice
from strobe.ladder.earlier import MOST_LADDERS, Earlier
from strobe.ladder.results import Try
from strobe.ladder.run import optimize
from strobe.ladder.settings import Aim

SKIP = Planted("skip", lambda _: {"vision": 1.0})
TIDY = Planted("tidy", lambda _: {"head": 1.0})
WRONG = Planted("wrong", lambda _: {"vision": 0.0}, lambda chunk, _, __: chunk + torch.tensor([0.5, 0.0]))


class Stages(Lines):
    """Has the stages as well."""

    def stage(self, what: str) -> None:
        self.lines.append(what)


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settings, "TRY_S", (0.2, 0.4))
    clock = Clock().wind(monkeypatch)

    def run_climb(*entries, hz: float = 1000.0, fresh: bool = False, reporter: Stages | None = None, **aim):
        monkeypatch.setattr(catalogue, "own_entries", lambda: entries)
        options = Options(SamplingBudget(seconds=10.0, precision=0.025, settle_s=0), batch_size=1, counted=False)
        wanted = Aim(target_hz=hz, **{"time_limit": 30.0, **aim})
        began = clock.now
        result, _ = optimize(Sleeper(clock), wanted, options, (), reporter, "ignored" if fresh else "used")
        return result, clock.now - began

    return run_climb


def tried_outcomes(result) -> list[tuple[str, str]]:
    return [(one.treatment, one.outcome) for one in result.ladder.tries]


def kept_file() -> Path:
    (file,) = (cache_folder() / "ladders").iterdir()
    return file


def test_what_was_kept_is_put_on_together_and_its_run_shows_each_rung(climb):
    planted = entry(Planted("idle"), "vision"), entry(SKIP, "vision"), entry(TIDY, "head")
    first, took = climb(*planted, hz=400.0)
    assert ("idle=true", "no difference shown") in tried_outcomes(first)
    lines = Stages()
    second, took_again = climb(*planted, hz=400.0, reporter=lines)
    assert [rung.treatments for rung in second.ladder.rungs] == [rung.treatments for rung in first.ladder.rungs]
    assert tried_outcomes(second)[:2] == [("skip=true", "kept"), ("tidy=true", "kept")]
    assert (second.ladder.met, second.ladder.interleaved) == (True, True)
    assert {(c.baseline, c.candidate): c.verdict.kind for c in second.comparisons} == {
        ("baseline", "step 1"): "faster",
        ("baseline", "step 2"): "faster",
        ("step 1", "step 2"): "faster",
    }
    assert took_again < 0.8 * took
    assert "candidates in the order of 1 earlier ladder of sleeper on this machine; --fresh ignores it" in lines.lines
    (line,) = [
        line
        for line in lines.lines
        if line.startswith("accepted by the last search, now together: skip=true; tidy=true: ")
    ]
    assert line.endswith("→ accepted")
    assert not [line for line in lines.lines if line.startswith("the closing run")], "one run is enough"


def test_the_search_goes_on_from_there_and_closes_anew(climb):
    climb(entry(SKIP, "vision"))
    lines = Stages()
    result, _ = climb(entry(SKIP, "vision"), entry(TIDY, "head"), reporter=lines)
    assert tried_outcomes(result) == [("skip=true", "kept"), ("tidy=true", "kept")]
    assert "the closing run: baseline, step 1, step 2" in lines.lines


def test_what_was_refused_is_left_out_unless_all_is_asked_for(climb):
    planted = entry(WRONG, "vision"), entry(Planted("slow", lambda _: {"vision": 14.0}), "vision"), entry(TIDY, "head")
    first, _ = climb(*planted)
    assert [name for name, _ in tried_outcomes(first)] == ["wrong=true", "slow=true", "tidy=true"]
    idle = entry(Planted("idle"), "vision")
    second, _ = climb(*planted, idle)
    assert [name for name, _ in tried_outcomes(second)] == ["tidy=true", "idle=true"]
    assert second.ladder.ended.startswith(
        "no treatment remained to try; skipped: 2 rejected by an earlier search on this machine"
    )
    third, _ = climb(*planted, idle, everything=True)
    assert [name for name, _ in tried_outcomes(third)] == ["tidy=true", "wrong=true", "slow=true", "idle=true"]
    assert third.ladder.ended == "no treatment remained to try"


def test_what_was_tried_in_other_circumstances_leaves_nothing_out(climb, monkeypatch):
    slow = Planted("slow", lambda _: {"vision": 14.0})
    rough = entry(replace(WRONG, effect="rounding"), "vision", effect="rounding")
    planted = rough, entry(slow, "vision"), entry(TIDY, "head")
    climb(*planted)
    lines = Stages()
    loose, _ = climb(*planted, guards=Guards.parse("cosine>=0.9"), reporter=lines)
    assert dict(tried_outcomes(loose)) == {"tidy=true": "kept", "wrong=true": "kept", "slow=true": "slower"}
    assert [line for line in lines.lines if line.startswith("candidates in the order of 1 earlier ladder")]
    again, _ = climb(*planted)
    assert "slow=true" not in dict(tried_outcomes(again)), "an older ladder was made as this one is"
    monkeypatch.setattr(earlier_ladders, "fingerprint", lambda _: "other weights")
    other, _ = climb(*planted)
    assert {"wrong=true", "slow=true"} <= set(dict(tried_outcomes(other))), "another checkpoint"


@pytest.mark.parametrize("name", ["checkpoint", "dtype", "guard", "inputs", "settings", "pace"])
def test_each_circumstance_counts(climb, name):
    under = {"checkpoint": "a", "dtype": "float32", "guard": "exact", "inputs": "10 frames", "settings": "", "pace": ""}
    result, _ = climb(entry(Planted("slow", lambda _: {"vision": 14.0}), "vision"))
    assert Earlier(result.subject, result.machine, under).save(result) is None
    assert Earlier(result.subject, result.machine, under).standing("slow=true", set()) == "left out"
    other = Earlier(result.subject, result.machine, under | {name: "another"})
    assert other.standing("slow=true", set()) == "undecided"


def test_what_broke_the_guard_beside_another_is_tried_without_it(climb):
    def clash(chunk, _, on):
        return -chunk if {"first", "second"} <= on else chunk

    planted = (
        entry(Planted("first", lambda _: {"vision": 1.0}, clash), "vision"),
        entry(Planted("second", lambda _: {"head": 1.0}), "head"),
    )
    assert tried_outcomes(climb(*planted)[0]) == [("first=true", "kept"), ("second=true", "guard")]
    assert tried_outcomes(climb(*planted, choice=Choice(skip=("first",)))[0]) == [("second=true", "kept")]


SETTLED = {
    "shown to be slower": ("slower", (1.02, 1.10), 0.0, "left out"),
    "seemed slower": ("slower", None, None, "undecided"),
    "a gain of 3 % excluded": ("no difference shown", (0.96, 1.03), 0.029, "left out"),
    "a gain of 8 % not excluded": ("no difference shown", (0.91, 1.03), 0.08, "undecided"),
    "all of its interval is below": ("no difference shown", (0.98, 1.01), None, "left out"),
    "a glance that claims nothing": ("inconclusive", None, None, "undecided"),
    "does not fit in memory now": ("does not apply", None, None, "undecided"),
}


@pytest.mark.parametrize("case", SETTLED)
def test_only_what_was_shown_to_gain_too_little_is_left_out(climb, case):
    outcome, ends, most_gain, standing = SETTLED[case]
    result, _ = climb(entry(SKIP, "vision"))
    verdict = None
    if ends is not None:
        interval = Interval(low=ends[0], high=ends[1], level=0.99)
        kind = "slower" if outcome == "slower" else "no difference shown"
        verdict = Verdict(kind=kind, ratio=sum(ends) / 2, interval=interval, pairs=20, sentence="")
    one = Try(treatment="x=1", rung=1, before_ms=12, outcome=outcome, verdict=verdict, most_gain=most_gain)
    result.ladder.tries.append(one)
    assert Earlier(result.subject, result.machine, {}).save(result) is None
    assert Earlier(result.subject, result.machine, {}).standing("x=1", set()) == standing


def test_what_is_undecided_comes_last(climb):
    random = np.random.default_rng(0)
    loud = entry(Planted("loud", lambda _: {"vision": float(random.uniform(2, 14))}), "vision")
    climb(loud)
    new = entry(Planted("new", lambda _: {"head": 3.0}), "head")
    result, _ = climb(loud, new)
    assert [name for name, _ in tried_outcomes(result)][:2] == ["new=true", "loud=true"], "though vision costs more"


def test_what_another_version_did_not_keep_is_tried_again(climb, monkeypatch):
    planted = entry(WRONG, "vision"), entry(TIDY, "head")
    climb(*planted)
    described = machine.describe
    other = {"versions": {"torch": "another"}}
    monkeypatch.setattr(machine, "describe", lambda device: described(device).model_copy(update=other))
    again, _ = climb(*planted)
    assert tried_outcomes(again) == [("tidy=true", "kept"), ("wrong=true", "guard")]


def test_what_was_too_noisy_is_tried_again(climb):
    random = np.random.default_rng(0)
    loud = entry(Planted("loud", lambda _: {"vision": float(random.uniform(2, 14))}), "vision")
    first, _ = climb(loud)
    assert tried_outcomes(first) == [("loud=true", "inconclusive")]
    second, _ = climb(loud)
    assert [name for name, _ in tried_outcomes(second)] == ["loud=true"]


def test_what_is_wrong_now_is_refused_whatever_it_once_was(climb):
    climb(entry(SKIP, "vision"), entry(TIDY, "head"))
    wrong = Planted("skip", lambda _: {"vision": 0.0}, WRONG.change)
    result, _ = climb(entry(wrong, "vision"), entry(TIDY, "head"))
    assert tried_outcomes(result) == [("skip=true, tidy=true", "guard"), ("skip=true", "guard"), ("tidy=true", "kept")]
    again, _ = climb(entry(wrong, "vision"), entry(TIDY, "head"))
    assert tried_outcomes(again)[0] == ("tidy=true", "kept")


def test_no_faster_now_means_not_kept(climb):
    climb(entry(SKIP, "vision"))
    result, _ = climb(entry(Planted("skip"), "vision"))
    assert tried_outcomes(result)[0] == ("skip=true", "no difference shown")
    assert [rung.name for rung in result.ladder.rungs] == ["baseline"]
    assert result.measurements[0].samples.summary.n >= settings.CLOSING_MIN_PAIRS, "the first glance was not enough"


def test_no_more_rungs_are_put_on_than_the_target_takes(climb):
    planted = entry(SKIP, "vision"), entry(TIDY, "head")
    climb(*planted)
    result, _ = climb(*planted, hz=150.0)
    assert tried_outcomes(result) == [("skip=true", "kept"), ("tidy=true", "not tried")]
    result, _ = climb(*planted, hz=50.0)
    assert result.ladder.ended == "the baseline reaches the target"
    assert result.measurements[0].samples.summary.n >= settings.CLOSING_MIN_PAIRS


def test_what_the_user_leaves_out_stays_out_and_fresh_knows_nothing(climb):
    planted = entry(SKIP, "vision"), entry(TIDY, "head")
    climb(*planted)
    result, _ = climb(*planted, choice=Choice(skip=("skip",)))
    assert tried_outcomes(result) == [("tidy=true", "kept")]
    lines = Stages()
    result, _ = climb(*planted, fresh=True, reporter=lines)
    assert not [line for line in lines.lines if "earlier" in line or "last time" in line]
    assert len(json.loads(kept_file().read_text())["ladders"]) == 3, "it is added to them all the same"


def test_where_chunks_take_long_its_rungs_are_tried_first(climb):
    planted = entry(WRONG, "vision"), entry(TIDY, "head")
    first, _ = climb(*planted, time_limit=0.85)
    assert tried_outcomes(first)[0] == ("wrong=true, tidy=true", "guard")
    second, _ = climb(*planted, time_limit=0.5)
    assert tried_outcomes(second)[0] == ("tidy=true", "kept")
    assert "guard" not in {outcome for _, outcome in tried_outcomes(second)}


@pytest.mark.parametrize("damage", ["{", "[]", "", '{"version": 1, "of": "", "ladders": []}', None])
def test_a_damaged_file_is_as_good_as_none(climb, damage, monkeypatch):
    climb(entry(SKIP, "vision"))
    if damage is None:
        monkeypatch.setattr(earlier_ladders, "LARGEST_BYTES", 10)
    else:
        kept_file().write_text(damage)
    lines = Stages()
    result, _ = climb(entry(SKIP, "vision"), reporter=lines)
    assert tried_outcomes(result) == [("skip=true", "kept")]
    assert not [line for line in lines.lines if "earlier" in line]
    assert len(json.loads(kept_file().read_text())["ladders"]) == 1


def test_the_file_stays_small_and_holds_no_run_that_was_cut_short(climb):
    result, _ = climb(entry(SKIP, "vision"))
    earlier = Earlier(result.subject, result.machine, {})
    for _ in range(2 * MOST_LADDERS):
        assert earlier.save(result) is None
    assert len(Earlier(result.subject, result.machine, {}).ladders) == MOST_LADDERS
    result.status = "interrupted"
    before = kept_file().read_bytes()
    assert earlier.save(result) is None
    assert kept_file().read_bytes() == before


def test_other_machines_and_sizes_have_files_of_their_own(climb):
    result, _ = climb(entry(SKIP, "vision"))
    assert Earlier(result.subject, result.machine, {}).ladders
    larger = result.subject.model_copy(update={"parameters": 1000 * result.subject.parameters})
    assert not Earlier(larger, result.machine, {}).ladders
    assert not Earlier(result.subject.model_copy(update={"kind": "other"}), result.machine, {}).ladders
    assert not Earlier(result.subject, result.machine.model_copy(update={"cores": 1000}), {}).ladders


def test_a_cache_that_cannot_be_written_costs_a_line(climb, monkeypatch, tmp_path):
    monkeypatch.delenv("STROBE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    lines = Stages()
    result, _ = climb(entry(SKIP, "vision"), reporter=lines)
    assert result.status == "complete"
    assert lines.lines[-1].startswith(f"the next run cannot use this ladder: {tmp_path}/file/strobe/ladders: ")
