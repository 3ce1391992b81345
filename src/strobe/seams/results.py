"""Jumps between chunks, split by cause. Plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval, many, optional

CauseName = Literal["noise", "observation", "arm", "count", "step"]
RemedyName = Literal["none", "counted", "aligned", "same noise"]
FEWEST = 6  # seams that a cause is named of
NAMED = 0.5  # share of the jumps from which on a cause is named


class Cause(Data):
    """One cause of the jumps, and its share of all of them.

    The shares of all causes sum to 1. One below 0 makes the jumps smaller.
    """

    name: CauseName
    share: Finite = Field(description="of the squared jumps, along the jumps; joints in units of their ordinary steps")
    interval: Interval | None = optional("95 %, a bootstrap over seams; None with fewer than six")


class Remedy(Data):
    """The jumps with a change that needs no other chunks than those of the split."""

    name: RemedyName
    jump: Finite = Field(description="median length over seams, joints in units of their ordinary steps")


class SeamCauses(Data):
    """The jumps of a recorded run from chunk to chunk, split by calls of its policy on the recorded observations."""

    seams: int = Field(description="number of seams that were split")
    left_out: int = Field(default=0, description="seams without a recorded observation of one of their chunks")
    draws: int = Field(default=1, description="calls on one observation, each with noise of its own; 1 without noise")
    guided: bool = Field(default=False, description="whether Real-Time Chunking guided the chunks: a part of the noise")
    can_rtc: bool = Field(default=False, description="whether LeRobot can guide the policy by Real-Time Chunking")
    causes: list[Cause] = many("largest first; empty if not judged")
    remedies: list[Remedy] = many("the jumps as they were, then with each remedy")
    back: int = Field(default=0, description="seams whose jump goes back along the path of the last actions")
    off: int = Field(default=0, description="seams whose jump leaves the path to a side")
    age_s: Finite | None = optional("seconds from one chunk's observation to the next one's, median")
    behind: Finite | None = optional("distance of the arm from its command when a chunk was asked for, median")
    behind_joint: str | None = optional("the joint that is farthest behind, in units of its ordinary steps")
    miscounted: Finite | None = optional("actions skipped beyond those executed since the observation, median")
    not_judged: str | None = optional("why no cause is named, in words; None if one may be")

    @property
    def main_cause(self) -> Cause | None:
        """The cause of most of the jumps; None where the intervals leave that open."""
        known = [cause for cause in self.causes if cause.name != "step" and cause.interval is not None]
        first = known[0] if known else None
        return first if first is not None and first.interval is not None and first.interval.low >= NAMED else None
