"""Candidates of `strobe optimize`: the catalogue's and the user's own, their order, and what they can gain here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import ge
from typing import Literal

from strobe.core.errors import UserError
from strobe.core.measure.components import find_named_parts, group_parts, share, shares
from strobe.core.measure.guard import strongest
from strobe.core.measure.roofline import dtype_least_ms, dtype_speedup
from strobe.core.results.measurement import MOST, Component, Measurement, host_and_device
from strobe.core.results.numerals import significant
from strobe.core.results.subject import Ceiling
from strobe.core.subjects.subject import Subject
from strobe.core.treatments import catalogue
from strobe.core.treatments.spec import Limited
from strobe.core.treatments.treatment import CAPTURED, COMPILED, DTYPE, GUIDANCE, Effect, Entry, Spec
from strobe.core.treatments.words import GRAPHS

BOUNDS: tuple[Limited, ...] = ("memory", "compute")
# What earlier ladders showed of a candidate.
Standing = Literal["kept", "unknown", "undecided", "left out"]
STANDINGS: tuple[Standing, ...] = ("kept", "unknown", "undecided", "left out")
EFFECTS: tuple[Effect, ...] = ("exact", "rounding", "lossy")
# Times as fast as a part became with it, roughly, in the ladders of docs/examples (on a CPU), apart from what its dtype
# gains: what usually gains most is tried first, so that few tries reach the target. By a treatment's key.
USUAL = {"engine": 1.4, "int8_engine": 1.4, "precision": 1.1, "channels_last": 1.35}
OTHERS_USUALLY = 1.3
# The same by a dtype, where the machine's ceilings do not tell.
NARROW = {"bfloat16": 2.5, "float16": 2.5, "int8": 4.0}
# On two cores: torch.compile takes 20 to 60 s, and an engine of 100 denoising steps took 181 s (Diffusion, full size).
COMPILING_S, CAPTURING_S, ALL_STEPS_S = 60.0, 5.0, 180.0
PREPROCESSING = "preprocessing"
Engines = Mapping[str, Sequence[str]]  # an engine as written on a command line → the parts that it computes
ENGINES_TAKE = 0.85  # share of the time in parts that engines compute, from which torch's own treatments are left out
SLOWER_DTYPE = 0.95  # a dtype that makes parts at most so many times as fast is not tried: ceilings are measured ones


@dataclass(frozen=True)
class Candidate:
    """One or more treatments that are tried together.

    Args:
        parts: the family's parts that they speed up; none for the whole.
        try_alone: may slow the subject down, or is slow to build; never grouped with others.
        of_torch: whether they change nothing of what an engine computes.
        dtypes: those that they compute in; none for the dtype that is there.
        arithmetic: share of the arithmetic units at work now that stays at work, 0 to 1.
        eases: what a device is limited by where they help most, apart from what their dtypes do.
    """

    specs: tuple[Spec, ...]
    parts: tuple[str, ...]
    effect: Effect
    rank: int
    try_alone: bool = False
    of_torch: bool = False
    dtypes: tuple[str, ...] = ()
    arithmetic: float = 1.0
    eases: frozenset[Limited] = frozenset()

    @property
    def text(self) -> str:
        """The specs as they are written on a command line."""
        return ", ".join(map(catalogue.format_spec, self.specs))

    @property
    def is_slow_program(self) -> bool:
        """Whether it is one program of all denoising steps that takes minutes to build."""
        return self.try_alone and any(spec.get("engine.steps") == "all" for spec in self.specs)

    @property
    def build_s(self) -> float:
        """Seconds that its first call may take, roughly; 0 for what is not built."""
        if self.is_slow_program:
            return ALL_STEPS_S
        return {COMPILED // 10: COMPILING_S, CAPTURED // 10: CAPTURING_S}.get(self.rank // 10, 0.0)


@dataclass(frozen=True)
class Choice:
    """Which of the catalogue's candidates may be tried, and the user's own, which are tried whatever it says.

    Args:
        only: keys of the catalogue; none for all.
        skip: keys of the catalogue.
    """

    effects: tuple[Effect, ...] = ("exact", "rounding")
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    own: tuple[tuple[Spec, ...], ...] = ()

    def allows(self, entry: Entry) -> bool:
        """Return whether candidates of ``entry`` may be tried."""
        return entry.effect in self.effects and (not self.only or entry.key in self.only) and entry.key not in self.skip


def candidates(subject: Subject, choice: Choice, now: Measurement | None = None) -> list[Candidate]:
    """Return the candidates for ``subject`` with the treatments that are on now; the user's own first.

    Args:
        now: its measurement; candidates that can save nothing by it are left out.
    """
    offered = list(choice.own)
    for entry in filter(choice.allows, catalogue.entries()):
        if now is not None and entry.saves(now) <= 0:
            continue
        try:
            offered += [(spec,) for spec in entry.candidates(subject)]
        except UserError:
            continue
    made = [make_candidate(subject, specs) for specs in offered]
    allowed = [candidate for candidate in made if candidate.effect in choice.effects or candidate.specs in choice.own]
    return list({candidate.text: candidate for candidate in allowed}.values())


def sort_candidates(
    unordered: Iterable[Candidate],
    now: Measurement,
    standing: Callable[[str], Standing] = lambda _: "unknown",
    times: Callable[[Candidate], float | None] = lambda _: None,
    refused: Sequence[Candidate] = (),
    limited: Limited | None = None,
    try_s: float = 0.0,
) -> list[Candidate]:
    """Sort candidates: the costliest part first; exact before rounding before lossy; what takes long to build last.

    Of one part and one effect, what usually gains most comes first. Before all that, candidates that an earlier ladder
    kept come first, and those that it tried and did not keep come last. Where a device waits for Python to launch its
    work, nothing saves as much as a graph: those come next, the whole before its parts. What is for the preprocessing
    alone comes before them where that holds most of the time: no graph touches it. Where a whole broke the guard, its
    parts in the same dtype come next, because errors differ from part to part; what else is in that dtype comes after
    the others. Of those that are quick to build, what eases the device's limit comes before the others, what may save
    most of it first; lossy ones are not moved up.

    Args:
        now: what the parts cost.
        standing: a candidate as written → what earlier ladders showed of it.
        times: a candidate → how many times as fast its dtypes can make its parts; None if that is not known.
        refused: candidates that broke the guard.
        limited: what holds the device up (`Bounds.limiting_factor`); None if that is not known, as on a CPU.
        try_s: seconds that a try takes: building for as long as two of them is not long.
    """
    most = max(shares(now).values(), default=0.0)
    launching = limited == "launches"

    def order(candidate: Candidate) -> tuple[float, ...]:
        # What speeds up the whole speeds up its costliest part, but comes after what is for that part alone.
        cost = largest(candidate, now)[1] if candidate.parts else most
        known = times(candidate)
        eased = candidate.effect != "lossy" and _eases(candidate, known, limited)
        return (
            STANDINGS.index(standing(candidate.text)),
            not (cost >= MOST and set(candidate.parts) == {PREPROCESSING}),
            not (launching and candidate.rank == CAPTURED),
            launching and candidate.rank == CAPTURED and bool(candidate.parts),
            _rank_by_refusals(candidate, refused),
            candidate.build_s if candidate.build_s > 2 * try_s else 0.0,
            -cost * (1 - 1 / usual_gain(candidate, known)) if eased else 0.0,
            -cost,
            not candidate.parts,
            EFFECTS.index(candidate.effect),
            -usual_gain(candidate, known),
            candidate.rank,
        )

    return sorted(unordered, key=order)


def _rank_by_refusals(candidate: Candidate, refused: Sequence[Candidate]) -> int:
    alike = [one for one in refused if not set(candidate.dtypes).isdisjoint(one.dtypes)]
    slots = [treatment_slot(spec) for one in alike for spec in one.specs]
    if any(_inside(treatment_slot(spec), slot) for spec in candidate.specs for slot in slots):
        return -1
    return 1 if alike else 0


def _eases(candidate: Candidate, times: float | None, limited: Limited | None) -> bool:
    by_dtype = limited in ("memory", "compute") and times is not None and times > 1 / SLOWER_DTYPE
    return by_dtype or limited in candidate.eases


def usual_gain(candidate: Candidate, times: float | None = None) -> float:
    """Return how many times as fast ``candidate`` usually makes its parts; a guess, which only orders.

    ``times``: how many times as fast its dtypes can make them on this machine; None if that is not known.
    """
    if times is None:
        times = max((NARROW.get(dtype, 1.0) for dtype in candidate.dtypes), default=1.0)
    return times * max(USUAL.get(next(iter(spec)), OTHERS_USUALLY) for spec in candidate.specs)


def groups(candidates: Sequence[Candidate], effect: Effect, now: Measurement) -> list[Candidate]:
    """Group candidates of ``effect`` that are quick to build: each lossy one is a group of its own, the others are one.

    Candidates that are never grouped come after that group, each by itself. Of a treatment that is offered in several
    forms, the group has those for the whole, else one for each part, and none for a part of such a part. Where engines
    compute nearly all of the time, it has nothing that only changes how torch computes: their errors would add up.
    """
    quick = [candidate for candidate in candidates if candidate.effect == effect and not candidate.build_s]
    if effect == "lossy":
        return quick
    single = [candidate for candidate in quick if candidate.try_alone]
    first: dict[tuple[str, str], Candidate] = {}
    for candidate in (candidate for candidate in quick if not candidate.try_alone):
        first.setdefault(treatment_slot(candidate.specs[0]), candidate)
    chosen = [candidate for slot, candidate in first.items() if not any(_inside(slot, other) for other in first)]
    engines = [each for each in chosen if each.parts and all(_replaces(spec) for spec in each.specs)]
    if _share_together(now, {part for each in engines for part in each.parts}) > ENGINES_TAKE:
        chosen = engines + [each for each in chosen if not (each.of_torch or each in engines)]
    if not chosen:
        return single
    specs: tuple[Spec, ...] = ()
    for candidate in chosen:
        specs = together(specs, candidate.specs)
    whole = any(not candidate.parts for candidate in chosen)
    parts = [] if whole else [part for candidate in chosen for part in candidate.parts]
    rank = max(candidate.rank for candidate in chosen)
    dtypes = tuple(dict.fromkeys(dtype for candidate in chosen for dtype in candidate.dtypes))
    return [Candidate(specs, tuple(dict.fromkeys(parts)), effect, rank, dtypes=dtypes), *single]


def is_program(candidate: Candidate, now: Measurement) -> bool:
    """Return whether it is one program of all steps, slow to build, that computes nearly all of the time."""
    return candidate.is_slow_program and _share_together(now, {*candidate.parts}) > ENGINES_TAKE


def largest(candidate: Candidate, now: Measurement) -> tuple[str | None, float]:
    """Return the costliest part that ``candidate`` speeds up, with its share; (None, 1) for the whole."""
    if not candidate.parts:
        return None, 1.0
    # Compiled code shows no parts inside it: only its own name is found.
    part = max(candidate.parts, key=lambda part: share(now, part))
    return part, share(now, part)


def together(specs: Sequence[Spec], added: Sequence[Spec]) -> tuple[Spec, ...]:
    """Return ``specs`` with ``added``, which replace those in the same slots.

    An engine also replaces those of parts inside its own, which it computes itself, and a graph the graphs inside it.
    """
    slots = [treatment_slot(spec) for spec in added]
    engines = [treatment_slot(spec) for spec in added if _replaces(spec) or _captures(spec)]
    staying = [spec for spec in specs if treatment_slot(spec) not in slots]
    return (*(spec for spec in staying if not any(_inside(treatment_slot(spec), engine) for engine in engines)), *added)


def stack(on: Sequence[Spec], candidate: Candidate, engines: Engines, now: Measurement) -> tuple[Spec, ...]:
    """Return what is on once ``candidate`` is added to ``on``.

    Where engines then compute nearly all of the time, what else changes how torch computes, and rounds, goes: errors
    would add up. An engine whose path lies inside the candidate's stays where it computes another part, such as
    SmolVLA's vision tower, which the language model around it does not call.

    Args:
        engines: those of ``on``.
        now: what the parts cost.
    """
    after = together(on, candidate.specs)
    if not all(map(_replaces, candidate.specs)):
        return after
    gone = {catalogue.format_spec(spec): spec for spec in on if spec not in after and candidate.parts}
    slots = [treatment_slot(spec) for spec in candidate.specs]
    other = [spec for text, spec in gone.items() if not {*engines.get(text, ())} <= {*candidate.parts}]
    after = (*(spec for spec in other if treatment_slot(spec) not in slots), *after)
    computed = {part for parts in (*engines.values(), candidate.parts) for part in parts}
    if _share_together(now, computed) <= ENGINES_TAKE:
        return after
    return tuple(spec for spec in after if spec in candidate.specs or not _rounds_in_torch(spec))


def treatment_slot(spec: Spec) -> tuple[str, str]:
    """Return the key of ``spec``, and the part where it names one: one treatment of a kind can be there at a time.

    A graph's part is what it captures; that of the whole call is '', and the others are inside it.
    """
    key = next(iter(spec))
    entry = catalogue.find_entry(key)
    part = "" if entry.rank != CAPTURED or spec[key] == GRAPHS[-1] else str(spec[key])
    return entry.slot or key, str(spec.get(f"{key}.part", part))


def outdoes(spec: Spec, on: Sequence[Spec]) -> bool:
    """Return whether ``spec`` makes an engine of ``on`` one for all steps, or one in a narrower dtype."""
    same = [spec, *(other for other in on if treatment_slot(other) == treatment_slot(spec))]
    own, *others = [(one.get("engine.steps") == "all", one.get("engine.precision") != "fp32") for one in same]
    return any(own != other and all(map(ge, own, other)) for other in others)


def is_slot_covered(spec: Spec, on: Sequence[Spec]) -> bool:
    """Return whether what is on has the slot of ``spec``, or a graph around it, and ``spec`` does not outdo it."""
    slot = treatment_slot(spec)
    return not outdoes(spec, on) and any(
        slot == treatment_slot(other) or (_captures(other) and _inside(slot, treatment_slot(other))) for other in on
    )


def _replaces(spec: Spec) -> bool:
    return catalogue.find_entry(next(iter(spec))).replaces


def _is_of_torch(spec: Spec) -> bool:
    entry = catalogue.find_entry(next(iter(spec)))
    return entry.of_torch or DTYPE <= entry.rank < GUIDANCE


def _share_together(now: Measurement, parts: Set[str]) -> float:
    """Return the share of the time in ``parts``, 0 to 1, where one lies inside another once."""
    named = [part for part in now.components if not part.other and part.path[-1] in parts]
    return sum(part.share for part in named if parts.isdisjoint(part.path[:-1]))


def _rounds_in_torch(spec: Spec) -> bool:
    return _is_of_torch(spec) and not _replaces(spec) and combined_effect([spec]) != "exact"


def _captures(spec: Spec) -> bool:
    return catalogue.find_entry(next(iter(spec))).rank == CAPTURED


def _inside(slot: tuple[str, str], other: tuple[str, str]) -> bool:
    (key, part), (other_key, around) = slot, other
    return key == other_key and part != around and (not around or part.startswith(f"{around}."))


def make_candidate(subject: Subject, specs: Sequence[Spec]) -> Candidate:
    """Return the candidate that puts on ``specs`` together. Raises UserError for a key that is no treatment's."""
    entries = [catalogue.find_entry(next(iter(spec))) for spec in specs]
    made = [catalogue.make(spec) for spec in specs]
    each = [tuple(entry.parts(subject, spec)) for entry, spec in zip(entries, specs, strict=True)]
    return Candidate(
        specs=tuple(specs),
        parts=tuple(dict.fromkeys(part for parts in each for part in parts)) if all(each) else (),
        effect=combined_effect(specs),
        rank=max(entry.rank for entry in entries),
        try_alone=any(entry.alone(subject, spec) for entry, spec in zip(entries, specs, strict=True)),
        of_torch=all(map(_is_of_torch, specs)),
        dtypes=tuple(dict.fromkeys(dtype for treatment in made for dtype in treatment.dtypes)),
        arithmetic=min(treatment.arithmetic for treatment in made),
        eases=frozenset(eased for entry in entries for eased in entry.eases),
    )


