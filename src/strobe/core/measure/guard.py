"""The guard: the limits on how far a treatment may change the actions of the baseline.

The limits depend on the treatment's effect. An *exact* one may change the actions by floating-point noise: as much as
sums in another order change those of the baseline, which is measured in the same run. A *rounding* one must stay within
`ROUNDING`, a *lossy* one within the user's limits, or within `ROUNDING` if there are none.

A limit is held, broken, or not judged. It is not judged if its metric was not measured; such a limit passes no gate.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from strobe.core.errors import UserError, nearest
from strobe.core.results.agreement import Agreement, Check, Effect, Outcome, Yardstick
from strobe.core.results.comparison import Comparison

Of = Literal["actions", "features", "outputs"]

# How they were chosen: docs/benchmarks.md, `benchmarks/guard_constants.py`.
ROUNDING = "rms<=0.02, worst<=0.2, flips<=0"
OF_FEATURES = "cosine>=0.999, rms<=0.1, token<=0.2"  # guard of a backbone: σ is each channel's own spread
# Of an object in Python: as for actions, without flips, because its on/off outputs are unknown. σ: a column's spread.
OF_OUTPUTS = "rms<=0.02, worst<=0.2"
_USUAL: dict[Of, str] = {"actions": ROUNDING, "features": OF_FEATURES, "outputs": OF_OUTPUTS}
EXACT = "exact"
BY_EFFECT = f"exact: within floating-point noise (sums in another order); else {ROUNDING}"
# How far an exact treatment may differ, as a multiple of floating-point noise. Two ways of summing differ from each
# other by more than one way from itself, and both figures come from a few observations.
MARGIN = 10.0
# σ below which float32 cannot resolve an error: rounding of the result, whose mean may be many times its spread.
LEAST = 1e-5
# The same for an export in float32. Engines differ by more than the order of sums: sound exports change the actions by
# up to 2e-5 σ, and faults that must be found by 1e-3 (`benchmarks/sameness.py`).
LEAST_OF_ENGINES = 2e-4

HOW = "write FIGURE>=LIMIT or FIGURE<=LIMIT, such as rms<=0.02, worst<=0.2 or cosine>=0.999, separated by commas"
BLIND = (
    "a cosine over all action numbers cannot see an inverted gripper, a joint that is always 3° off, or a policy that "
    "returns its mean action: guard by rms, worst and flips instead"
)
EPISODES = "only paired episodes show success_drop, and none were played (strobe optimize --eval.n_episodes plays them)"
NO_YARDSTICK = (
    "an exact treatment is compared with floating-point noise (sums in another order), which was not measured"
)
NOTHING_DECIDES = "no action of this policy is on or off, so flips cannot be checked: guard by rms and worst too"
EXECUTION = (
    "the robot executes another number of actions per chunk, which chunks cannot judge: play episodes (strobe evaluate)"
)
NO_SPREAD = "no spread (σ) of these outputs is known: guard them by cosine, largest_error or mean_error"
DROP = "success_drop"


WITHIN_0_AND_1 = (sys.float_info.min, 1 - sys.float_info.epsilon)  # neither 0 nor 1


class Metric(NamedTuple):
    """A figure that can be limited: a field of `Agreement`, or the loss of success in paired episodes.

    Args:
        shown: its name on the screen.
        unit: as written after its values and limits. σ: the spread of an action dimension, or of a channel of features.
        allowed: the side of the limit that is allowed.
        limits: the least limit and the greatest, and in words which make sense.
    """

    shown: str
    unit: str = ""
    allowed: Literal["<=", ">="] = "<="
    limits: tuple[float, float, str] = (0, sys.float_info.max, "an error is 0 or more")

    def keeps(self, value: float, limit: float) -> bool:
        """Return whether ``value`` is on the allowed side of ``limit``."""
        return value >= limit if self.allowed == ">=" else value <= limit


METRICS = {
    "rms": Metric("RMS", " σ"),
    "worst": Metric("max error", " σ"),
    "p99": Metric("p99", " σ"),
    "flips": Metric("flips", limits=(0, 1, "a share of flipped decisions lies between 0 and 1")),
    "token": Metric("worst token", " σ"),
    "cosine": Metric("cosine", allowed=">=", limits=(-1, 1, "a cosine lies between -1 and 1")),
    "largest_error": Metric("largest error"),
    "mean_error": Metric("mean error"),
    DROP: Metric("success drop", limits=(*WITHIN_0_AND_1, "a drop of the success rate lies between 0 and 1")),
}
# Metrics that actions, features, or outputs never have → why, and what to guard by.
_NEVER_MEASURED: dict[Of, dict[str, str]] = {
    "actions": {"token": "token is a figure of a backbone's features: guard actions by rms, worst and flips"},
    "features": {
        "flips": "flips are of on/off actions, and a backbone has features: guard it by rms, token and cosine",
        DROP: "success_drop is of a policy's episodes, and a backbone plays none: guard it by rms, token and cosine",
    },
    "outputs": dict.fromkeys(
        ("flips", "token", DROP),
        "these outputs may be no actions: guard them by cosine, largest_error or mean_error",
    ),
}


@dataclass(frozen=True)
class Judgement:
    """Whether actions stay within a guard.

    Args:
        words: the broken limit, or the missing metrics and the flag that gives them; None if all limits hold.
    """

    outcome: Outcome
    words: str | None = None

    @property
    def broken_limit(self) -> str | None:
        """The broken limit, in words."""
        return self.words if self.outcome == "broken" else None

    @property
    def missing_figures(self) -> str | None:
        """The missing figures and the flag that gives them, in words."""
        return self.words if self.outcome == "not judged" else None


HELD = Judgement("held")
_WORST_FIRST: tuple[Outcome, ...] = ("broken", "not judged", "held")


@dataclass(frozen=True)
class Guard:
    """Limits that all hold at once.

    Args:
        limits: name in `METRICS` → limit, in the metric's unit.
        exact: whether the actions must agree as well as reordered sums do.
        least: σ that an exact treatment may always differ by.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    exact: bool = False
    least: float = LEAST

    @classmethod
    def parse(cls, text: str) -> Guard:
        """``'rms<=0.02, worst<=0.2'``, or with 'and' for the comma, or ``'exact'`` among them. Raises UserError."""
        limits: dict[str, float] = {}
        parts = list(filter(None, (piece.strip() for piece in re.split(r",|\band\b", text))))
        for part in parts:
            if part == EXACT:
                continue
            match = re.fullmatch(r"([A-Za-z_0-9-]+)\s*(>=|<=|=>|=<|==|=|<|>)\s*(.*)", part)
            if match is None:
                raise UserError(f"'{part}': {HOW}")
            name, sign, written = match[1].replace("-", "_"), match[2], match[3]
            if name not in METRICS:
                raise UserError(f"'{part}': no figure '{name}': {nearest(name, METRICS)}")
            if sign != METRICS[name].allowed:
                raise UserError(f"'{part}': {name} is guarded by {METRICS[name].allowed}")
            if name in limits:
                raise UserError(f"'{text}': {name} is given twice")
            limits[name] = _read_limit(name, written, part)
        if not parts:
            raise UserError(f"'{text}': {HOW}")
        return cls(limits, EXACT in parts)

    def __str__(self) -> str:
        limits = [f"{name}{METRICS[name].allowed}{limit:.12g}" for name, limit in self.limits.items()]
        return ", ".join([*([EXACT] if self.exact else []), *limits])

    def judge(self, agreement: Agreement, reordered: Yardstick | None = None) -> Judgement:
        """Return whether all limits hold: else the first one that is broken, else the first that was not judged.

        A limit on errors in σ holds for the executed actions by themselves as well as for the whole chunk.

        Args:
            reordered: the yardstick that an exact guard measures by. Without it an exact treatment is broken where it
                is beyond the limits of rounding, and not judged where it is within them.
        """
        if agreement.not_finite:  # errors are taken over what is finite, and would vouch for the rest
            are = "number is" if agreement.not_finite == 1 else "numbers are"
            return Judgement("broken", f"{agreement.not_finite:,} {are} infinite or not a number")
        if agreement.short and self.has_action_limits:  # figures of so few calls may be far from those of all
            return Judgement("not judged", agreement.unjudged)
        judgements = [_judge_exactness(agreement, reordered, self.least)] if self.exact else []
        judgements += [_judge_limit(name, limit, agreement, reordered) for name, limit in self.limits.items()]
        if set(self.limits) == {"flips"} and not self.exact and _lacks_decisions(agreement):
            judgements.append(Judgement("not judged", NOTHING_DECIDES))
        for reason in (EXECUTION if agreement.changes_execution else None, agreement.unjudged):
            if reason and self.has_action_limits:
                judgements.append(Judgement("not judged", reason))
        return min(judgements, key=lambda judgement: _WORST_FIRST.index(judgement.outcome), default=HELD)

    def scale(self, share: float) -> Guard:
        """Return the guard with ``share`` times the error that each limit allows."""
        free = {name: 1.0 if METRICS[name].allowed == ">=" else 0.0 for name in self.limits}  # of errors
        limits = {name: free[name] + share * (each - free[name]) for name, each in self.limits.items()}
        return replace(self, limits=limits)

    def require_figures(self, of: Of) -> None:
        """Raises UserError for a limit on a metric that actions, features or outputs never have."""
        for name in self.limits:
            if name in _NEVER_MEASURED[of]:
                raise UserError(f"{self}: {_NEVER_MEASURED[of][name]}")

    @property
    def action_guard(self) -> Guard:
        """The same limits without the one on episodes, for those who play the episodes besides."""
        return replace(self, limits={name: limit for name, limit in self.limits.items() if name != DROP})

    @property
    def has_action_limits(self) -> bool:
        """Whether any limit is one on the actions themselves."""
        return self.exact or any(name != DROP for name in self.limits)

    @property
    def blind_spots(self) -> str | None:
        """Faults that such a guard of actions cannot see, in words; None if it checks each dimension."""
        return BLIND if set(self.limits) - {DROP} == {"cosine"} and not self.exact else None

    @property
    def success_drop(self) -> float | None:
        """The loss of success rate that paired episodes must exclude, 0 to 1; None if it does not matter."""
        return self.limits.get(DROP)


