"""The wiring of a policy: what policy, processors, data set and robot say of each feature; and preflight's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from strobe.contract.results import Contract
from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, many, mapping, optional
from strobe.lerobot.datasets.results import DataTruth, JointLag
from strobe.lerobot.processors import READ, Difference
from strobe.motion.results import Motion
from strobe.open_loop.results import Hypothesis, OpenLoop
from strobe.open_loop.training_log import TrainingLog


class Lag(Data):
    """How late the state follows the action, and how old frames were: in the recording, and in a run of the policy."""

    joints: list[JointLag]
    fps: Finite = Field(description="frame rate of the data set: a tick is 1 / fps seconds")
    run: str | None = optional("folder of a rollout or a rehearsal; None without one")
    run_fps: Finite | None = None
    frames_run: dict[str, Finite] = mapping("camera → age (ticks) of its frames in the run when they were read")
    observations_run: Finite | None = optional(
        "median ticks in the run from an observation to the action computed from it"
    )
    unjudged: list[str] = many("what was not judged, and why")


RangeBasis = Literal["min and max", "q01 and q99", "q10 and q90", "mean ± σ"]


def share_beyond(low: float, high: float, limit_low: float | None, limit_high: float | None) -> float:
    """Return how far a range leaves its limits, as a share of their width; 0 within them and without limits."""
    if limit_low is None or limit_high is None or limit_high <= limit_low:
        return 0.0
    return max(limit_low - low, high - limit_high, 0.0) / (limit_high - limit_low)


class JointReach(Data):
    """Ranges of one joint's action, in the robot's unit."""

    joint: str
    low: Finite | None = optional("lower end of the commands, by the postprocessor's statistics; None if it lacks them")
    high: Finite | None = None
    outer: bool = Field(
        default=False,
        description="the action is relative to the state: low and high are the action's ends plus those of the data's "
        "state, an outer bound",
    )
    limit_low: Finite | None = optional("lower limit; None without a calibration file")
    limit_high: Finite | None = None
    data_low: Finite | None = optional("lower end in the data set; None without a data set")
    data_high: Finite | None = None

    @property
    def excess_share(self) -> float:
        """How far the range leaves the limits, as a share of their width; 0 for a range that is an outer bound."""
        if self.low is None or self.high is None or self.outer:
            return 0.0
        return share_beyond(self.low, self.high, self.limit_low, self.limit_high)


class Reach(Data):
    """The range that a policy's actions have on a robot."""

    joints: list[JointReach] = Field(description="all joints, in the order of the policy's numbers")
    basis: RangeBasis | None = optional("the statistics that give the range; None if they do not")
    unit: str | None = optional("the robot's unit; None if unknown")
    calibration: str | None = optional("file that the limits are read from; None without one")
    capped: bool = Field(default=False, description="--robot.max_relative_target limits each action's step")
    unjudged: list[str] = many("what was not judged, and why")


Place = Literal["policy", "preprocessor", "postprocessor", "dataset", "robot"]
FeatureKind = Literal["state", "action", "image", "other"]


class Normalisation(Data):
    """How a processor normalises a feature, and with which statistics."""

    mode: str = Field(description="LeRobot's mode: IDENTITY, MEAN_STD, MIN_MAX, QUANTILES or QUANTILE10")
    statistics: dict[str, list[Finite | None]] = mapping(
        "statistic → a number per dimension (of an image: channel), None if it is not a number; empty if "
        "the processor has none for the feature"
    )

    @property
    def required_statistics(self) -> tuple[str, ...]:
        """The statistics that the mode reads."""
        return READ.get(self.mode, ())


MOST_SHIFT = 2.0  # σ of the data by which a mean may be off
MOST_RATIO = 3.0  # largest ratio of the two spreads, either way
FLAT = 1e-6  # share of a dimension's size: a spread below it is none


class Feature(Data):
    """A feature as one place has it."""

    name: str
    kind: FeatureKind
    shape: list[int] = Field(description="shape; for an image channels, height, width")
    dtype: str = ""
    unit: str | None = optional("unit of most dimensions; None if the place does not say")
    units: list[str] = many("unit of each dimension; empty if they are not known")
    dimensions: list[str] = many("names of the dimensions, in order; empty if there are none")
    normalisation: Normalisation | None = None


