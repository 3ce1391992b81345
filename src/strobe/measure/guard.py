"""The guard: how far a policy may move from the untouched one.

What a treatment does to the actions decides what is demanded of it. *exact* ones must agree as well as the untouched
policy does with itself where its sums are taken in another order, which is measured in the same run. *rounding* ones
must stay within `ROUNDING`, *lossy* ones within what the user says; where nothing is said, within `ROUNDING` too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from strobe.errors import UserError, nearest
from strobe.measure.planning import fewest_pairs
from strobe.results.agreement import Agreement, Effect, Yardstick
from strobe.results.episodes import PairedEpisodes

# How they were chosen: docs/benchmarks.md, `benchmarks/guard_constants.py`.
ROUNDING = "rms<=0.02, worst<=0.2, flips<=0"
OF_FEATURES = "cosine>=0.999"  # of a backbone, whose features have no spread of actions
EXACT = "exact"
BY_EFFECT = f"exact: as close as reordered sums are; else {ROUNDING}"
DROP = "success_drop"
# Figure of an agreement, or of paired episodes, → which side of its limit is allowed.
FIGURES = {
    "rms": "<=", "worst": "<=", "p99": "<=", "flips": "<=",
    "cosine": ">=", "largest_error": "<=", "mean_error": "<=", DROP: "<=",
}  # fmt: skip
UNITS = {"rms": " σ", "worst": " σ", "p99": " σ"}
HOW = "write FIGURE>=LIMIT or FIGURE<=LIMIT, such as rms<=0.02, worst<=0.2 or cosine>=0.999, separated by commas"
BLIND = (
    "a cosine over all action numbers cannot see an inverted gripper, a joint that is always 3° off, or a policy that "
    "returns its mean action: guard by rms, worst and flips instead"
)
# What an exact treatment may differ by, as a multiple of what reordered sums do. Two ways of summing differ from each
# other by more than one way from itself, and both figures are those of a few observations.
MARGIN = 10.0
# σ that no sum of float32 can tell from 0: rounding of the result itself, whose mean may be many times its spread.
LEAST = 1e-5


@dataclass(frozen=True)
class Guard:
    """Limits that all hold at once.

    Args:
        limits: figure → limit. `rms`, `worst` and `p99` are in σ, the spread of an action dimension; `flips` is a share
            of decisions, 0 to 1; `largest_error` and `mean_error` are in the action's own units; `success_drop` is of
            the success rate, 0 to 1.
        exact: whether the actions must agree as well as reordered sums do.
    """

    limits: tuple[tuple[str, float], ...]
    exact: bool = False

    @classmethod
    def parse(cls, text: str) -> Guard:
        """``'rms<=0.02, worst<=0.2'``, or with 'and' for the comma, or ``'exact'`` among them. Raises UserError."""
        limits: dict[str, float] = {}
        exact = False
        for part in filter(None, (one.strip() for one in re.split(r",|\band\b", text))):
            if part == EXACT:
                exact = True
                continue
            found = re.fullmatch(r"([A-Za-z_0-9-]+)\s*(>=|<=|=>|=<|==|=|<|>)\s*(.*)", part)
            if found is None:
                raise UserError(f"'{part}': {HOW}")
            name, sign, raw = found[1].replace("-", "_"), found[2], found[3]
            if name not in FIGURES:
                raise UserError(f"'{part}': no figure '{name}': {nearest(name, FIGURES)}")
            if sign != FIGURES[name]:
                raise UserError(f"'{part}': {name} is guarded by {FIGURES[name]}")
            if name in limits:
                raise UserError(f"'{text}': {name} is there twice")
            limits[name] = _limit(name, raw, part)
        if not limits and not exact:
            raise UserError(f"'{text}': {HOW}")
        return cls(tuple(limits.items()), exact)

    def __str__(self) -> str:
        said = [f"{name}{FIGURES[name]}{limit:.12g}" for name, limit in self.limits]
        return ", ".join([*([EXACT] if self.exact else []), *said])

    def holds(self, agreement: Agreement, reordered: Yardstick | None = None) -> bool:
        """Return whether all limits are kept; see `broken`."""
        return not self.broken(agreement, reordered)

    def broken(self, agreement: Agreement, reordered: Yardstick | None = None) -> str:
        """Return the limit that is broken, in words; '' where all hold.

        Args:
            reordered: the yardstick that an exact guard measures by. Without it, the limits alone are held.
        """
        if agreement.not_finite:  # errors are taken over what is finite, and would vouch for the rest
            return f"{agreement.not_finite:,} numbers are infinite or not a number"
        if self.exact and reordered is not None and (found := _inexact(agreement, reordered)):
            return found
        for name, limit in self.limits:
            value = None if name == DROP else getattr(agreement, name)
            if value is None:
                continue
            if not (value >= limit if FIGURES[name] == ">=" else value <= limit):
                return _broken(name, float(value), limit, agreement)
        return ""

    @property
    def on_actions(self) -> bool:
        """Whether any limit is one on the actions themselves."""
        return self.exact or any(name != DROP for name, _ in self.limits)

    @property
    def blind(self) -> str:
        """Faults that such a guard cannot see, in words; '' where it looks at each dimension."""
        named = {name for name, _ in self.limits} - {DROP}
        return BLIND if named == {"cosine"} and not self.exact else ""

    @property
    def success_drop(self) -> float | None:
        """The loss of success rate that paired episodes must exclude, 0 to 1; None where it does not matter."""
        return dict(self.limits).get(DROP)

    def lost(self, episodes: PairedEpisodes) -> str:
        """Return why paired episodes refuse the candidate, in words; '' where they do not.

        They do where they show that it does worse; and with a limit on `success_drop`, where they do not exclude a
        larger loss, that is where the far end of the interval is beyond the limit.
        """
        if episodes.kind == "worse":
            return f"it does worse in {episodes.environment}"
        limit, drop = self.success_drop, episodes.possible_drop
        if limit is None or drop <= limit:
            return ""
        shown = f"success drop {_apart(drop, limit)} > {limit:g} is not excluded by {len(episodes.pairs)} pairs"
        enough = fewest_pairs(limit, episodes.success_interval.level)
        return shown if len(episodes.pairs) >= enough else f"{shown}, which takes {enough} or more"


@dataclass(frozen=True)
class Guards:
    """The guard of each effect.

    Args:
        said: the user's own limits; None for those that are usual.
        of_features: whether the subject is a backbone, whose outputs are features and not actions.
    """

    said: Guard | None = None
    of_features: bool = False

    @classmethod
    def parse(cls, text: str) -> Guards:
        """Read ``--guard``; '' for the usual limits. Raises UserError."""
        return cls(Guard.parse(text) if text.strip() else None)

    def of(self, effects: Sequence[Effect]) -> Guard:
        """Return the guard for treatments of these effects together: the one that changes most decides."""
        if self.of_features:
            return self.said or Guard.parse(OF_FEATURES)
        exact = strongest(effects) == "exact"
        said = self.said if self.said is not None and self.said.limits else None
        if exact:
            return Guard(said.limits if said else (), exact=True)
        if self.said is not None and (self.said.on_actions or self.said.success_drop is not None):
            return self.said
        return Guard.parse(ROUNDING)

    @property
    def success_drop(self) -> float | None:
        """The loss of success rate that paired episodes must exclude, 0 to 1; None where it does not matter."""
        return self.said.success_drop if self.said is not None else None

    def lost(self, episodes: PairedEpisodes) -> str:
        """Return why paired episodes refuse the candidate, in words; see `Guard.lost`."""
        return (self.said or Guard(())).lost(episodes)

    def __str__(self) -> str:
        if self.said is not None:
            return str(self.said)
        return OF_FEATURES if self.of_features else BY_EFFECT


def strongest(effects: Sequence[Effect]) -> Effect:
    """Return the one that may change the actions most; exact where there is none."""
    return "lossy" if "lossy" in effects else "rounding" if "rounding" in effects else "exact"


def allowed(reordered: Yardstick) -> tuple[float, float]:
    """Return the RMS and the largest error, σ, that an exact treatment may show beside this yardstick."""
    return max(MARGIN * reordered.rms, LEAST), max(MARGIN * reordered.worst, LEAST)


def _inexact(agreement: Agreement, reordered: Yardstick) -> str:
    rms, worst = allowed(reordered)
    if agreement.rms is None or agreement.worst is None:
        return ""
    if agreement.rms > rms:
        return f"rms {agreement.rms:.2g} σ, and reordered sums differ by {reordered.rms:.2g} σ: it is not exact"
    if agreement.worst > worst:
        return f"worst {agreement.worst:.2g} σ, and reordered sums differ by {reordered.worst:.2g} σ: it is not exact"
    return ""


def _broken(name: str, value: float, limit: float, agreement: Agreement) -> str:
    unit = UNITS.get(name, "")
    sign = "<" if FIGURES[name] == ">=" else ">"
    where = f" in {agreement.worst_dimension}" if name == "worst" and agreement.worst_dimension else ""
    return f"{name.replace('_', ' ')} {_apart(value, limit)}{unit} {sign} {limit:.12g}{unit}{where}"


def _limit(name: str, raw: str, part: str) -> float:
    try:
        value = float(raw.removesuffix("σ"))
    except ValueError:
        raise UserError(f"'{part}': '{raw}' is not a number") from None
    if name == "cosine" and not -1 <= value <= 1:
        raise UserError(f"'{part}': a cosine lies between -1 and 1")
    if name == DROP and not 0 < value < 1:
        raise UserError(f"'{part}': a drop of the success rate lies between 0 and 1")
    if name == "flips" and not 0 <= value <= 1:
        raise UserError(f"'{part}': a share of flipped decisions lies between 0 and 1")
    if name != "cosine" and not 0 <= value < float("inf"):
        raise UserError(f"'{part}': an error is 0 or more")
    return value


def _apart(value: float, limit: float) -> str:
    """``value`` with as many figures as it takes to see that it is not ``limit``."""
    for figures in range(4, 17):
        if float(f"{value:.{figures}g}") != limit:
            return f"{value:.{figures}g}"
    return repr(value)
