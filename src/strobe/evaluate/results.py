"""The answer of `strobe evaluate`: variants of one policy in a simulator, success against latency."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer, Result
from strobe.core.results.call_times import Growth
from strobe.core.results.data import Data, Finite, Interval, Line, Quantiles, Summary, many, optional
from strobe.evaluate.pairs import PairedRates, PairedScores, PairedTimes, Score, SuccessRate, TimeToTask, UnpairedRates
from strobe.loops.results.motion import Motion


class Video(Data):
    """One video: its episode, and where its file is."""

    variant: str
    task: str
    seed: int
    success: bool
    seconds: Finite = Field(description="duration in simulated time")
    file: str = Field(description="path in the run's folder: an H.264 .mp4, or a .webp without H.264")
    poster: str | None = optional("path of its last frame as a .webp, in the run's folder")


Engine = Literal["sync", "rtc", "async"]


class EpisodeTiming(Data):
    """One episode. Its lists are in the order of time."""

    imposed_ms: list[Finite] = Field(description="latency of each call; the simulator advanced by it")
    held: int = Field(description="ticks of the simulator without a new action from the policy")
    lost: int = Field(description="actions that a newer one replaced before the simulator used them")
    age_ms: list[Finite] = Field(description="age of each action used: from its observation until it was sent")
    steps: list[Finite] = Field(description="distance between consecutive actions of the same chunk")
    jumps: list[Finite] = Field(description="distance between consecutive actions of different chunks")
    rests: bool = Field(default=True, description="the simulator was held before the first action; else it stood still")


class Timing(Data):
    """A row of an evaluation that is true to time."""

    variant: str = Field(description="name of the policy's variant, without its timing")
    engine: Engine = Field(description="inference engine: lerobot-rollout's --inference.type; async: its robot client")
    setting: str = Field(default="", description="the engine and what is special in this row: 'rtc, horizon 20'")
    latency: str = Field(description="latency as requested: '100 ms', 'live', or the run that it is drawn from")
    hold: str = Field(description="a tick without an action: 'last' repeats the last one, 'zero' moves nothing")
    fps: Finite = Field(description="control ticks per second of the simulator's clock")
    imposed: Quantiles = Field(description="imposed latency of the calls, in milliseconds")
    ticks: int = Field(description="ticks of the simulator in all episodes")
    held: int = Field(description="ticks among them without a new action from the policy")
    lost: int = Field(description="actions that a newer one replaced before the simulator used them")
    age: Quantiles | None = Field(description="milliseconds from an observation until its action was sent")
    jumps: int = Field(description="number of seams between chunks")
    jump_ratio: Finite | None = Field(
        description="median distance of actions across a seam ÷ 95th percentile inside a chunk; None with no seam, or "
        "if actions inside a chunk do not differ"
    )

    @property
    def starved_share(self) -> float:
        """Share of the simulator's ticks without a new action."""
        return self.held / self.ticks


class ChunkTimes(Data):
    """One chunk at batch 1, processors included, in rounds in which all variants take turns; in milliseconds."""

    ms: Summary
    hz: Finite = Field(description="chunks per second at the median")
    parts: dict[str, Finite] = Field(
        description="median ms of the policy's parts and of the processors; the remainder belongs to no part"
    )
    times: Finite | None = optional("speed relative to the first variant; None for the first itself")
    times_interval: Interval | None = optional("interval of `times`, from pairs of the rounds")


class VariantOnTask(Data):
    """A variant's episodes on one task, or on all tasks together."""

    success: SuccessRate
    reward: Finite = Field(description="mean over the episodes of the summed reward")
    paired: PairedRates | None = optional("comparison with the first variant; None for itself")
    progress: Finite | None = optional("mean progress over the episodes, 0 to 1; None: success decides")
    scored: PairedScores | None = optional("comparison of progress with the first variant; None: success decides")

    @property
    def comparison(self) -> PairedRates | PairedScores | None:
        """The comparison by the score that decides; None for the first variant."""
        return self.paired if self.scored is None else self.scored


class CallTimes(Data):
    """Calls of the policy within episodes, one observation at a time; the first ones, slow or not, are among them."""

    calls: int
    median_ms: Finite
    p95_ms: Finite
    hz: Finite = Field(description="calls per second at the median")
    concurrent: int = Field(default=0, description="maximum number of other processes that played episodes meanwhile")
    growth: Growth | None = optional("how they take longer and longer; None: they do not")

    def quantile_ms(self, share: float) -> float | None:
        """Return the milliseconds that a ``share`` of the calls does not exceed; None for one that is not saved."""
        return {0.5: self.median_ms, 0.95: self.p95_ms}.get(share)