class Scale(Data):
    """How a dimension is normalised: a number less ``centre``, in units of ``half``."""

    centre: Finite
    half: Finite = Field(description="σ of MEAN_STD, else half the range")

    def is_distant(self, data: Scale, mode: str) -> bool:
        """Whether it is far from that of the data; never where the data does not move."""
        near = MOST_SHIFT * data.half if mode == "MEAN_STD" else max(self.half, data.half)
        scaled = not data.half / MOST_RATIO <= self.half <= data.half * MOST_RATIO
        moved = data.half > FLAT * max(1.0, abs(data.centre))
        return moved and (scaled or abs(self.centre - data.centre) > near)


class WiredFeature(Data):
    """One feature through all places, under the policy's name for it."""

    name: str
    kind: FeatureKind
    ends: dict[Place, Feature]
    frames: dict[str, list[Finite | None]] = mapping(
        "statistics of all frames of the data set, as the policy takes them: of relative actions if it "
        "has these; empty if the frames were not read"
    )
    relative: bool = Field(default=False, description="whether the policy takes it relative to the state")

    def foreign_dimensions(self, place: Place) -> dict[int, tuple[Scale, Scale]]:
        """Return the dimensions that ``place`` normalises in another way than the data set's statistics would.

        The numbers that its mode reads are compared with those of ``meta/stats.json`` and those of all frames: far off
        is what is far from both. Of each such dimension the first scale is the one there, the second the data set's.
        """
        own, sources = self.ends.get(place), self._sources(place)
        if own is None or own.normalisation is None or not sources:
            return {}
        mode, here = own.normalisation.mode, scales(own.normalisation.mode, own.normalisation.statistics)
        far = {}
        for at, one in enumerate(here):
            there = [source[at] if at < len(source) else None for source in sources]
            known = [each for each in there if each is not None]
            if one is not None and known and all(one.is_distant(each, mode) for each in known):
                far[at] = one, known[0]
        return far

    def other_order(self, place: Place) -> dict[int, int]:
        """Return which of the data set's dimensions each foreign one of ``place`` is like; {} if one is like none."""
        far, own, order = self.foreign_dimensions(place), self.ends.get(place), dict[int, int]()
        for at, (here, _) in far.items():
            other = min(far, key=lambda each: abs(here.centre - far[each][1].centre))
            there, mode = far[other][1], own.normalisation.mode if own is not None and own.normalisation else ""
            if not here.is_distant(there, mode) and abs(here.centre - there.centre) <= there.half:
                order[at] = other
        return order if sorted(order.values()) == sorted(far) else {}

    def missing_statistics(self, place: Place) -> str | None:
        """Return the statistics that the data set lacks, and its mode reads."""
        own = self.ends.get(place)
        read = own.normalisation.required_statistics if own is not None and own.normalisation is not None else ()
        return None if self.kind == "image" or self._sources(place) else " and ".join(read) or None

    def _sources(self, place: Place) -> list[list[Scale | None]]:
        own, data = self.ends.get(place), self.ends.get("dataset")
        if own is None or own.normalisation is None or self.kind == "image":
            return []
        stated = data.normalisation.statistics if data is not None and data.normalisation is not None else {}
        read = [scales(own.normalisation.mode, each) for each in ([] if self.relative else [stated]) + [self.frames]]
        return [each for each in read if each]


def scales(mode: str, statistics: Mapping[str, Sequence[float | None]]) -> list[Scale | None]:
    """Return how ``mode`` normalises each dimension with these statistics; [] where they lack what it reads."""
    if mode not in READ or not all(statistics.get(name) for name in READ[mode]):
        return []
    found: list[Scale | None] = []
    for one, two in zip(*(statistics[name] for name in READ[mode]), strict=False):
        if one is None or two is None:
            found.append(None)
        elif mode == "MEAN_STD":
            found.append(Scale(centre=one, half=two))
        else:
            found.append(Scale(centre=(one + two) / 2, half=(two - one) / 2))
    return found


class Weights(Data):
    """The names in the header of the weights' file, and the first numbers of each tensor."""

    tensors: int
    nan: list[str] = many("tensors with NaN among their first 1,024 numbers")
    statistics: list[str] = many("statistics inside the weights, as LeRobot before 0.4 saved them")
    compiled: list[str] = many("names that torch.compile has changed")
    missing: list[str] | None = optional("weights of the policy that the file lacks; None if not compared")
    unexpected: list[str] | None = optional("weights in the file that the policy lacks, statistics excluded")
    reshaped: list[str] = many("weights with another shape in the file")


