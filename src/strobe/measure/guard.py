"""The guard: how far a policy may move from the untouched one, written ``cosine>=0.999, success_drop<=0.1``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from strobe.errors import UserError, nearest
from strobe.measure.episodes import pairs_for
from strobe.results.comparison import NOT_FINITE, Agreement
from strobe.results.episodes import PairedEpisodes

DEFAULT = "cosine>=0.999"
DROP = "success_drop"
# Figure of an agreement, or of paired episodes, → which side of its limit is allowed.
FIGURES = {"cosine": ">=", "largest_error": "<=", "mean_error": "<=", DROP: "<="}
HOW = "write FIGURE>=LIMIT or FIGURE<=LIMIT, such as cosine>=0.999 or largest_error<=0.01, separated by commas"


@dataclass(frozen=True)
class Guard:
    """Limits that all hold at once. Errors are in the action's own units, a drop is of the success rate, 0 to 1."""

    limits: tuple[tuple[str, float], ...]

    @classmethod
    def parse(cls, text: str) -> Guard:
        """``'cosine>=0.999, largest_error<=0.01'``, or with 'and' for the comma. Raises UserError."""
        limits: dict[str, float] = {}
        for part in filter(None, (one.strip() for one in re.split(r",|\band\b", text))):
            found = re.fullmatch(r"([A-Za-z_-]+)\s*(>=|<=|=>|=<|==|=|<|>)\s*(.*)", part)
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
        if not limits:
            raise UserError(f"'{text}': {HOW}")
        return cls(tuple(limits.items()))

    def __str__(self) -> str:
        return ", ".join(f"{name}{FIGURES[name]}{limit:.12g}" for name, limit in self.limits)

    def holds(self, agreement: Agreement) -> bool:
        """Return whether all limits are kept."""
        return not self.broken(agreement)

    def broken(self, agreement: Agreement) -> str:
        """Return the limit that is broken, in words; '' where all hold."""
        if NOT_FINITE in agreement.note:  # errors are taken over what is finite, and would vouch for the rest
            return agreement.note.split(",")[0] if "numbers" in agreement.note else NOT_FINITE
        for name, limit in self.limits:
            if name == DROP:
                continue
            value = float(getattr(agreement, name))
            if not (value >= limit if FIGURES[name] == ">=" else value <= limit):
                return (
                    f"{name.replace('_', ' ')} {_apart(value, limit)} {'<' if FIGURES[name] == '>=' else '>'} {limit:g}"
                )
        return ""

    @property
    def on_actions(self) -> bool:
        """Whether any limit is one on the actions themselves."""
        return any(name != DROP for name, _ in self.limits)

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
        enough = pairs_for(limit)
        return shown if len(episodes.pairs) >= enough else f"{shown}, which takes {enough} or more"


def _limit(name: str, raw: str, part: str) -> float:
    try:
        value = float(raw)
    except ValueError:
        raise UserError(f"'{part}': '{raw}' is not a number") from None
    if name == "cosine" and not -1 <= value <= 1:
        raise UserError(f"'{part}': a cosine lies between -1 and 1")
    if name == DROP and not 0 < value <= 1:
        raise UserError(f"'{part}': a drop of the success rate lies between 0 and 1")
    if name != "cosine" and not 0 <= value < float("inf"):
        raise UserError(f"'{part}': an error is 0 or more")
    return value


def _apart(value: float, limit: float) -> str:
    """``value`` with as many figures as it takes to see that it is not ``limit``."""
    for figures in range(4, 17):
        if float(f"{value:.{figures}g}") != limit:
            return f"{value:.{figures}g}"
    return repr(value)
