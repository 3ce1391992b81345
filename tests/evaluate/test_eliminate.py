"""Several checkpoints in a made-up simulator: what the answer and the page say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from support.examples.runs import SUBJECT
from support.fakes.made_up_simulator import Lines, MadeUp, make_request

from strobe.core.cli.keep import render_text
from strobe.core.findings.thresholds import DEFAULTS
from strobe.core.kinds import advise
from strobe.evaluate.eliminate import checkpoint_rows, eliminate
from strobe.evaluate.episode_log import EpisodeLog
from strobe.evaluate.episodes.play import Plan, Session
from strobe.evaluate.flags import NamedCheckpoint
from strobe.evaluate.results import EvaluateResult

UNEQUAL = {"000100": 0.2, "000200": 0.5, "000300": 0.9}


class Slower(MadeUp):
    """The last one takes half as long as the others."""

    def play(self, candidate: Any, task: str, seed: int) -> Any:
        line = super().play(candidate, task, seed)
        return line.model_copy(update={"seconds": 1.0 if candidate.name == list(self.rates)[-1] else 2.0})


def run_elimination(
    folder: Path, rates: Mapping[str, float], episodes: int = 100, cut: int | None = None, resume: bool = False
) -> EvaluateResult:
    kinds = ["act", *["diffusion"] * (len(rates) - 1)]
    infos = [SUBJECT.model_copy(update={"kind": kind, "source": name}) for name, kind in zip(rates, kinds, strict=True)]
    device = torch.device("cpu")
    subjects: Any = {info.source: SimpleNamespace(info=info, device=device, notes=[], caveats=[]) for info in infos}
    named = [NamedCheckpoint(name, f"outputs/train/checkpoints/{name}/pretrained_model") for name in rates]
    plan = Plan(checkpoint_rows(names=list(rates)), ["pusht"], episodes, 0.1)
    log = EpisodeLog.resume(folder, make_request(plan)) if resume else EpisodeLog.begin(folder, make_request(plan))
    try:
        return eliminate(named, subjects, Session("PushT-v0", plan, Slower(rates, cut), log, Lines(), 10.0))
    finally:
        log.close()


def text(result: EvaluateResult) -> str:
    return " ".join(render_text(result).split())


def test_the_best_one_is_named_with_when_the_others_went(tmp_path: Path) -> None:
    result = run_elimination(tmp_path, UNEQUAL)
    assert result.elimination is not None
    first, second, third = result.elimination.checkpoints
    assert (first.by, second.by, third.by) == ("000300", "000300", None)
    assert first.starts < second.starts == third.starts < 100
    assert result.elimination.best == "000300"
    assert third.rates is None
    assert second.rates is not None
    assert second.rates.decision.interval.high < 0, "the interval says what the elimination says"
    assert [variant.together.success.episodes for variant in result.variants] == [
        first.starts, second.starts, second.starts,
    ]  # fmt: skip
    assert (result.subject.kind, result.subject.parameters) == ("act, diffusion", 3 * SUBJECT.parameters)
    shown = text(result)
    assert "`000300` is the best checkpoint." in shown
    for each in (first, second):
        assert f"{each.name} was eliminated after {each.starts} starts: it succeeds less often than 000300." in shown
    assert "All verdicts on success hold together at 95 %" in shown


def test_equal_ones_are_not_told_apart_and_time_is_shown(tmp_path: Path) -> None:
    result = run_elimination(tmp_path, {"a": 0.6, "b": 0.6})
    assert result.elimination is not None
    assert [each.by for each in result.elimination.checkpoints] == [None, None]
    assert result.elimination.best == "b", "of equal ones the one that takes less time"
    shown = text(result)
    assert "Inconclusive: 100 starts cannot distinguish `a` and `b`." in shown
    assert "is the best checkpoint" not in shown
    assert re.search(r"Time to task: a takes 2.* × as long", shown)


def test_a_cut_says_what_was_seen_and_goes_on_to_the_same_answer(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = run_elimination(tmp_path / "whole", UNEQUAL)
    cut = run_elimination(tmp_path / "cut", UNEQUAL, cut=10)
    assert cut.status == "interrupted"
    assert "Inconclusive: 3 starts cannot distinguish `000100`, `000200` and `000300`." in text(cut)
    again = run_elimination(tmp_path / "cut", UNEQUAL, resume=True)
    assert again.elimination == whole.elimination
    assert again.variants == whole.variants


def test_before_a_start_is_complete_nothing_is_judged(tmp_path: Path) -> None:
    result = run_elimination(tmp_path, UNEQUAL, cut=2)
    assert result.elimination is not None
    assert all(each.rates is None for each in result.elimination.checkpoints)
    assert "not judged: no start was played by all checkpoints" in text(result)


def test_without_a_success_nothing_tells_them_apart(tmp_path: Path) -> None:
    result = run_elimination(tmp_path, {"a": 0.0, "b": 0.0}, 20)
    assert "Nothing separates the checkpoints" in text(result)
    assert [finding.rule for finding in advise(result, DEFAULTS)] == ["evaluation-never-succeeds"]