def combined_effect(specs: Sequence[Spec]) -> Effect:
    """Return the most that ``specs`` do to the actions. One of them may do more than its kind: an engine in fp8."""
    kinds: list[Effect] = [catalogue.find_entry(next(iter(spec))).effect for spec in specs]
    return strongest([*kinds, *(catalogue.make(spec).effect for spec in specs)])


def find_engines(subject: Subject, specs: Sequence[Spec]) -> Engines:
    """Return those of ``specs`` that compute parts by themselves, in place of the modules that are there."""
    entries = [(catalogue.find_entry(next(iter(spec))), spec) for spec in specs]
    return {catalogue.format_spec(spec): entry.parts(subject, spec) for entry, spec in entries if entry.replaces}


@dataclass(frozen=True)
class Bounds:
    """The most that candidates can gain on one machine, by its ceilings.

    FLOP and bytes are counted once, of the baseline. What decides is how the least times by the roofline compare
    (`core/measure/roofline.py`). That holds for the rungs above it too, since fewer FLOP shrink both sides alike.

    Args:
        counted: the baseline, with its FLOP and bytes where they were counted.
        ceiling: of this machine; None if it is not known.
    """

    counted: Measurement
    ceiling: Ceiling | None

    def times(self, candidate: Candidate) -> float | None:
        """Return how many times as fast the dtypes of ``candidate`` can make its parts; None if that is not known.

        1 for the dtype that they compute in already.
        """
        if self.ceiling is None or "tf32" in candidate.dtypes:  # the ceiling of float32 was measured without it
            return None
        parts = [find_named_parts(self.counted, name) for name in candidate.parts] or self._whole
        known = [dtype_speedup(dtype, parts, self.ceiling) for dtype in candidate.dtypes]
        return max((times for times in known if times is not None), default=None)

    def rejection_reason(self, candidate: Candidate) -> str | None:
        """Return why ``candidate`` can gain nothing on this machine; None if it may."""
        limit = self.counted.limit
        if limit is not None and candidate.arithmetic < min(limit.ceiling_share, 1.0):
            return "with fewer cores than the arithmetic needs"
        times = self.times(candidate)
        if times is None or times >= SLOWER_DTYPE or self.ceiling is None:
            return None
        rates = self.ceiling.gflops
        slow = ", ".join(f"{rates[dtype]:.0f} GFLOP/s" for dtype in candidate.dtypes if dtype in rates)
        now = f", {limit.dtype} {rates[limit.dtype]:.0f}" if limit is not None and limit.dtype in rates else ""
        return f"in {' and '.join(candidate.dtypes)}, because this machine is slower in it ({slow}{now})"

    def limiting_factor(self, now: Measurement, *, captured: bool = False) -> Limited | None:
        """Return what holds the device up: launches that it waits for, else the larger of the roofline's two bounds.

        None if ``now`` has no times of the device, and if nothing was counted.

        Args:
            captured: whether a graph is on, so that nothing waits for Python's launches.
        """
        if now.clock != "device":
            return None
        if not captured and host_and_device(now).waits_for_host:
            return "launches"
        limit = self.counted.limit
        parts = limit.parts if limit is not None else []
        held = {bound: sum(part.least_ms for part in parts if part.bound == bound) for bound in BOUNDS}
        return max(BOUNDS, key=held.__getitem__) if any(held.values()) else None

    def slow_arithmetic_reason(self, target_ms: float, lossy: bool) -> str | None:
        """Say that arithmetic alone takes longer than ``target_ms`` on this machine; None if it does not.

        Args:
            lossy: whether products of integers may be tried.
        """
        limit = self.counted.limit
        if limit is None:
            return None
        used = {dtype for parts in self._whole for part in parts for dtype in part.gflop_by_dtype}
        own = limit.dtype if len(used) <= 1 else "its dtypes"
        least = {own: limit.least_ms} | {lower.dtype: lower.least_ms for lower in limit.lower}
        if self.ceiling is not None and (wide := dtype_least_ms("float32", self._whole, self.ceiling)) is not None:
            least.setdefault("float32", wide)  # which some machines are faster in than in bfloat16
        integers = least.pop("int8", None)
        dtype = min(least, key=lambda dtype: least[dtype])
        if min(least[dtype], integers if lossy and integers is not None else least[dtype]) <= target_ms:
            return None
        others = ""
        if integers is not None:
            others = f", {significant(integers)} ms in int8{'' if lossy else ' (--allow=lossy)'}"
        return (
            f"arithmetic and memory traffic take at least {significant(least[dtype])} ms in {dtype} on this machine"
            f"{others}: {target_ms:g} ms need fewer FLOP, such as fewer denoising steps or a smaller model"
        )

    @property
    def _whole(self) -> list[list[Component]]:
        return list(group_parts([self.counted])[0].values())
