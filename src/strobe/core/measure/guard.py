"""The guard: the limits on how far a treatment may change the actions of the baseline.

The limits depend on the treatment's effect. An *exact* one may change the actions by floating-point noise: as much as
sums in another order change those of the baseline, which is measured in the same run. A *rounding* one must stay within
`ROUNDING`, a *lossy* one within the user's limits, or within `ROUNDING` if there are none.

A limit is held, broken, or not judged. It is not judged if its figure was not measured; such a limit passes no gate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from strobe.core.errors import UserError, nearest
from strobe.core.results.agreement import Agreement, Check, Effect, Outcome, Yardstick
from strobe.core.results.comparison import Comparison

# How they were chosen: docs/benchmarks.md, `benchmarks/guard_constants.py`.
ROUNDING = "rms<=0.02, worst<=0.2, flips<=0"
OF_FEATURES = "cosine>=0.999, rms<=0.1, token<=0.2"  # guard of a backbone: σ is each channel's own spread
# Of an object in Python: as for actions, without flips, because its on/off outputs are unknown. σ: a column's spread.
OF_OUTPUTS = "rms<=0.02, worst<=0.2"
EXACT = "exact"
Of = Literal["actions", "features", "outputs"]
_USUAL: dict[Of, str] = {"actions": ROUNDING, "features": OF_FEATURES, "outputs": OF_OUTPUTS}
BY_EFFECT = f"exact: within floating-point noise (sums in another order); else {ROUNDING}"
DROP = "success_drop"
# Figure of an agreement, or of paired episodes, → which side of its limit is allowed.
FIGURES = {
    "rms": "<=", "worst": "<=", "p99": "<=", "flips": "<=", "token": "<=",
    "cosine": ">=", "largest_error": "<=", "mean_error": "<=", DROP: "<=",
}  # fmt: skip
UNITS = {"rms": " σ", "worst": " σ", "p99": " σ", "token": " σ"}
SHOWN = {"rms": "RMS", "worst": "max error", "token": "worst token"}  # figures that have another name on the screen
HOW = "write FIGURE>=LIMIT or FIGURE<=LIMIT, such as rms<=0.02, worst<=0.2 or cosine>=0.999, separated by commas"
BLIND = (
    "a cosine over all action numbers cannot see an inverted gripper, a joint that is always 3° off, or a policy that "
    "returns its mean action: guard by rms, worst and flips instead"
)
EPISODES = "only paired episodes show success_drop, and none were played (strobe optimize --eval.n_episodes plays them)"
NO_YARDSTICK = (
    "an exact treatment is compared with floating-point noise (sums in another order), which was not measured"
)
# Figure that actions, features, or outputs never have → why, and what to guard by.
_OF_THE_OTHER = {
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
NOTHING_DECIDES = "no action of this policy is on or off, so flips cannot be checked: guard by rms and worst too"
EXECUTION = (
    "the robot executes another number of actions per chunk, which chunks cannot judge: play episodes (strobe evaluate)"
)
NO_SPREAD = "no spread (σ) of these outputs is known: guard them by cosine, largest_error or mean_error"
# How far an exact treatment may differ, as a multiple of floating-point noise. Two ways of summing differ from each
# other by more than one way from itself, and both figures come from a few observations.
MARGIN = 10.0
# σ below which float32 cannot resolve an error: rounding of the result, whose mean may be many times its spread.
LEAST = 1e-5
# The same for an export in float32. Engines differ by more than the order of sums: sound exports change the actions by
# up to 2e-5 σ, and faults that must be found by 1e-3 (`benchmarks/sameness.py`).
LEAST_OF_ENGINES = 2e-4


@dataclass(frozen=True)
class Judgement:
    """Whether actions stay within a guard.

    Args:
        words: the broken limit, or the missing figures and the flag that gives them; None if all limits hold.
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


