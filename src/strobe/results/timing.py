"""Episodes that were true to time: the latencies that were imposed, and what they did to the loop."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.results.data import Data, Finite
from strobe.results.quantiles import Quantiles

Engine = Literal["sync", "rtc"]


class EpisodeTiming(Data):
    """One episode. Its lists are in the order of time."""

    imposed_ms: list[Finite] = Field(description="latency of each call, by which the simulator went on")
    held: int = Field(description="ticks of the simulator that took no new action of the policy")
    lost: int = Field(description="actions that another one followed before the simulator took them")
    age_ms: list[Finite] = Field(description="of each action taken: from its observation until it was sent")
    steps: list[Finite] = Field(description="distance of an action from the one taken before it, in one chunk")
    jumps: list[Finite] = Field(description="the same where the two are of different chunks")
    rests: bool = Field(default=True, description="the simulator was held before the first action; else it stood still")


class Timing(Data):
    """A row of an evaluation that is true to time."""

    variant: str = Field(description="of the policy, without its timing")
    engine: Engine = Field(description="of inference, as of lerobot-rollout's --inference.type")
    latency: str = Field(description="as asked for: '100 ms', 'live', or a run that it is drawn from")
    hold: str = Field(description="of a tick without an action: 'last' repeats the last one, 'zero' moves nothing")
    fps: Finite = Field(description="control ticks per second of the simulator's clock")
    imposed: Quantiles = Field(description="latency of the calls in milliseconds, as imposed")
    ticks: int = Field(description="of the simulator, in all episodes")
    held: int = Field(description="of these, without a new action of the policy")
    lost: int = Field(description="actions that another one followed before the simulator took them")
    age: Quantiles | None = Field(description="milliseconds from an observation until its action was sent")
    jumps: int = Field(description="seams between chunks")
    jump_ratio: Finite | None = Field(
        description="median distance of actions across a seam over the 95th percentile of those in a chunk; "
        "None with no seam, or where actions in a chunk do not differ"
    )

    @property
    def starved(self) -> float:
        """Share of the simulator's ticks without a new action."""
        return self.held / self.ticks