def record_judgement(judged: Check | Comparison, guard: Guard, reordered: Yardstick | None = None) -> None:
    """Write into ``judged`` how ``guard`` judges its agreement; nothing where it has none."""
    if judged.agreement is not None:
        judgement = guard.judge(judged.agreement, reordered)
        judged.broken, judged.unjudged = judgement.broken_limit, judgement.missing_figures


@dataclass(frozen=True)
class Guards:
    """The guard of each effect.

    Args:
        requested: the user's own limits; None for those that are usual.
        kind: of what the subject returns: actions of a policy, features of a backbone, outputs of an object in Python.
        least: σ that an exact treatment may always differ by.
    """

    requested: Guard | None = None
    kind: Of = "actions"
    least: float = LEAST

    @classmethod
    def parse(cls, text: str) -> Guards:
        """Read ``--guard``; an empty text for the usual limits. Raises UserError."""
        return cls(Guard.parse(text) if text.strip() else None)

    @classmethod
    def from_flag(cls, text: str, of: Of, plays: str) -> Guards:
        """Read the ``--guard`` of a command that plays no episodes, on what returns ``of``.

        Args:
            plays: the command that plays the episodes which a limit on success needs.

        Raises:
            UserError: no guard, or one on a figure that is never there.
        """
        try:
            guards = cls.parse(text)
            if guards.requested is not None:
                guards.requested.require_figures(of)
        except UserError as error:
            raise UserError(f"--guard={error}") from None
        if guards.success_drop is not None:
            raise UserError(f"--guard={text}: success_drop needs episodes: {plays} plays them")
        return guards

    def strictest_guard(self, effects: Sequence[Effect]) -> Guard:
        """Return the guard for treatments of these effects together: the one that changes most decides."""
        if strongest(effects) == "exact":
            return Guard(self.requested.limits if self.requested is not None else {}, exact=True, least=self.least)
        return self.requested or Guard.parse(_USUAL[self.kind])

    @property
    def success_drop(self) -> float | None:
        """The loss of success rate that paired episodes must exclude, 0 to 1; None if it does not matter."""
        return self.requested.success_drop if self.requested is not None else None

    def __str__(self) -> str:
        return str(self.requested or BY_EFFECT.replace(ROUNDING, _USUAL[self.kind]))


