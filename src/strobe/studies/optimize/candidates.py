"""Candidates of `strobe optimize`: the catalogue's and the user's own, in the order of trying."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from strobe.errors import UserError
from strobe.measure.components import share, shares
from strobe.measure.guard import strongest
from strobe.policies.subject import Subject
from strobe.results.measurement import Measurement
from strobe.treatments import catalogue
from strobe.treatments.treatment import CAPTURED, COMPILED, DTYPE, GUIDANCE, Effect, Entry, Spec

# What earlier ladders showed of a candidate.
Standing = Literal["kept", "unknown", "undecided", "left out"]
STANDINGS: tuple[Standing, ...] = ("kept", "unknown", "undecided", "left out")
EFFECTS: tuple[Effect, ...] = ("exact", "rounding", "lossy")
# Times as fast as a part became with it, roughly, in the ladders of docs/examples (on a CPU), apart from what its dtype
# buys: what usually buys most is tried first, so that few tries reach the target. By a treatment's key.
USUAL = {"engine": 1.4, "int8_engine": 1.4, "precision": 1.1, "channels_last": 1.35}
OTHERS_USUALLY = 1.3
# The same by a dtype, where the machine's ceilings do not tell.
NARROW = {"bfloat16": 2.5, "float16": 2.5, "int8": 4.0}
# torch.compile takes 20 to 60 s on two cores, more if they are busy.
COMPILING_S, CAPTURING_S = 60.0, 5.0


@dataclass(frozen=True)
class Candidate:
    """One or more treatments that are tried together.

    ``parts``: the anatomy's parts that they speed up; none for the whole. ``alone``: whether it is never tried together
    with others. ``of_torch``: whether they change nothing of what an engine computes. ``dtypes``: those that they
    compute in; none for what they find. ``arithmetic``: share of the arithmetic units at work now that stays at work.
    """

    specs: tuple[Spec, ...]
    parts: tuple[str, ...]
    effect: Effect
    rank: int
    alone: bool = False
    of_torch: bool = False
    dtypes: tuple[str, ...] = ()
    arithmetic: float = 1.0

    @property
    def text(self) -> str:
        """As it is written on a command line."""
        return ", ".join(map(catalogue.written, self.specs))

    @property
    def build_s(self) -> float:
        """Seconds that its first call may take, roughly; 0 for what is not built."""
        return _build_s(self.rank)


@dataclass(frozen=True)
class Choice:
    """Which of the catalogue's candidates may be tried, and the user's own, which need no leave.

    ``only`` and ``skip`` are keys of the catalogue.
    """

    effects: tuple[Effect, ...] = ("exact", "rounding")
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    own: tuple[tuple[Spec, ...], ...] = ()

    def allows(self, entry: Entry) -> bool:
        """Whether what ``entry`` offers may be tried."""
        return entry.effect in self.effects and (not self.only or entry.key in self.only) and entry.key not in self.skip


def candidates(subject: Subject, choice: Choice, now: Measurement | None = None) -> list[Candidate]:
    """Return the candidates for ``subject`` as it is now, with what is put on; the user's own first.

    Those that can buy nothing by ``now``, its measurement, are left out.
    """
    offered = list(choice.own)
    for entry in filter(choice.allows, catalogue.entries()):
        if now is not None and entry.saves(now) <= 0:
            continue
        try:
            offered += [(spec,) for spec in entry.candidates(subject)]
        except UserError:
            continue
    found = [candidate_of(subject, specs) for specs in offered]
    return list({candidate.text: candidate for candidate in found}.values())


def in_order(
    found: Iterable[Candidate],
    now: Measurement,
    standing: Callable[[str], Standing] = lambda _: "unknown",
    times: Callable[[Candidate], float | None] = lambda _: None,
) -> list[Candidate]:
    """Sort: those for the costliest part first; exact before rounding before lossy; what takes long to build last.

    Of one part and one effect, what usually buys most comes first.
    Before all that, those that were kept earlier come first, and those that were tried and not kept come last:
    ``standing`` says it of a candidate as it is written. ``times`` says how many times as fast its dtypes can make its
    parts.
    """
    most = max(shares(now).values(), default=0.0)

    def order(candidate: Candidate) -> tuple[float, ...]:
        # What speeds up the whole speeds up its costliest part, but comes after what is for that part alone.
        cost = largest(candidate, now)[1] if candidate.parts else most
        known = STANDINGS.index(standing(candidate.text))
        return (
            known,
            candidate.build_s,
            -cost,
            not candidate.parts,
            EFFECTS.index(candidate.effect),
            -usual_gain(candidate, times(candidate)),
            candidate.rank,
        )

    return sorted(found, key=order)


def usual_gain(candidate: Candidate, times: float | None = None) -> float:
    """Return how many times as fast ``candidate`` usually makes its parts; a guess, which only orders.

    ``times``: what its dtypes can buy on this machine; None where that is not known.
    """
    if times is None:
        times = max((NARROW.get(dtype, 1.0) for dtype in candidate.dtypes), default=1.0)
    return times * max(USUAL.get(next(iter(spec)), OTHERS_USUALLY) for spec in candidate.specs)


def groups(found: Sequence[Candidate], effect: Effect) -> list[Candidate]:
    """Group those of ``effect`` that are quick to build: each lossy one is a group of its own, the others are one.

    What is never tried together with others comes after that one, each by itself. Of a treatment that is offered in
    several forms those for the whole are taken, else one for each part.
    """
    quick = [candidate for candidate in found if candidate.effect == effect and not candidate.build_s]
    if effect == "lossy":
        return quick
    alone = [candidate for candidate in quick if candidate.alone]
    first: dict[tuple[str, str], Candidate] = {}
    for candidate in (one for one in quick if not one.alone):
        first.setdefault(slot_of(candidate.specs[0]), candidate)
    wholes = {key for key, part in first if not part}
    chosen = [candidate for (key, part), candidate in first.items() if not part or key not in wholes]
    if not chosen:
        return alone
    specs: tuple[Spec, ...] = ()
    for candidate in chosen:
        specs = together(specs, candidate.specs)
    whole = any(not candidate.parts for candidate in chosen)
    parts = [] if whole else [part for candidate in chosen for part in candidate.parts]
    rank = max(candidate.rank for candidate in chosen)
    return [Candidate(specs, tuple(dict.fromkeys(parts)), effect, rank), *alone]


def largest(candidate: Candidate, now: Measurement) -> tuple[str, float]:
    """Return the costliest part that ``candidate`` speeds up, with its share; ('', 1) for the whole."""
    shares = [(share(now, part), part) for part in candidate.parts]
    if not shares:
        return "", 1.0
    # Compiled code shows no parts inside it: only its own name is found.
    found, part = max(shares, key=lambda one: one[0])
    return part, found


def together(specs: Sequence[Spec], added: Sequence[Spec]) -> tuple[Spec, ...]:
    """Return ``specs`` with ``added``, which replace those in the same slots."""
    slots = [slot_of(spec) for spec in added]
    return (*(spec for spec in specs if slot_of(spec) not in slots), *added)


def slot_of(spec: Spec) -> tuple[str, str]:
    """Return the key of ``spec``, and the part where it names one: one treatment of a kind can be there at a time."""
    key = next(iter(spec))
    return catalogue.entry_of(key).slot or key, str(spec.get(f"{key}.part", ""))


def candidate_of(subject: Subject, specs: Sequence[Spec]) -> Candidate:
    """Return the candidate that puts on ``specs`` together. Raises UserError for a key that is no treatment's."""
    entries = [catalogue.entry_of(next(iter(spec))) for spec in specs]
    made = [catalogue.make(spec) for spec in specs]
    each = [tuple(entry.parts(subject, spec)) for entry, spec in zip(entries, specs, strict=True)]
    return Candidate(
        specs=tuple(specs),
        parts=tuple(dict.fromkeys(part for parts in each for part in parts)) if all(each) else (),
        effect=strongest([entry.effect for entry in entries]),
        rank=max(entry.rank for entry in entries),
        alone=any(entry.alone(subject, spec) for entry, spec in zip(entries, specs, strict=True)),
        of_torch=all(entry.of_torch or DTYPE <= entry.rank < GUIDANCE for entry in entries),
        dtypes=tuple(dict.fromkeys(dtype for treatment in made for dtype in treatment.dtypes)),
        arithmetic=min(treatment.arithmetic for treatment in made),
    )


def replaced(subject: Subject, specs: Sequence[Spec]) -> list[str]:
    """Return the parts that one of ``specs`` computes by itself, in place of the modules that are there."""
    entries = [(catalogue.entry_of(next(iter(spec))), spec) for spec in specs]
    return [part for entry, spec in entries if entry.replaces for part in entry.parts(subject, spec)]


def _build_s(rank: int) -> float:
    """Return the seconds for building a treatment of ``rank``: the one place that knows which ranks are built."""
    return {COMPILED // 10: COMPILING_S, CAPTURED // 10: CAPTURING_S}.get(rank // 10, 0.0)