class LoopTimes(Data):
    """Time of the loop around the policy, in episodes that were played one at a time."""

    reset_ms: Finite = Field(description="simulator's reset, mean over episodes")
    step_ms: Finite = Field(description="simulator's step in a control tick, without rendering, mean")
    render_ms: Finite | None = Field(description="rendering in a control tick, mean; None if not seen")
    policy_ms: Finite = Field(description="policy's time in a control tick, mean: most ticks only take a queued action")
    drawn: Finite | None = optional("share of control ticks with a rendered observation; None if not seen")


class EvaluatedVariant(Data):
    """One row of an evaluation's table."""

    name: str
    steps: int | None = optional("number of denoising steps; None: it has none, or varies in another setting")
    recipe: str = Field(default="", description="file name of the recipe; '' if it has none")
    together: VariantOnTask
    tasks: dict[str, VariantOnTask] = Field(description="task name → result; empty with one task")
    calls: CallTimes
    loop: LoopTimes
    times: Finite | None = optional(
        "speed relative to the first variant, by the medians of the episodes that both played"
    )
    timing: Timing | None = optional("timing of the episodes played in real time")
    motion: Motion | None = optional("smoothness of the actions, mean over the episodes")
    time: TimeToTask | None = optional("time until the task is done; None: not judged")
    time_not_judged: str | None = optional("why there is no `time`")
    path_ratio: Finite | None = optional(
        "its path of actions ÷ the first variant's, where both succeeded; None: not judged"
    )
    chunk: ChunkTimes | None = optional("time of a chunk without episodes; None: not measured")


class PlayedCheckpoint(Data):
    """One of several checkpoints, against the best one, on the starts that both played."""

    name: str = Field(description="the variant's name: the part of its path that differs from the others'")
    path: str = Field(description="folder or Hub id")
    policy: str = Field(description="type of the policy")
    starts: int = Field(description="number of complete starts played, over all tasks")
    by: str | None = optional("checkpoint shown to succeed more often, which eliminated this one; None: it remains")
    rates: PairedRates | None = optional("None for the best one, or with no complete start")
    times: PairedTimes | None = optional("against the best one; None: itself, or not judged")
    times_not_judged: str | None = optional("why `times` is missing")


class Elimination(Data):
    """Checkpoints that play the same starts until each but one is shown to succeed less than another one."""

    level: Finite = Field(description="joint level of all statements on success, and of all on time")
    each_level: Finite = Field(description="level of each pair of checkpoints, such that all together have `level`")
    best: str = Field(description="the only one that remains, else the one with the highest success rate so far")
    checkpoints: list[PlayedCheckpoint] = Field(description="all checkpoints, in the order given")

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
    environment: str = Field(description="type and task of the environment")
    tasks: list[str]
    fps: Finite | None = optional("control ticks per second; None in older answers")
    planned: int = Field(description="episodes requested for each variant, over all tasks")
    score: Score = Field(default="success", description="what decides, stated beforehand")
    full_reward: Finite | None = optional("reward of a control tick that is progress 1; None: success decides")
    margin: Finite = Field(description="non-inferiority margin (loss of the score), stated beforehand")
    foresight: str | None = optional("the verdicts within reach of the planned number")
    variants: list[EvaluatedVariant] = many("variants that were played, the baseline first")
    elimination: Elimination | None = optional("outcome with several checkpoints; None: variants of one policy")
    videos: list[Video] = many("videos of the first starts, in order")
    line: Line | None = optional(
        "latency of a chunk over denoising steps, measured without episodes, fitted through the variants "
        "that differ in steps only; intervals by bootstrap over rounds"
    )


class JudgedOnTask(Data):
    """A run's episodes on one task, or on all tasks together."""

    success: SuccessRate
    reward: Finite | None = Field(description="mean over the episodes of the summed reward; None: unknown")
    paired: PairedRates | None = None
    unpaired: UnpairedRates | None = None


class JudgedRun(Data):
    """One run of lerobot-eval; the first has nothing that it is judged against."""

    name: str = Field(description="shortest part of its folder's path that identifies the run")
    file: str
    together: JudgedOnTask
    tasks: dict[str, JudgedOnTask] = Field(description="task name → result; empty with one task")


class Judged(Answer):
    """Runs of lerobot-eval, each against the first."""

    called: ClassVar[str] = "judgement of lerobot-eval's runs"

    study: Literal["evaluate results"] = "evaluate results"
    tasks: list[str]
    margin: Finite = Field(description="non-inferiority margin (loss of success rate)")
    pairing: str = Field(description="why episodes are paired, or why not, in words")
    paired: bool
    differences: list[str] = many("sentences: what else differs between the runs, and what their files do not say")
    runs: list[JudgedRun]

    @property
    def subject_name(self) -> str:
        """Name of its subject, for the run's folder."""
        return "lerobot-eval"