class SavedTraining(Data):
    """The training that saved a checkpoint, as the files next to it and a log tell it."""

    step: int | None = optional("its steps; None without a training_state folder")
    planned: int | None = None
    batch_size: int | None = optional("samples per step of one process")
    processes: int | None = optional("None: a LeRobot that does not write it")
    frames: int | None = optional("frames of the data set that was given; None without one")
    precision: dict[str, str] = mapping("setting of the policy → the precision that it asks for")
    learning_rates: list[Finite] = many("of each group of the optimizer, for the next step")
    transforms: list[str] | None = optional("image transforms in use; None: no file says it")
    trained: int | None = optional("tensors that the optimizer holds; None if its state was not read")
    stepped: int = Field(default=0, description="those of them that it has a state of: they had a gradient")
    log: TrainingLog | None = None


class Camera(Data):
    """The part of a camera's image that the policy sees."""

    name: str = Field(description="the policy's name for the image")
    source: str = Field(description="name of the camera that provides the image")
    height: int = Field(description="height of the image that arrives, in pixels")
    width: int
    resized: tuple[int, int] | None = optional("(height, width) before cropping")
    cropped: tuple[int, int] | None = optional("(height, width) that the policy sees")
    seen_share: Finite = Field(description="share of the image's area that the policy sees, 0 to 1")


class CallTime(Data):
    """The time of a call of the policy, from an observation to its chunk of actions."""

    ms: Finite = Field(description="median of the calls after the first")
    run: str | None = optional("folder of the run; None for calls on recorded frames on this machine")
    fps: Finite | None = optional("rate of that run's loop (Hz)")
    engine: Literal["sync", "rtc"] | None = optional("inference engine of that run")


class Timing(Data):
    """Lengths in control ticks, and rates in Hz."""

    chunk: int | None = optional("actions per chunk")
    executed: int | None = optional("actions per chunk executed before the next chunk")
    most_executed: int | None = optional("most actions that the horizon of a policy with several observations allows")
    observed: int = Field(default=1, description="number of observations that the policy looks at")
    execution_horizon: int | None = optional("execution horizon of RTC")
    data_fps: Finite | None = None
    loop_fps: Finite | None = None
    camera_fps: dict[str, Finite] = mapping("frame rates of the robot's cameras")
    averages: Finite | None = optional("temporal_ensemble_coeff, by which the policy averages its chunks")
    steps: int | None = optional("denoising steps per chunk; None if the config has none")
    steps_field: str | None = optional("name of the config field with the denoising steps")
    call: CallTime | None = optional("measured calls; None if there are none")


class CutPrompt(Data):
    """A prompt that is longer than the tokenizer lets through."""

    text: str = Field(description="text that the tokenizer gets, with additions of earlier steps")
    task: str
    tokens: int
    cut: str = Field(description="end of the text that the policy never sees")
    always: bool = Field(default=True, description="False: cut only for some states, whose numbers are in the text")


class Prompt(Data):
    """The words that the policy is given."""

    reads_words: bool
    given: str | None = optional("task given to the loop; None without a loop")
    tasks: list[str] = many("tasks of the data set")
    most_tokens: int | None = optional("the tokenizer's max_length; None if it has none")
    cut: list[CutPrompt] | None = optional("cut prompts; None if the tokens were not counted")
    uncounted: str | None = optional("why the tokens were not counted, in words")


class FedJoint(Data):
    """A joint's positions in a run, and its range in the training data, in the robot's unit."""

    joint: str
    low: Finite = Field(description="least position of the training data, by the policy's statistics")
    high: Finite
    first: Finite = Field(description="position in the first observation")
    normalised: Finite = Field(description="what the policy is given for that: σ of MEAN_STD, else half ranges")
    beyond: Finite = Field(description="how far that is outside of the range, normalised too; 0 inside")
    outside: Finite = Field(description="share of the ticks in which it is outside")


class FedImage(Data):
    """An image of a run's first observation as the policy is given it, and the training's. Red, green, blue."""

    name: str = Field(description="the policy's name for the image")
    camera: str = Field(description="the robot's name for the camera")
    mean: list[Finite] = Field(description="mean of each channel, 0 to 1 where LeRobot is given bytes")
    spread: list[Finite] = Field(description="standard deviation of each channel")
    trained_mean: list[Finite] = many("means of the training's images, by the statistics; empty if there are none")
    trained_spread: list[Finite] = many("standard deviations of those images")
    unjudged: str | None = optional("why it was not compared with the training's images; None if it was")
    pattern: bool = Field(default=False, description="the test pattern of a rehearsal, which is not judged at all")


