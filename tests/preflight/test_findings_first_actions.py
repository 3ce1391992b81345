"""The first action's jump: silent on sound policies of simulated recordings, and loud where an arm would jump."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.examples.findings_results import approve_findings

from strobe.core.kinds import advise, document, page
from strobe.loops.measure.robot import first_action, joint_jumps, starts
from strobe.loops.measure.rollout import Tick
from strobe.loops.results.motion import FirstJump
from strobe.open_loop.results import ActionRange, Hypothesis, OpenLoop
from strobe.preflight.results.wiring import JointReach, PreflightResult, Reach, Wiring

Array = NDArray[np.float64]
NAMES = ["pan", "lift", "flex", "gripper"]
REST = np.array([0.0, -95.0, 90.0, 5.0])
SEEDS = 200
OURS = ("first-jump-far", "predicted-beyond-limits")


@dataclass
class Recording:
    actions: Array
    states: Array
    episodes: NDArray[np.int64]

    @property
    def spread(self) -> Array:
        return self.actions.std(axis=0)

    @property
    def firsts(self) -> list[int]:
        return [int(frame) for frame in starts(self.episodes)]

    def jump(self, first: Array) -> FirstJump:
        """Of a policy that predicts ``first``, an action for each episode."""
        joints = joint_jumps(self.actions, self.states, self.spread, self.episodes, NAMES, self.firsts, first)
        return FirstJump(episodes=len(first), joints=joints)


def recording(seed: int, episodes: int = 8, ticks: int = 60, *, plain: bool = False) -> Recording:
    """From a rest pose to a goal; the arm follows 0 to 4 ticks late, some leaders stand off the arm at first.

    ``plain``: it follows 2 ticks late, and the leader does not.
    """
    random = np.random.default_rng(seed)
    late, off = (2, False) if plain else (int(random.integers(0, 5)), random.random() < 0.3)
    made = []
    for _ in range(episodes):
        goal = REST + random.normal([0, 110, -95, 30], [30, 15, 15, 8])
        done = np.clip(np.arange(ticks + late) / (ticks * random.uniform(0.5, 1)), 0, 1)
        path = REST + (done**2 * (3 - 2 * done))[:, None] * (goal - REST) + random.normal(0, 0.1, (ticks + late, 4))
        actions, states = path[late:], path[: len(path) - late].copy()
        if off:
            actions[0] += random.normal(0, 30, 4)
        made.append((actions, states))
    if random.random() < 0.3:
        for actions, states in made:
            actions[:, 3] = states[:, 3] = 5.0  # a gripper that never moves
    numbers = np.repeat(np.arange(episodes), ticks)
    return Recording(np.concatenate([a for a, _ in made]), np.concatenate([s for _, s in made]), numbers)


def answer(jump: FirstJump | None = None, *ranges: ActionRange, reach: Reach | None = None) -> PreflightResult:
    wiring = Wiring(policy="act", sources={"policy": "checkpoint", "dataset": "data"}, wires=[], reach=reach)
    loop = OpenLoop(frames=80, episodes=8, chunk=10, executed=5, ranges=list(ranges), first_jump=jump)
    return PreflightResult(
        strobe_version="0", title="act: do policy, data and robot match?", wiring=wiring, open_loop=loop
    )


def findings(result: PreflightResult) -> list[Any]:
    return [finding for finding in advise(result) if finding.rule in OURS]


@pytest.mark.parametrize("error", [0.0, 0.1, 0.5])
def test_a_policy_that_explains_three_quarters_of_the_data_or_more_never_jumps(error: float) -> None:
    for seed in range(SEEDS):
        data = recording(seed)
        noise = np.random.default_rng(seed + 1).normal(0, error, (len(data.firsts), 4)) * data.spread
        assert findings(answer(data.jump(data.actions[data.firsts] + noise))) == [], f"seed {seed}"


@pytest.mark.parametrize("fault", ["inert", "swapped"])
def test_actions_without_units_and_of_another_joint_jump(fault: str) -> None:
    silent = 0
    for seed in range(SEEDS):
        data = recording(seed)
        first = data.actions[data.firsts]
        if fault == "inert":
            first = (first - data.actions.mean(axis=0)) / np.maximum(data.spread, 1e-8)
        else:
            first = first[:, [0, 2, 1, 3]]
        silent += not findings(answer(data.jump(first)))
    # Leaders that stand off the arm by as much as that hide some.
    assert silent < SEEDS * 0.3


def offset_jump(data: Recording, by: Any) -> FirstJump:
    """The jump of a policy that predicts the recorded first actions, and so much more."""
    return data.jump(data.actions[data.firsts] + by)


def make_hypothesis_result(jump: FirstJump, outcome: Any) -> PreflightResult:
    result = answer(jump)
    result.hypotheses = [Hypothesis(kind="cameras", name="two cameras change places", outcome=outcome)]
    return result


def limited_reach(low: float, high: float) -> Reach:
    """A joint that may go 80 degrees each way and is sent ``low`` to ``high`` by the statistics."""
    joint = JointReach(joint="lift.pos", low=low, high=high, limit_low=-80, limit_high=80)
    return Reach(joints=[joint], unit="degrees", basis="min and max", calibration="my_arm.json")


def test_what_is_found() -> None:
    data, still = recording(1, plain=True), recording(2)
    lift, jump, beyond = offset_jump(data, [0, 80, 0, 0]), "first-jump-far", "predicted-beyond-limits"
    mean = data.jump(np.broadcast_to(data.actions.mean(axis=0), (len(data.firsts), 4)))
    still.actions[:, 3] = still.states[:, 3] = 5.0
    gripper, below = offset_jump(still, [0, 0, 0, 40]), ActionRange(name="lift.pos", low=-100.0, high=20.0)
    assert gripper.joints[3].spread == 0
    approve_findings("first-actions", {"|".join(OURS): {
        "80 degrees off": (jump, answer(lift)),
        "80 degrees off, and capped": (jump, answer(lift, reach=Reach(joints=[], capped=True))),
        "the mean action": (jump, answer(mean)),  # from a rest pose that is far from it
        "what a claim explains": ("", make_hypothesis_result(lift, "claimed")),
        "what no claim explains": (jump, make_hypothesis_result(lift, "not better")),
        "three episodes": ("", answer(offset_jump(recording(1, episodes=3, plain=True), 90))),
        "a joint that never moves": ("", answer(gripper)),  # it has no measure
        "predictions beyond the calibration": (beyond, answer(None, below, reach=limited_reach(-70, 70))),
        "predictions that push against a limit": (
            "", answer(None, ActionRange(name="lift.pos", low=-82.0, high=20.0), reach=limited_reach(-70, 70))),
        "statistics beyond it already": ("", answer(None, below, reach=limited_reach(-120, 70))),
    }})  # fmt: skip


def test_the_report_shows_jumps_and_ranges_and_what_was_not_judged() -> None:
    data = recording(1, plain=True)
    lift = ActionRange(name="lift.pos", low=-60.0, high=20.0)
    result = answer(data.jump(data.actions[data.firsts]), lift, reach=limited_reach(-70, 70))
    sections = {section.key: section for section in document(result).sections}
    assert [column.title for column in sections["reach"].table.columns] == [
        "Joint",
        "Will be sent",
        "Predicted",
        "Limits",
    ]
    assert sections["reach"].table.rows[0].cells == ["lift.pos", "−70 to 70", "−60 to 20", "−80 to 80"]
    assert "σ)" in (sections["first-action"].table.rows[1].cells[1] or "")
    assert "Range of each joint's action" in page(result)

    result.open_loop = None
    sections = {section.key: section for section in document(result).sections}
    for key, what in (("reach", "Predicted actions"), ("first-action", "The first action on recorded frames")):
        assert f"Not judged. {what}: only files were read (--read_only)." in sections[key].text
    result.wiring.sources = {"policy": "checkpoint", "robot": "so101"}
    text = [note for section in document(result).sections for note in section.text]
    assert "Not judged. Predicted actions: it takes recorded frames: --dataset.root=DATA." in text
    assert any("from this arm's present position: LeRobot turns the torque on" in note for note in text)


def test_a_runs_first_action_is_the_first_that_was_sent() -> None:
    moves = [
        Tick(0, 0, True, at=at, commanded=commanded)
        for at, commanded in (([1.0, 2.0], None), ([1.5, 2.0], [4.0, 1.0]), ([9.0, 9.0], [9.0, 9.0]))
    ]
    first = first_action(moves, ["pan", "lift"])
    assert [(each.joint, each.at, each.sent, each.jump) for each in first] == [
        ("pan", 1.5, 4.0, 2.5), ("lift", 2.0, 1.0, 1.0),
    ]  # fmt: skip
    assert first_action([Tick(0, 0, True, commanded=[4.0, 1.0]), *moves], ["pan", "lift"]) == [], (
        "the arm moves by then"
    )
    assert first_action(moves[:1], ["pan", "lift"]) == []
