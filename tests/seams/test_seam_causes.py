"""A recorded run that jumps from chunk to chunk for one reason is told that reason, and no run another one."""

from __future__ import annotations

import sys

import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.seams import look, report

sys.path.insert(0, str(ROOT / "benchmarks"))
planted = load_script("seam_causes", ROOT / "benchmarks")
PLANTS = {plant.name: plant for plant in planted.plants()}
STRONG = [name for name, plant in PLANTS.items() if len(plant.causes) == 1 and not plant.weak]
REMEDIES = {"noise": "same noise", "arm": "aligned", "count": "counted"}


@pytest.mark.parametrize("name", STRONG)
def test_the_cause_is_named_and_its_remedy_leaves_less(name):
    (cause,) = PLANTS[name].causes
    jumps, causes = planted.judge(PLANTS[name], seed=3)
    (finding,) = planted.find(causes)
    assert jumps
    assert report.LABELS[cause] in finding.title
    assert sum(each.share for each in causes.causes) == pytest.approx(1, abs=1e-6)
    assert ("not explained by these calls" in str(report.sections(causes))) == (cause in ("arm", "observation"))
    left = {each.name: each.jump for each in causes.remedies}
    assert left[REMEDIES.get(cause, "none")] <= left["none"] * (0.5 if cause in REMEDIES else 1)
    for guided, can_rtc in ((True, True), (False, True), (False, False)):
        (finding,) = planted.find(causes.model_copy(update={"guided": guided, "can_rtc": can_rtc}))
        assert "--inference.type=rtc" not in finding.do or (can_rtc and not guided)
        assert "execution_horizon" not in finding.do or guided


@pytest.mark.parametrize("name", ["a policy that remembers its calls", "one that forgets them in reset()"])
def test_policies_that_remember_their_calls_are_not_judged(name):
    jumps, causes = planted.judge(PLANTS[name], seed=3)
    assert jumps
    assert "remembers" in causes.not_judged
    assert planted.find(causes) == []


def test_runs_without_jumps_are_not_split_and_a_policy_that_fails_is_a_line(monkeypatch):
    assert planted.judge(PLANTS["no cause"], seed=3) == (False, None)
    monkeypatch.setattr(look.answers, "predict", lambda *_: {}["token"])
    (section,) = report.sections(planted.judge(PLANTS[STRONG[0]], seed=3)[1])
    assert "KeyError: 'token'" in section.text[0]
