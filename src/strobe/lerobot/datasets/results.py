"""What the frames of a data set say, compared with its files in ``meta/``. Plain data."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval, optional

Statistics = dict[str, list[Finite | None]]
RANGES = (("q01", "q99"), ("q10", "q90"))
APART = 0.1  # share of the spread: a mean or a spread that is this far off is of other frames
NARROW, WIDE = 1.25, 0.5  # where the measured quantiles may lie in the range of the stated ones, which is −1 to 1
SQUARED = 1e-6  # share of a squared size: LeRobot subtracts squares in float32
LEAST = 1e-4  # share of a dimension's size: a difference below it is rounding


class DataFault(Data):
    """A fault that the data set's checker has found."""

    kind: str = Field(description="'lost', 'index', 'video', …: the same for faults of one kind")
    what: str = Field(description="place and size in words")
    brief: str | None = Field(default=None, description="place and size in a few words")
    why: str | None = None
    do: str = ""
    episodes: int = Field(default=0, description="episodes with the fault; 0 if it is not one of single episodes")
    stops: bool = Field(default=True, description="whether LeRobot cannot read the frames")


class VectorTruth(Data):
    """The statistics of a vector: those in ``meta/stats.json``, and those of all frames."""

    name: str = Field(description="the data set's name of the feature")
    dimensions: list[str] = Field(description="names of the dimensions; 'number 3' if the data set has none")
    stated: Statistics = Field(default_factory=dict, description="statistic → a number for each dimension")
    measured: Statistics = Field(
        default_factory=dict, description="statistic → a number for each dimension, of all frames"
    )
    counted: int | None = Field(default=None, description="frames that stats.json counts; None if it counts none")
    outside: list[Finite] = Field(
        default_factory=list, description="share of frames beyond the stated q01 and q99, for each dimension"
    )
    farthest: list[Finite] = Field(
        default_factory=list, description="the farthest frame, where the stated q01 and q99 are −1 and 1"
    )
    still: list[bool] = Field(
        default_factory=list, description="whether a dimension only jitters: as far in one tick as in an episode"
    )

    def differing(self, other: Statistics | None = None) -> dict[str, list[int]]:
        """Return statistic → the dimensions in which it is far from the measured one.

        Args:
            other: statistics that are compared with the measured ones; by default the stated ones.
        """
        stated, found = self.stated if other is None else other, {}
        for name in ("mean", "std", "min", "max"):
            pairs = zip(stated.get(name, ()), self.measured.get(name, ()), strict=False)
            off = [at for at, (one, two) in enumerate(pairs) if one is None or self._is_apart(name, at, one, two)]
            found |= {name: off} if off else {}
        for low, high in RANGES:
            off = [at for at in range(len(stated.get(low, ()))) if self._elsewhere(stated, low, high, at)]
            found |= {low: off, high: off} if off else {}
        return found

    def _is_apart(self, name: str, at: int, one: float, two: float | None) -> bool:
        if two is None:
            return False
        measured = {key: self.measured[key][at] or 0.0 for key in ("mean", "std", "min", "max")}
        spread = measured["std"] if name in ("mean", "std") else (measured["max"] - measured["min"]) / 2
        size = max(abs(measured["min"]), abs(measured["max"]))
        if name == "std" and abs(one * one - two * two) <= SQUARED * size * size:
            return False
        return abs(one - two) > max(APART * spread, LEAST * size)

    def _elsewhere(self, stated: Statistics, low: str, high: str, at: int) -> bool:
        ends = [each.get(name) or [] for each in (stated, self.measured) for name in (low, high)]
        numbers = [end[at] if at < len(end) else None for end in ends]
        if None in numbers:
            return False
        one, two, left, right = (float(number or 0.0) for number in numbers)
        rounding = LEAST * max(abs(left), abs(right))
        if right - left <= rounding or two - one <= rounding:  # a dimension that does not move
            return max(abs(one - left), abs(two - right)) > rounding + LEAST
        places = [2 * (number - one) / (two - one) - 1 for number in (left, right)]
        return max(map(abs, places)) > NARROW or places[1] - places[0] < 2 * WIDE


class JointLag(Data):
    """Control ticks from a joint's action to its state: in a data set, and in a run of a policy."""

    joint: str
    recorded: Finite | None = optional("median of the episodes; None: it hardly moves, goes its own way, or is unknown")
    interval: Interval | None = optional("interval of it; None with fewer than six episodes")
    episodes: int = Field(default=0, description="number of episodes that show it")
    run: Finite | None = optional("lag in the run; None without one, or if it could not be seen")


class Standing(Data):
    """Frames at the starts and ends of episodes in which no joint moves."""

    start_ticks: Finite = Field(description="ticks before the first motion: median of the episodes")
    start_share: Finite = Field(description="share of all frames")
    end_ticks: Finite
    end_share: Finite


class Repeats(Data):
    """How often a vector changes while it moves."""

    name: str = Field(description="the data set's name of the feature")
    ticks: Finite = Field(description="from one new value to the next, in the mean; 1 where each tick has a new one")
    joints: int = Field(description="dimensions that move fast enough to be judged; the figure is their median")


class TaskTruth(Data):
    """A task in words, and the frames that have it."""

    text: str
    frames: int


class DataTruth(Data):
    """What was read of a data set's frames."""

    root: str
    frames: int = 0
    episodes: int = 0
    faults: list[DataFault] = Field(default_factory=list)
    vectors: list[VectorTruth] = Field(default_factory=list)
    relative: VectorTruth | None = Field(
        default=None,
        description="statistics of actions less the state of their chunk's first frame; None for other policies",
    )
    chunk: int | None = Field(default=None, description="actions of a chunk of relative actions")
    standing: Standing | None = None
    repeats: list[Repeats] = Field(
        default_factory=list, description="ticks from one new value to the next, of each vector that moves fast enough"
    )
    tasks: list[TaskTruth] = Field(default_factory=list)
    unjudged: list[str] = Field(default_factory=list, description="what was not looked at, and why")

    def vector(self, name: str) -> VectorTruth | None:
        """Return the vector that the data set calls ``name``."""
        return next((vector for vector in self.vectors if vector.name == name), None)