@dataclass(frozen=True)
class Guard:
    """Limits that all hold at once.

    Args:
        limits: figure → limit. `rms`, `worst`, `p99` and `token` are in σ, the spread of an action dimension or of a
            channel of features; `flips` is a share of decisions, 0 to 1; `largest_error` and `mean_error` are in the
            action's own units; `success_drop` is of the success rate, 0 to 1.
        exact: whether the actions must agree as well as reordered sums do.
        least: σ that an exact treatment may always differ by.
    """

    limits: tuple[tuple[str, float], ...]
    exact: bool = False
    least: float = LEAST

    @classmethod
    def parse(cls, text: str) -> Guard:
        """``'rms<=0.02, worst<=0.2'``, or with 'and' for the comma, or ``'exact'`` among them. Raises UserError."""
        limits: dict[str, float] = {}
        exact = False
        for part in filter(None, (piece.strip() for piece in re.split(r",|\band\b", text))):
            if part == EXACT:
                exact = True
                continue
            match = re.fullmatch(r"([A-Za-z_0-9-]+)\s*(>=|<=|=>|=<|==|=|<|>)\s*(.*)", part)
            if match is None:
                raise UserError(f"'{part}': {HOW}")
            name, sign, raw = match[1].replace("-", "_"), match[2], match[3]
            if name not in FIGURES:
                raise UserError(f"'{part}': no figure '{name}': {nearest(name, FIGURES)}")
            if sign != FIGURES[name]:
                raise UserError(f"'{part}': {name} is guarded by {FIGURES[name]}")
            if name in limits:
                raise UserError(f"'{text}': {name} is given twice")
            limits[name] = _limit(name, raw, part)
        if not limits and not exact:
            raise UserError(f"'{text}': {HOW}")
        return cls(tuple(limits.items()), exact)

    def __str__(self) -> str:
        limits = [f"{name}{FIGURES[name]}{limit:.12g}" for name, limit in self.limits]
        return ", ".join([*([EXACT] if self.exact else []), *limits])

    def judge(self, agreement: Agreement, reordered: Yardstick | None = None) -> Judgement:
        """Return whether all limits hold, with the one that is broken, else the one that was not judged.

        A limit on errors in σ holds for the executed actions by themselves as well as for the whole chunk.

        Args:
            reordered: the yardstick that an exact guard measures by. Without it an exact treatment is broken where it
                is beyond the limits of rounding, and not judged where it is within them.
        """
        if agreement.not_finite:  # errors are taken over what is finite, and would vouch for the rest
            return Judgement("broken", f"{agreement.not_finite:,} numbers are infinite or not a number")
        if agreement.short and self.has_action_limits:  # figures of so few calls may be far from those of all
            return Judgement("not judged", agreement.unjudged)
        verdicts = [_exactness(agreement, reordered, self.least)] if self.exact else []
        verdicts += [_judge_figure(name, limit, agreement, reordered) for name, limit in self.limits]
        if self.limits and not self.exact and all(_decides_nothing(name, agreement) for name, _ in self.limits):
            verdicts.append(Judgement("not judged", NOTHING_DECIDES))
        if agreement.changes_execution and self.has_action_limits:
            verdicts.append(Judgement("not judged", EXECUTION))
        if agreement.unjudged and self.has_action_limits:
            verdicts.append(Judgement("not judged", agreement.unjudged))
        for outcome in ("broken", "not judged"):
            if (first := next((verdict for verdict in verdicts if verdict.outcome == outcome), None)) is not None:
                return first
        return HELD

    def hold(self, judged: Check | Comparison, reordered: Yardstick | None = None) -> None:
        """Write into ``judged`` how its agreement is judged, see `judge`; nothing where it has none."""
        if judged.agreement is not None:
            outcome = self.judge(judged.agreement, reordered)
            judged.broken, judged.unjudged = outcome.broken_limit, outcome.missing_figures

    def require_figures(self, of: Of) -> None:
        """Raises UserError for a limit on a figure that actions, features or outputs never have."""
        lacking = _OF_THE_OTHER[of]
        name = next((name for name, _ in self.limits if name in lacking), None)
        if name is not None:
            raise UserError(f"{self}: {lacking[name]}")

    @property
    def action_guard(self) -> Guard:
        """The same limits without the one on episodes, for those who play the episodes besides."""
        return Guard(tuple((name, limit) for name, limit in self.limits if name != DROP), self.exact)

    @property
    def has_action_limits(self) -> bool:
        """Whether any limit is one on the actions themselves."""
        return self.exact or any(name != DROP for name, _ in self.limits)

    @property
    def blind_spots(self) -> str | None:
        """Faults that such a guard of actions cannot see, in words; None if it checks each dimension."""
        named = {name for name, _ in self.limits} - {DROP}
        return BLIND if named == {"cosine"} and not self.exact else None

    @property
    def success_drop(self) -> float | None:
        """The loss of success rate that paired episodes must exclude, 0 to 1; None if it does not matter."""
        return dict(self.limits).get(DROP)


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
        exact = strongest(effects) == "exact"
        general = self.requested if self.requested is not None and self.requested.limits else None
        if exact:
            return Guard(general.limits if general else (), exact=True, least=self.least)
        if self.requested is not None and (self.requested.has_action_limits or self.requested.success_drop is not None):
            return self.requested
        return Guard.parse(_USUAL[self.kind])

    @property
    def success_drop(self) -> float | None:
        """The loss of success rate that paired episodes must exclude, 0 to 1; None if it does not matter."""
        return self.requested.success_drop if self.requested is not None else None

    def __str__(self) -> str:
        if self.requested is not None:
            return str(self.requested)
        return f"exact: within floating-point noise (sums in another order); else {_USUAL[self.kind]}"


def strongest(effects: Sequence[Effect]) -> Effect:
    """Return the one that may change the actions most; exact where there is none."""
    return "lossy" if "lossy" in effects else "rounding" if "rounding" in effects else "exact"


def exact_limits(reordered: Yardstick, of: Of = "actions", least: float = LEAST) -> tuple[float, float]:
    """Return the RMS and the largest error, σ, that an exact treatment may show next to this yardstick.

    That is `MARGIN` times what reordered sums do, and never more than rounding may do.
    """
    rms, worst = _rounding(of)
    return (
        min(max(MARGIN * reordered.rms, least), max(rms, reordered.rms)),
        min(max(MARGIN * reordered.worst, least), max(worst, reordered.worst)),
    )


