"""The answer of `strobe evaluate`: variants of one policy in a simulator, success against latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from strobe.budget.results import Line
from strobe.core.results.answer import Answer, Result
from strobe.core.results.data import Data, Finite, Interval, Quantiles, Summary
from strobe.core.results.measurement import Measurement
from strobe.core.results.numerals import points
from strobe.evaluate.results.time_to_task import PairedTimes, TimeToTask


class Video(Data):
    """One video: its episode, and where its file is."""

    variant: str
    task: str
    seed: int
    success: bool
    seconds: Finite = Field(description="of simulated time")
    file: str = Field(description="within the run's folder: an H.264 .mp4, or a .webp where there is no H.264")
    poster: str | None = Field(default=None, description="its last frame as a .webp, within the run's folder")


Engine = Literal["sync", "rtc", "async"]


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
    engine: Engine = Field(description="of inference: lerobot-rollout's --inference.type; async: its robot client")
    setting: str = Field(default="", description="the engine with what sets the row apart: 'rtc, horizon 20'")
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


class Motion(Data):
    """Steps and jerk of actions as the simulator got them, in the actions' units, Euclidean over their dimensions."""

    path: Finite = Field(description="mean distance of an action to the one before it, per control tick")
    jerk: Finite | None = Field(description="root mean square of the third difference, per tick³; None: too few ticks")
    within: Finite | None = Field(description="mean distance to the action before, in ticks whose action was queued")
    seam: Finite | None = Field(
        description="the same where a new chunk begins; None, as `within`, where no chunk or each tick began one"
    )


class ChunkTimes(Data):
    """One chunk at batch 1, processors included, in rounds in which all variants take turns; in milliseconds."""

    ms: Summary
    hz: Finite = Field(description="chunks per second at the median")
    parts: dict[str, Finite] = Field(
        description="median ms of the policy's parts and of the processors; what they leave of the whole is in none"
    )
    times: Finite | None = Field(
        default=None, description="how often as fast as the first variant; None for the first itself"
    )
    times_interval: Interval | None = Field(default=None, description="of it, from the pairs of the rounds")


Decided = Literal["worse", "better", "not worse by more than the margin", "undecided"]


def verdict_in_words(kind: Decided, margin: float) -> str:
    """Return a verdict in a few words: 'not worse by more than 10 points'."""
    return kind.replace("the margin", points(margin))


class SuccessRate(Data):
    """Episodes of one variant, and how many succeeded."""

    episodes: int
    successes: int
    rate: Finite = Field(description="0 to 1")
    interval: Interval = Field(description="exact (Clopper and Pearson)")


class Decision(Data):
    """A verdict: on episodes that are played, at any number of pairs; on finished results, at one look."""

    kind: Decided
    interval: Interval = Field(
        description="of the difference: valid at every number of pairs at once; of finished results, for one look"
    )
    margin: Finite | None = Field(description="loss of success rate that is called not worse, stated beforehand")
    within_margin: bool = Field(description="whether a loss above the margin is excluded, whatever the verdict")
    pairs: int | None = Field(description="pairs since which this verdict has held; None where undecided")


class PairedRates(Data):
    """A variant against the first one, on pairs with the same start and the same noise. Differences: it − the first.

    Where tasks are played in turn, pairs of a round that is not complete are not counted, unless it is the first.
    """

    both: int = Field(description="pairs in which both succeeded")
    lost: int = Field(description="pairs in which only the first variant succeeded")
    won: int = Field(description="pairs in which only this variant succeeded")
    neither: int = Field(description="pairs in which both failed")
    difference: Finite = Field(description="of the success rates, −1 to 1")
    interval: Interval = Field(description="of it (Tango), for one look after the last pair")
    p: Finite = Field(description="McNemar's exact test of no difference, for one look after the last pair")
    decision: Decision

    @property
    def pairs(self) -> int:
        """Pairs in all."""
        return self.both + self.lost + self.won + self.neither


class VariantOnTask(Data):
    """A variant's episodes on one task, or on all tasks together."""

    success: SuccessRate
    reward: Finite = Field(description="mean over its episodes of the sum over control ticks")
    paired: PairedRates | None = Field(default=None, description="against the first variant; None for the first itself")


class CallTimes(Data):
    """Calls of the policy within episodes, one observation at a time; the first ones, slow or not, are among them."""

    calls: int
    median_ms: Finite
    p95_ms: Finite
    hz: Finite = Field(description="calls per second at the median")
    beside: int = Field(default=0, description="other processes that played episodes meanwhile, at most")


class LoopTimes(Data):
    """Time of the loop around the policy, in episodes that were played one at a time."""

    reset_ms: Finite = Field(description="of the simulator's reset, mean over episodes")
    step_ms: Finite = Field(description="of the simulator in a control tick, without rendering, mean")
    render_ms: Finite | None = Field(description="of rendering in a control tick, mean; None where it was not seen")
    policy_ms: Finite = Field(description="of the policy in a control tick, mean: most ticks only take a queued action")
    drawn: Finite | None = Field(
        default=None, description="share of control ticks whose observation was drawn; None where it was not seen"
    )


