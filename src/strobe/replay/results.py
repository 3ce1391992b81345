"""A replay: a saved rollout in simulated time, with its own settings, with others, and in an ideal loop.

The requested changes are here too, as the flags give them. Needs neither torch nor LeRobot.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, many, mapping, optional
from strobe.loops.results.motion import Jump
from strobe.loops.results.rollout import Inference, JointSeam, Pace, Quantiles, Queue, Series
from strobe.seams.results import SeamCauses

ColumnName = Literal["recorded", "as it was", "as asked", "ideal loop"]


class Range(Data):
    """One figure of a column, with the interval that 95 % of the draws lie in."""

    value: Finite | None = Field(description="the figure with the recorded latencies in order; None if there is none")
    low: Finite | None = optional("lower end; None if recorded, or if nothing can vary")
    high: Finite | None = None


class Replayed(Data):
    """A rollout with one set of settings: as recorded, or as simulated."""

    name: ColumnName
    settings: dict[str, str] = mapping("settings in LeRobot's spelling, without --")
    figures: dict[str, Range] = mapping("figure by its name in `FIGURES`")
    pace: Pace | None = None
    inference: Inference | None = None
    queue: Queue
    age: Quantiles | None = None
    seams: list[JointSeam] = many("seams between chunks; empty if no policy was run")
    jumps: list[Jump] = Field(default_factory=list)
    series: Series = Field(default_factory=Series)


# Figure → its name in words, its unit, digits after the point.
FIGURES = {
    "held_hz": ("loop rate", "Hz", 1),
    "late": ("late control ticks", "", 0),
    "first_ms": ("first action after", "ms", 0),
    "starved": ("control ticks without an action", "", 0),
    "starved_ms": ("time without an action", "ms", 0),
    "longest_ms": ("longest time without an action", "ms", 0),
    "least": ("fewest actions in the queue", "", 0),
    "age_ms": ("observation age, median", "ms", 0),
    "age_p95_ms": ("observation age, p95", "ms", 0),
    "calls": ("policy calls", "", 0),
    "useless": ("chunks that arrived too late", "", 0),
    "assumed": ("assumed delay, median", "actions", 0),
    "executed": ("actual delay, median", "actions", 0),
    "skipped": ("actions dropped unexecuted", "", 0),
}


def figure_words(figure: str) -> str:
    """Return a figure's name in words."""
    return FIGURES[figure][0] if figure in FIGURES else figure


class Check(Data):
    """One figure of the replay under the run's own settings against what was recorded."""

    figure: str = Field(description="a name of `FIGURES`, or a joint's jump in words")
    recorded: Finite
    low: Finite
    high: Finite
    agrees: bool


class Tried(Data):
    """A queue threshold, and how many of the draws starved with it."""

    threshold: int
    starved: int
    draws: int


class PolicyCalls(Data):
    """The policy's calls on saved observations, in all columns together."""

    observations: int = Field(description="number of observations recorded")
    missing: int = Field(description="ticks without a recorded observation")
    oldest_ms: Finite = Field(description="largest excess age of an observation over the one the call would have had")
    calls: int
    cut: bool = Field(default=False, description="only the first calls were run, fewer than the run had")


class Jumping(Data):
    """Joints that jump from chunk to chunk: their median jump is at least ``limit`` times their ordinary steps."""

    limit: Finite
    recorded: list[str] = Field(default_factory=list)
    as_it_was: list[str] = many("jumps under the run's own settings")
    ideal: list[str] = many("jumps in an ideal loop")


class ReplayResult(Answer):
    """A saved rollout replayed in virtual time."""

    study: Literal["replay"] = "replay"
    run: str = Field(description="the replayed folder")
    joints: list[str] = Field(default_factory=list)
    columns: list[Replayed] = Field(description="recorded, as it was, with the requested settings (if any), ideal loop")
    checks: list[Check] = Field(default_factory=list)
    verdict: str = Field(description="whether the loop starved or the policy erred, in words")
    jumping: Jumping | None = optional("evidence for the verdict on jumps; None in older runs")
    draws: int
    seconds: Finite = Field(description="duration of the run")
    lost: str | None = optional("what the recording lacks or has damaged; None if nothing is known")
    tried: list[Tried] = many("thresholds tried, if one was searched for")
    least_threshold: int | None = optional("smallest threshold that hardly ever starves a fresh run, else the largest")
    starves_chance: Finite | None = optional(
        "chance that a fresh run starves with it; None with too few recorded calls"
    )
    delay: int | None = optional("actions that cover 95 % of the calls after the first")
    policy: PolicyCalls | None = optional("the policy's calls; None if no policy was run")
    causes: SeamCauses | None = optional("the recorded jumps by cause; None if no joint jumps, or no policy was run")

    @property
    def subject_name(self) -> str:
        return self.title.split(" on ")[0]

    @property
    def agrees(self) -> bool:
        """Whether the replay with the run's own settings agrees with the recording."""
        return all(check.agrees for check in self.checks)

    def column(self, name: str) -> Replayed | None:
        """Return the column called ``name``; None if it does not exist."""
        return next((column for column in self.columns if column.name == name), None)


def starved_chance_text(chance: float | None) -> str:
    """Return the share of future runs that starve with a threshold, in words."""
    if chance is None:
        return "the recorded calls would not starve the robot, but they cannot rule out a longer call"
    if chance <= 1 / 20:
        return "at most one run of 20 like this one would starve"
    return f"up to {math.ceil(20 * chance)} of 20 runs like this one would still starve"


PLAIN = ("fps", "interpolation_multiplier", "inference.type", "inference.queue_threshold", "policy.n_action_steps")
# Flags that only a policy can answer.
OF_POLICY = ("policy.", "device", "task", "rename_map")


def is_lerobots(name: str) -> bool:
    """Return whether a flag (without --) is one of lerobot-rollout's that a replay can change."""
    return name in PLAIN or name.startswith(("inference.", *OF_POLICY))


@dataclasses.dataclass(frozen=True)
class Changes:
    """Differences from the recorded run.

    Args:
        lerobot: flags of lerobot-rollout, name without -- → value.
        latency: 'recorded', 'x0.5', '+20', '-20' or '120' (milliseconds), or another recorded run.
        delay, fixed: as of `Setting`; None: as in the run.
        recipe: the name of one that is applied the policy; '' without.
    """

    lerobot: dict[str, str] = dataclasses.field(default_factory=dict)
    latency: str = "recorded"
    delay: str | None = None
    fixed: bool = False
    recipe: str = ""

    @property
    def any(self) -> bool:
        """Whether anything differs from the recorded run."""
        return (
            bool(self.lerobot)
            or self.latency != "recorded"
            or self.delay is not None
            or self.fixed
            or bool(self.recipe)
        )

    @property
    def arguments(self) -> list[str]:
        """For lerobot-rollout."""
        return [f"--{name}={value}" for name, value in self.lerobot.items()]

    @property
    def policy_flags(self) -> list[str]:
        """The flags that make it another policy, or the same one act otherwise."""
        named = [f"--{name}" for name in self.lerobot if name.startswith(OF_POLICY) and name not in PLAIN]
        return named + ["--recipe"] * bool(self.recipe)