class OnFrames(Data):
    """A policy's actions on recorded frames, in the answer of a command that ran it for something else."""

    open_loop: OpenLoop
    hypotheses: list[Hypothesis] = many("hypotheses on the wiring, as in a preflight")


class Wiring(Data):
    """A policy's wiring as it was read. Nothing was run."""

    policy: str = Field(description="LeRobot's type of the policy")
    sources: dict[Place, str] = Field(description="file or folder behind each place")
    wires: list[WiredFeature]
    order: list[str] = many("names of the action's dimensions in the policy's training")
    engine: Literal["sync", "rtc"] | None = optional("inference engine; None without a rollout")
    rename: dict[str, str] = mapping("name in the inputs → name that the policy knows")
    weights: Weights | None = None
    training: SavedTraining | None = optional("None without a train_config.json and a log")
    cameras: list[Camera] = Field(default_factory=list)
    empty_cameras: list[str] = many("images of the policy that LeRobot fills in itself (empty_cameras)")
    timing: Timing = Field(default_factory=Timing)
    prompt: Prompt | None = None
    unknown_fields: list[str] = many("fields of the policy's config that the installed LeRobot does not know")
    device: str | None = optional("not written any more")
    device_here: object = optional("not written any more")
    clips: Finite | None = optional("largest normalised action that the policy can give: clip_sample, a clamp, a tanh")
    guidable: bool = Field(default=False, description="Real-Time Chunking may guide this type of policy")
    compiled: bool = Field(default=False, description="the config compiles the policy")
    rollout_compiles: bool | None = optional("the rollout compiles; None without a rollout")
    orphans: dict[Place, list[str]] = mapping("names with statistics in a processor but without a feature")
    unread: list[str] = many("what could not be read, and why")
    differences: list[Difference] = many("how the processors differ from what config.json asks for")
    normalises: bool = Field(default=True, description="False where its processors have a normaliser of another kind")
    reach: Reach | None = optional("range of the actions; None if the statistics do not give it")
    lag: Lag | None = optional("lags of the recording and of a run; None if they were not looked at")
    fed: list[FedJoint] | None = optional(
        "positions that a run gave the policy; None without a run, or if they are not known"
    )
    fed_images: list[FedImage] | None = optional(
        "images of a run's first observation; None without a run or without images"
    )
    truth: DataTruth | None = optional("what the data set's frames say; None if they were not read")
    motion: Motion | None = optional("what the motion of the data set shows; None if it was not looked at")
    on_frames: OnFrames | None = optional("with --dataset.root of evaluate and rehearse; not of a preflight")

    def wire(self, name: str) -> WiredFeature | None:
        """Return the wire called ``name``."""
        return next((wire for wire in self.wires if wire.name == name), None)

    def absolute_where_relative(self, wire: WiredFeature, place: Place) -> bool:
        """Whether ``place`` has statistics of absolute actions for a policy with relative ones (lerobot #4700)."""
        own, data, truth = wire.ends.get(place), wire.ends.get("dataset"), self.truth
        if not wire.relative or own is None or own.normalisation is None or data is None or truth is None:
            return False
        absolute, norm = truth.vector(data.name), own.normalisation
        read = set(norm.required_statistics)
        if absolute is None or truth.relative is None or not all(norm.statistics.get(name) for name in read):
            return False
        off, here = truth.relative.differing(norm.statistics), absolute.differing(norm.statistics)
        return bool(read & set(off)) and not read & set(here)

    def select_wires(self, kind: FeatureKind) -> list[WiredFeature]:
        """Return the wires of a kind."""
        return [wire for wire in self.wires if wire.kind == kind]


class PreflightResult(Answer):
    """A policy's wiring as it was read, and its actions on recorded frames."""

    called: ClassVar[str] = "preflight"

    study: Literal["preflight"] = "preflight"
    wiring: Wiring
    refused: str | None = optional("the command that was not started, because of the findings")
    fixed: list[str] = many("repairs in a copy of the checkpoint")
    unfixed: str | None = optional("why a fixed copy was not written, in words")
    contract: Contract | None = optional("a simulator compared with the data set; None without a simulator")
    open_loop: OpenLoop | None = optional("errors of its actions on recorded frames; None if only files were read")
    hypotheses: list[Hypothesis] = many("hypotheses on the wiring: the claimed one first, then by increasing error")

    @property
    def serious(self) -> int:
        """The number of findings with which the robot does something else than it was taught."""
        return sum(finding.level == "warning" for finding in self.findings)
