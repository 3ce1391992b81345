"""A comparison with a simulator on the page of `strobe preflight`, its findings, and the advice to make one."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.contract.results import Check, CheckKind, Contract
from strobe.core.findings.thresholds import Thresholds
from strobe.core.report.document import Columns, Section, listing, words
from strobe.core.results.answer import Answer
from strobe.core.results.finding import Finding, good, info, warning

NEEDED: set[CheckKind] = {"starts", "action scale"}  # without them, no wiring is called sound
ADVICE: dict[CheckKind, str] = {
    "image size": "Train on images of the simulator's size, or let it draw the data set's where it can.",
    "image orientation": "Turn the images in the environment's processor, or in the data set.",
    "image colours": "Exchange red and blue: LeRobot's images are RGB, OpenCV's are BGR.",
    "camera order": "Give each image its camera's name with --rename_map.",
    "state dimensions": "Let the environment's processor give the data set's (a quaternion has 4, an axis-angle 3).",
    "state order": "Let the environment's processor give the state in the data set's order.",
    "state unit": "Multiply the state by that factor in the environment's processor.",
    "rotation form": "Convert the rotation in the environment's processor: the policy was trained on the other form.",
    "starts": "Let the simulator start as the episodes do.",
    "action dimensions": "Name the environment that the data set was recorded in (--env.type, --env.task).",
    "action range": "Name the environment's control mode that takes these actions: absolute or relative ones.",
    "action mode": "Name the environment's control mode that takes these actions: absolute or relative ones.",
    "action order": "Exchange the two in the action; or in the state, if that is exchanged.",
    "action sign": "Negate it before the simulator; or its axis in the state, if that is mirrored.",
    "action scale": "Divide it by that factor before the simulator, or name the data set's control mode.",
    "gripper direction": "Negate it before the simulator: open and closed are exchanged.",
    "gripper range": "Move its two ends to the simulator's, such as 0 and 1 to −1 and 1.",
    "control rate": "Start the environment with the data set's rate (--env.fps), or record at the simulator's.",
    "task in words": "Give the policy the data set's words.",
}
COLUMNS: Columns[Check] = [
    words("Compared", lambda check: check.kind),
    words("Of", lambda check: check.of),
    words("Verdict", lambda check: check.verdict),
    words("Seen", lambda check: check.seen),
]


def _contract(answer: Answer) -> Contract:
    return getattr(answer, "contract", None) or Contract(environment="", starts=0, ticks=0, checks=[])


def sections(answer: Answer) -> list[Section]:
    """Return the table of all that was compared; none without a simulator."""
    made = _contract(answer)
    text = f"{made.starts} starts of {made.environment}, and {made.ticks:,} recorded actions that it executed."
    return listing("simulator", "The simulator against the data set", made.checks, COLUMNS, text)


def differing(answer: Answer, _: Thresholds) -> Iterator[Finding]:
    """A finding of each thing that differs."""
    for check in _contract(answer).select("differs"):
        learnt = getattr(getattr(answer, "open_loop", None), "learnt", None) if check.kind == "task in words" else None
        moved, looks = (learnt.simulator_task, learnt.looks_at_simulator_task) if learnt is not None else (None, None)
        effect = f" These words change the policy's actions by {moved:.2g} σ." if moved is not None else ""
        yield (info if looks is False else warning)(
            rule=f"simulator-{check.kind.replace(' ', '-')}",
            title=f"The simulator differs from the training set in the {check.kind}: {check.of}",
            found=f"{check.of}: {check.seen}.{effect}",
            why="The policy sees or does in the simulator what it was not trained for.",
            do="Nothing: this policy hardly looks at the words." if looks is False else ADVICE[check.kind],
        )


def sound(answer: Answer, _: Thresholds) -> Iterator[Finding]:
    """A simulator in which nothing differs, and the starts, the images and what the actions do agree."""
    made = _contract(answer)
    kinds = {each.kind for each in made.select("agrees")}
    seen = not any(each.kind == "image orientation" for each in made.checks) or "image orientation" in kinds
    if made.select("differs") or not seen or not kinds >= NEEDED:
        return
    agreed = "; ".join(f"{each.kind} of {each.of}" for each in made.select("agrees"))
    left = "".join(f"{each.kind} of {each.of}; " for each in made.select("not judged"))
    yield good(
        rule="simulator-sound",
        title="The wiring to the simulator is fine: if the policy fails there, it is the policy",
        found=f"As in the training set: {agreed}. Not judged: {left}forms of a rotation that look the same here.",
        why="It gives what the training set has, and its state follows the recorded actions as it did there.",
        do="Read what the policy has learnt: its errors on recorded frames, and the inputs that move its actions.",
    )


RULES = (differing, sound)
