"""Calls that take longer than their actions last (lerobot #4580)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from support.builders.stage import Wired
from support.examples.findings_results import approve_findings

from strobe.core.results.finding import Finding
from strobe.preflight.findings.wiring import wiring_findings
from strobe.preflight.results.wiring import CallTime, Wiring
from strobe.preflight.run import make_answer
from strobe.preflight.wiring.read import read_wiring

RULE = "call-longer-than-chunk"


def read_timed_wiring(stage: Wired, ms: float, **robot: Any) -> Wiring:
    """A call of the policy takes so long; ``robot`` are facts of the loop."""
    wiring = replace(stage, robot=replace(stage.robot, **robot)).read()
    wiring.timing.call = CallTime(ms=ms)
    return wiring


def late(wiring: Wiring) -> Finding | None:
    return next((each for each in wiring_findings(wiring) if each.rule == RULE), None)


def read_robotless_wiring(stage: Wired, **call: Any) -> Wiring:
    wiring = read_wiring(stage.policy, stage.dataset)
    wiring.timing.call = CallTime(ms=1200.0, **call)
    return wiring


def read_flow_wiring(folder: Path) -> Wiring:
    wiring = read_wiring(folder, None, None)
    assert (wiring.guidable, wiring.timing.steps) == (True, 2)
    wiring.timing.data_fps, wiring.timing.executed, wiring.timing.chunk = 30.0, 10, 50
    wiring.timing.call = CallTime(ms=700.0)  # 21 ticks
    return wiring


def test_a_call_longer_than_its_actions_is_named(stage: Wired, saved_policies: Any):
    rtc: dict[str, Any] = {"engine": "rtc", "execution_horizon": 10}
    run = {"run": "runs/rehearsal", "fps": 30.0, "engine": "rtc"}
    cases = {
        "no call was measured": ("", stage.read()),
        **{f"a call of {ms:.0f} ms": ("", read_timed_wiring(stage, ms)) for ms in (0.0, 5.0, 330.0)},
        "a call of 36 ticks": (RULE, read_timed_wiring(stage, 1200.0)),
        "a call of 18 ticks": (RULE, read_timed_wiring(stage, 600.0)),
        # Real-Time Chunking needs a chunk for two calls.
        "a call of 15 ticks with RTC": ("", read_timed_wiring(stage, 500.0, **rtc)),
        "a call of 18 ticks with RTC": (RULE, read_timed_wiring(stage, 600.0, **rtc)),
        "a call of 30 ticks with RTC": (RULE, read_timed_wiring(stage, 1000.0, **rtc)),
        "no robot": (RULE, read_robotless_wiring(stage)),  # it is no fault of the robot
        "a run and no robot": (RULE, read_robotless_wiring(stage, **run)),
        "a flow policy": (RULE, read_flow_wiring(saved_policies["smolvla"][0])),
    }
    answers = {name: (expected, make_answer(wiring)) for name, (expected, wiring) in cases.items()}
    approve_findings(
        "calls", {RULE: answers}, {str(stage.policy): "POLICY", str(saved_policies["smolvla"][0]): "SMOLVLA"}
    )


def test_the_longer_chunk_that_is_named_fixes_it(stage: Wired):
    finding = late(read_timed_wiring(stage, 600.0))
    assert finding is not None
    assert "--policy.n_action_steps=18, of a chunk of 30. Or" in finding.do
    wiring = read_wiring(stage.policy, stage.dataset, stage.robot, settings={"n_action_steps": 18})
    wiring.timing.call = CallTime(ms=600.0)
    assert late(wiring) is None


def test_the_lower_rate_that_is_named_fixes_it(stage: Wired):
    finding = late(read_timed_wiring(stage, 600.0))
    assert finding is not None
    assert "--fps=16, where one call fits into 10 control ticks, and record data at that rate" in finding.do
    assert late(read_timed_wiring(stage, 600.0, fps=16.0)) is None