class EvaluatedVariant(Data):
    """One row of an evaluation's table."""

    name: str
    steps: int | None = Field(
        default=None, description="its denoising steps; None: it has none, or varies in another setting"
    )
    recipe: str = Field(default="", description="the recipe's file; '' where it has none")
    together: VariantOnTask
    tasks: dict[str, VariantOnTask] = Field(description="by the task's name; empty with one task")
    calls: CallTimes
    loop: LoopTimes
    times: Finite | None = Field(
        default=None, description="how often as fast as the first, by the medians of the episodes that both played"
    )
    timing: Timing | None = Field(default=None, description="of episodes that were true to time")
    motion: Motion | None = Field(default=None, description="how smooth its actions are, mean over its episodes")
    time: TimeToTask | None = Field(default=None, description="until the task is done; None: not judged")
    time_not_judged: str = Field(default="", description="why there is no `time`, in words; '' in older answers")
    path_ratio: Finite | None = Field(
        default=None,
        description="length of its path of actions ÷ the first variant's, where both succeeded; None: not judged",
    )
    chunk: ChunkTimes | None = Field(default=None, description="apart from the episodes; None: not measured")


class PlayedCheckpoint(Data):
    """One of several checkpoints, against the best one, on the starts that both played."""

    name: str = Field(description="the part of its path that tells it from the others: the variant's name")
    path: str = Field(description="its folder or Hub id")
    policy: str = Field(description="the policy's type")
    starts: int = Field(description="complete starts that it played, over all tasks")
    by: str = Field(
        default="", description="the checkpoint that it is shown to succeed less than, which ended it; '': it remains"
    )
    rates: PairedRates | None = Field(default=None, description="None for the best one, or where no start is complete")
    times: PairedTimes | None = Field(default=None, description="None for the best one, or not judged")
    times_not_judged: str = Field(default="", description="why, in words")


class Elimination(Data):
    """Checkpoints that play the same starts until each but one is shown to succeed less than another one."""

    level: Finite = Field(description="of all statements on success together, and of all on time together")
    each_level: Finite = Field(description="of each pair of checkpoints, so that all together have `level`")
    best: str = Field(description="the only one that remains, else the one with the highest success rate so far")
    checkpoints: list[PlayedCheckpoint] = Field(description="in the order in which they were given")

    @property
    def remaining(self) -> list[PlayedCheckpoint]:
        """Those that were not shown to succeed less than another one."""
        return [checkpoint for checkpoint in self.checkpoints if not checkpoint.by]

    @property
    def starts(self) -> int:
        """Complete starts that were played, over all tasks."""
        return max((checkpoint.starts for checkpoint in self.checkpoints), default=0)


class EvaluateResult(Result):
    """Variants on the same starts with the same noise, each judged against the first.

    Several checkpoints are variants too. They are judged against each other (`elimination`), and not in `variants`.
    """

    study: Literal["evaluate"] = "evaluate"
    environment: str = Field(description="its type and task")
    tasks: list[str]
    fps: Finite | None = Field(default=None, description="control ticks per second; None in older answers")
    planned: int = Field(description="episodes of each variant that were asked for, over all tasks")
    margin: Finite = Field(description="loss of success rate that is called not worse, stated beforehand")
    foresight: str = Field(default="", description="what the planned number can decide, as said before it started")
    variants: list[EvaluatedVariant] = Field(
        default_factory=list, description="those that were played; the first first"
    )
    elimination: Elimination | None = Field(
        default=None, description="of several checkpoints; None: variants of one policy, judged against the first"
    )
    videos: list[Video] = Field(default_factory=list, description="of the first starts, start by start")
    line: Line | None = Field(
        default=None,
        description="latency of a chunk over denoising steps, apart from the episodes, through the variants that "
        "differ in steps alone; its intervals are of a bootstrap over rounds",
    )

    def advised(self) -> Sequence[Measurement]:
        return ()


class UnpairedRates(Data):
    """A run against the first one, whose episodes began elsewhere. Differences: it − the first."""

    difference: Finite = Field(description="of the success rates, −1 to 1: the mean over tasks, weighted")
    interval: Interval = Field(description="of it, for one look at runs whose lengths were fixed beforehand")
    kind: Decided
    by_task: bool = Field(
        default=False, description="whether the runs played the tasks in unlike shares, so that their rates mislead"
    )


class JudgedOnTask(Data):
    """A run's episodes on one task, or on all tasks together."""

    success: SuccessRate
    reward: Finite | None = Field(description="mean over its episodes of the sum over control ticks; None: not known")
    paired: PairedRates | None = None
    unpaired: UnpairedRates | None = None


class JudgedRun(Data):
    """One run of lerobot-eval; the first has nothing that it is judged against."""

    name: str = Field(description="its folder, as far as it tells the runs apart")
    file: str
    together: JudgedOnTask
    tasks: dict[str, JudgedOnTask] = Field(description="by the task's name; empty with one task")


class Judged(Answer):
    """Runs of lerobot-eval, each against the first."""

    called: ClassVar[str] = "judgement of lerobot-eval's runs"

    study: Literal["evaluate results"] = "evaluate results"
    tasks: list[str]
    margin: Finite = Field(description="loss of success rate that is called not worse")
    pairing: str = Field(description="why episodes are taken in pairs, or why not, in words")
    paired: bool
    runs: list[JudgedRun]

    @property
    def about(self) -> str:
        return "lerobot-eval"
