"""What a run gave the policy is compared with the range of the training data, joint by joint."""

from __future__ import annotations

import pytest
from support.builders.stage import JOINTS, Wired

from strobe.core.results.finding import Finding
from strobe.loops.results.rollout import RolloutResult
from strobe.preflight.findings.wiring import wiring_findings
from strobe.preflight.pages import fed
from strobe.preflight.results.wiring import Wiring
from strobe.preflight.wiring.fed import add_fed

TICKS = 50
HIGH = 40.0  # of the training data, of which σ is 5
RULES = ("starts-outside-training", "runs-outside-training")


def run(stage: Wired, joint: int, first: float, later: float) -> Wiring:
    """A run in which one joint starts at ``first`` and stays at ``later``; the others stand in the middle."""
    stage.take_statistics()
    wiring = stage.read()
    rows = [[(first if tick == 0 else later) if at == joint else 0.0 for at in range(6)] for tick in range(TICKS)]
    add_fed(wiring, JOINTS, rows)
    return wiring


def relevant_findings(wiring: Wiring) -> list[Finding]:
    return [each for each in wiring_findings(wiring) if each.rule in RULES]


@pytest.mark.parametrize(("first", "sigma"), [(HIGH + 6, "+9.2 σ"), (-400.0, "-80 σ")])
def test_a_joint_that_starts_elsewhere_is_named_with_its_size(first: float, sigma: str, stage: Wired):
    (finding,) = relevant_findings(run(stage, 2, first, 0.0))
    assert finding.rule == "starts-outside-training"
    assert finding.level == "warning"
    assert finding.title.endswith(f": elbow_flex.pos, {sigma}")
    assert "outside of -40 to 40 in 2 % of the control ticks" in finding.found
    assert "between -40 and 40" in finding.do


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_a_joint_that_stays_elsewhere_is_named_with_the_share_of_ticks(share: float, stage: Wired):
    stage.take_statistics()
    wiring = stage.read()
    rows = [
        [0.0, 0.0, 0.0, 0.0, HIGH + 4 if tick >= TICKS * (1 - share) and tick else 0.0, 0.0] for tick in range(TICKS)
    ]
    add_fed(wiring, JOINTS, rows)
    (finding,) = relevant_findings(wiring)
    assert finding.rule == "runs-outside-training"
    assert "wrist_roll.pos" in finding.title


@pytest.mark.parametrize("at", [0.0, HIGH, -HIGH, HIGH + 1])
def test_nothing_is_said_inside_of_the_range_or_at_its_edge(at: float, stage: Wired):
    wiring = run(stage, 2, at, at)
    assert wiring.fed is not None
    assert [each.joint for each in wiring.fed] == JOINTS
    assert relevant_findings(wiring) == []


def test_positions_follow_the_names_of_the_robot(stage: Wired):
    stage.take_statistics()
    wiring = stage.read()
    add_fed(wiring, JOINTS[::-1], [[HIGH + 20, 0.0, 0.0, 0.0, 0.0, 0.0]] * TICKS)
    (finding,) = relevant_findings(wiring)
    assert JOINTS[-1] in finding.title


def test_without_positions_nothing_is_judged(stage: Wired):
    stage.take_statistics()
    wiring = stage.read()
    add_fed(wiring, JOINTS, [None] * TICKS)
    assert wiring.fed is None
    assert relevant_findings(wiring) == []


def test_the_page_of_a_run_has_a_row_for_each_joint(stage: Wired):
    wiring = run(stage, 2, HIGH + 6, 0.0)
    answer = RolloutResult.model_construct(wiring=wiring)
    (section,) = fed.sections(answer)
    assert section.table is not None
    assert [row.cells[0] for row in section.table.rows] == JOINTS
    assert section.table.rows[2].cells[1:] == ["−40 to 40", "46", "+9.2", "2.0 %"]
    assert fed.sections(RolloutResult.model_construct(wiring=None)) == []
