"""A recorded run that jumps from chunk to chunk for one reason is told that reason, and no run another one."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.seams import look, report
from strobe.seams.results import CauseName

sys.path.insert(0, str(ROOT / "benchmarks"))
planted = load_script("seam_causes", ROOT / "benchmarks")
PLANTS = {plant.name: plant for plant in planted.plants()}
STRONG = [name for name, plant in PLANTS.items() if len(plant.causes) == 1 and not plant.weak]


@pytest.mark.parametrize("name", STRONG)
def test_the_cause_is_named(name):
    plant = PLANTS[name]
    jumps, causes = planted.judge(plant, seed=3)
    assert jumps
    (finding,) = report.findings(causes)
    (cause,) = plant.causes
    assert finding.title == report.TITLES[cause]
    assert causes.causes[0].name == cause
    assert sum(each.share for each in causes.causes) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("cause", "remedy"), [("noise", "same noise"), ("arm", "aligned"), ("count", "counted")])
def test_a_cause_s_remedy_leaves_less_of_the_jumps(cause: CauseName, remedy):
    name = next(name for name in STRONG if PLANTS[name].causes == (cause,))
    _, causes = planted.judge(PLANTS[name], seed=3)
    jumps = {each.name: each.jump for each in causes.remedies}
    assert jumps[remedy] < 0.5 * jumps["none"]


def test_policies_that_remember_their_calls_are_not_judged():
    for name in ("a policy that remembers its calls", "one that forgets them in reset()"):
        jumps, causes = planted.judge(PLANTS[name], seed=3)
        assert jumps
        assert causes.not_judged is not None
        assert "remembers" in causes.not_judged
        assert not list(report.findings(causes))


def test_runs_without_jumps_are_not_split():
    assert planted.judge(PLANTS["no cause"], seed=3) == (False, None)
    assert not report.sections(None)


def test_a_policy_that_fails_is_a_line(monkeypatch):
    def fail(*_: object) -> np.ndarray:
        raise IndexError("no such token")

    monkeypatch.setattr(look.answers, "predict", fail)
    _, causes = planted.judge(PLANTS[STRONG[0]], seed=3)
    (section,) = report.sections(causes)
    assert "IndexError: no such token" in section.text[0]


@pytest.mark.parametrize(("guided", "can_rtc"), [(True, True), (False, True), (False, False)])
def test_advice_is_of_what_the_run_takes(guided, can_rtc):
    _, causes = planted.judge(PLANTS["arm 0.24 s behind"], seed=3)
    changed = causes.model_copy(update={"guided": guided, "can_rtc": can_rtc})
    (finding,) = report.findings(changed)
    assert ("--inference.type=rtc" in finding.do) == (can_rtc and not guided)
    assert ("execution_horizon" in finding.do) == guided