def judges(reordered: Yardstick, of: Of = "actions") -> bool:
    """Return whether actions can show what is exact: not where reordered sums alone move them beyond rounding's limits.

    A policy that takes the largest of many scores (FAST tokens, codebooks) jumps from one action to another by them.
    """
    rms, worst = _rounding(of)
    return reordered.rms <= rms and reordered.worst <= worst


def _rounding(of: Of) -> tuple[float, float]:
    """The limits of rounding on the RMS and on the largest error (σ), which has none for features."""
    limits = dict(Guard.parse(_USUAL[of]).limits)
    return limits["rms"], limits.get("worst", math.inf)


def _exactness(agreement: Agreement, reordered: Yardstick | None, least: float) -> Judgement:
    if not agreement.largest_error and not agreement.unjudged:  # the same to the bit, which needs no yardstick
        return HELD
    if agreement.rms is None or agreement.worst is None:
        return Judgement("not judged", agreement.unjudged or f"the spread of the {agreement.of} is not known")
    usual = Guard.parse(_USUAL[agreement.of])
    beyond = usual.judge(agreement)
    if reordered is None:
        return Judgement("not judged", NO_YARDSTICK) if beyond.outcome == "held" else beyond
    if not judges(reordered, agreement.of) and agreement.rms <= MARGIN * reordered.rms:
        return Judgement(
            "not judged",
            f"floating-point noise alone changes the {agreement.of} by {reordered.rms:.2g} σ RMS, at most "
            f"{reordered.worst:.2g} σ, more than rounding may: they cannot show whether a treatment is exact. Compare "
            "the policy's tokens, or play paired episodes (strobe evaluate)",
        )
    figures = zip(
        ("rms", "worst"), (agreement.rms, agreement.worst), exact_limits(reordered, agreement.of, least), strict=True
    )
    for name, value, most in figures:
        if value > most:
            own = getattr(reordered, name)
            return Judgement(
                "broken", f"{SHOWN[name]} {value:.2g} σ, floating-point noise {own:.2g} σ: it is not exact"
            )
    return beyond


def _judge_figure(name: str, limit: float, agreement: Agreement, reordered: Yardstick | None) -> Judgement:
    if name == DROP:
        return Judgement("not judged", EPISODES)
    value, executed = getattr(agreement, name), getattr(agreement, f"executed_{name}", None)
    if value is None:
        idle = _decides_nothing(name, agreement)
        return HELD if idle else Judgement("not judged", _missing(name, agreement))
    whole, part = _keeps(name, value, limit), executed is None or _keeps(name, executed, limit)
    if whole and part:
        return HELD
    if executed is not None and not part and whole:
        words = (
            f"{_describe_broken_limit(name, executed, limit, agreement)}, in the {_describe_executed_part(agreement)}"
        )
    else:
        words = _describe_broken_limit(name, value, limit, agreement)
        if part and executed is not None and agreement.executed != agreement.predicted:
            words += f"; the {_describe_executed_part(agreement)} stays within it"
    if reordered is not None and name in ("rms", "worst") and getattr(reordered, name) > limit:
        words += f" (floating-point noise alone: {getattr(reordered, name):.2g} σ)"
    return Judgement("broken", words)


def _decides_nothing(name: str, agreement: Agreement) -> bool:
    return name == "flips" and agreement.flips is None and agreement.of == "actions" and agreement.rms is not None


def _keeps(name: str, value: float, limit: float) -> bool:
    return value >= limit if FIGURES[name] == ">=" else value <= limit


def _describe_executed_part(agreement: Agreement) -> str:
    return f"executed part of the chunk ({agreement.executed} of {agreement.predicted} actions)"


def _missing(name: str, agreement: Agreement) -> str:
    if agreement.unjudged:
        return agreement.unjudged
    if name in _OF_THE_OTHER[agreement.of]:
        return _OF_THE_OTHER[agreement.of][name]
    if agreement.of == "outputs" and name in UNITS:
        return NO_SPREAD
    if agreement.of == "features" and name in UNITS:
        return f"{name} was not measured: features of another size, or of few tokens, can be guarded by cosine alone"
    return f"{name} was not measured: the spread of the {agreement.of} is not known"


def _describe_broken_limit(name: str, value: float, limit: float, agreement: Agreement) -> str:
    unit = UNITS.get(name, "")
    where = f" in {agreement.worst_dimension}" if name == "worst" and agreement.worst_dimension else ""
    shown = SHOWN.get(name, name.replace("_", " "))
    return f"{shown} {format_distinct(value, limit)}{unit}{where}, limit {limit:.12g}{unit}"


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


def format_distinct(value: float, limit: float) -> str:
    """Return ``value`` with as many figures, two or more, as show on which side of ``limit`` it is."""
    for figures in range(2, 17):
        shown = f"{value:.{figures}g}"
        if (float(shown) > limit, float(shown) < limit) == (value > limit, value < limit):
            return shown
    return repr(value)