def strongest(effects: Sequence[Effect]) -> Effect:
    """Return the one that may change the actions most; exact where there is none."""
    return "lossy" if "lossy" in effects else "rounding" if "rounding" in effects else "exact"


def _read_limit(name: str, written: str, part: str) -> float:
    """Read a limit with or without its unit. Raises UserError, with ``part`` of the guard in its line."""
    try:
        limit = float(written.removesuffix("σ"))
    except ValueError:
        raise UserError(f"'{part}': '{written}' is not a number") from None
    least, greatest, rule = METRICS[name].limits
    if not least <= limit <= greatest:
        raise UserError(f"'{part}': {rule}")
    return limit


def _judge_limit(name: str, limit: float, agreement: Agreement, reordered: Yardstick | None) -> Judgement:
    if name == DROP:
        return Judgement("not judged", EPISODES)
    metric = METRICS[name]
    whole: float | None = getattr(agreement, name)
    executed: float | None = getattr(agreement, f"executed_{name}", None)
    if whole is None:
        if name == "flips" and _lacks_decisions(agreement):
            return HELD
        return Judgement("not judged", _explain_missing(name, agreement))
    part = f"executed part of the chunk ({agreement.executed} of {agreement.predicted} actions)"
    executed_keeps = executed is None or metric.keeps(executed, limit)
    if not metric.keeps(whole, limit):
        words = _describe_broken_limit(name, whole, limit, agreement)
        if executed is not None and executed_keeps and agreement.executed != agreement.predicted:
            words += f"; the {part} stays within it"
    elif executed is not None and not executed_keeps:
        words = f"{_describe_broken_limit(name, executed, limit, agreement)}, in the {part}"
    else:
        return HELD
    noise = {"rms": reordered.rms, "worst": reordered.worst}.get(name, 0.0) if reordered is not None else 0.0
    return Judgement("broken", f"{words} (floating-point noise alone: {noise:.2g} σ)" if noise > limit else words)


def _judge_exactness(agreement: Agreement, reordered: Yardstick | None, least: float) -> Judgement:
    """Judge an exact treatment by `MARGIN` times what reordered sums do, and never by more than rounding may do."""
    if not agreement.largest_error and not agreement.unjudged:  # the same to the bit, which needs no yardstick
        return HELD
    if agreement.rms is None or agreement.worst is None:
        return Judgement("not judged", agreement.unjudged or f"the spread of the {agreement.of} is not known")
    usual = Guard.parse(_USUAL[agreement.of])
    as_rounding = usual.judge(agreement)
    if reordered is None:
        return Judgement("not judged", NO_YARDSTICK) if as_rounding == HELD else as_rounding
    rms, worst = usual.limits["rms"], usual.limits.get("worst", math.inf)  # features have none on the largest error
    # A policy that takes the largest of many scores (FAST tokens, codebooks) jumps from one action to another.
    jumps = reordered.rms > rms or reordered.worst > worst
    if jumps and agreement.rms <= MARGIN * reordered.rms:
        return Judgement(
            "not judged",
            f"floating-point noise alone changes the {agreement.of} by {reordered.rms:.2g} σ RMS, at most "
            f"{reordered.worst:.2g} σ, more than rounding may: they cannot show whether a treatment is exact. Compare "
            "the policy's tokens, or play paired episodes (strobe evaluate)",
        )
    for name, value, noise, most in (
        ("rms", agreement.rms, reordered.rms, rms),
        ("worst", agreement.worst, reordered.worst, worst),
    ):
        if value > min(max(MARGIN * noise, least), max(most, noise)):
            shown = METRICS[name].shown
            return Judgement("broken", f"{shown} {value:.2g} σ, floating-point noise {noise:.2g} σ: it is not exact")
    return as_rounding


def _lacks_decisions(agreement: Agreement) -> bool:
    return agreement.flips is None and agreement.of == "actions" and agreement.rms is not None


def _explain_missing(name: str, agreement: Agreement) -> str:
    in_spread = METRICS[name].unit == " σ"
    if agreement.unjudged:
        return agreement.unjudged
    if name in _NEVER_MEASURED[agreement.of]:
        return _NEVER_MEASURED[agreement.of][name]
    if agreement.of == "outputs" and in_spread:
        return NO_SPREAD
    if agreement.of == "features" and in_spread:
        return f"{name} was not measured: features of another size, or of few tokens, can be guarded by cosine alone"
    return f"{name} was not measured: the spread of the {agreement.of} is not known"


def _describe_broken_limit(name: str, value: float, limit: float, agreement: Agreement) -> str:
    metric = METRICS[name]
    where = f" in {agreement.worst_dimension}" if name == "worst" and agreement.worst_dimension else ""
    shown = f"{metric.shown} {format_distinct(value, limit)}{metric.unit}{where}"
    return f"{shown}, limit {limit:.12g}{metric.unit}"


def format_distinct(value: float, limit: float) -> str:
    """Return ``value`` with as many figures, two or more, as show on which side of ``limit`` it is."""
    for figures in range(2, 17):
        shown = f"{value:.{figures}g}"
        if (float(shown) > limit, float(shown) < limit) == (value > limit, value < limit):
            return shown
    return repr(value)
