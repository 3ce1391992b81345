"""Earlier ladders of this machine and this kind of policy: they order the candidates, and accept nothing.

Candidates that were shown to gain too little, or to break the guard, are left out: on this policy, with these inputs
and this guard. In other circumstances the ladders order the candidates and no more.

They are in one small file for each machine, type and size of policy, in the user's cache. A file that cannot be read is
ignored.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from itertools import pairwise
from typing import Literal

from pydantic import Field, ValidationError

from strobe.core.errors import os_error_reason
from strobe.core.measure.guard import Guards
from strobe.core.results.data import Data, Finite
from strobe.core.results.subject import Machine, SubjectInfo
from strobe.core.runs import store
from strobe.core.runs.cache import cache_folder
from strobe.core.studies.shared.measuring import Options
from strobe.core.subjects.subject import Subject, fingerprint
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Treatment
from strobe.core.untrusted import contents
from strobe.ladder.candidates import Standing
from strobe.ladder.results import OptimizeResult, Rung, Try, TryOutcome
from strobe.ladder.sequential import MATTERS
from strobe.version import __version__

VERSION = 3  # version of the file; in its name, so that two versions of Strobe do not disturb each other
MOST_LADDERS = 8  # ladders in a file, the newest
MOST_TRIES = 100  # tries of a ladder
MOST_FILES = 64  # the least recently written ones go
LARGEST_BYTES = 2**20  # size of a file that is read
# Read and added to; added to only; neither.
Use = Literal["used", "ignored", "none"]


class EarlierRung(Data):
    """Treatments that were kept, and what they gained."""

    treatments: list[dict[str, str | int | float | bool | None]]
    ratio: Finite = Field(gt=0, lt=1, description="its time ÷ that of the rung below")


class EarlierTry(Data):
    """The outcome of a treatment."""

    outcome: TryOutcome
    settled: bool = Field(description="shown to be slower, to save less than matters, or to be wrong")
    on: list[str] = Field(description="treatments below it, as written on a command line")


class EarlierLadder(Data):
    """A climb that ran to its end."""

    made: datetime
    under: dict[str, str] = Field(description="its circumstances, including versions of packages")
    rungs: list[EarlierRung] = Field(description="rungs up to the chosen one that the final run confirmed")
    tries: dict[str, EarlierTry] = Field(description="tries by treatment, as written on a command line")


class _Document(Data):
    version: Literal[3] = VERSION
    of: str = Field(description="policy and machine, for a reader")
    ladders: list[EarlierLadder]


def circumstances(subject: Subject, options: Options, base: Sequence[Treatment], guards: Guards) -> dict[str, str]:
    """Return what a try depends on besides the machine: with all of it equal, its outcome is equal.

    ``base``: treatments of the baseline itself.
    """
    fed = getattr(subject, "input_source", None)  # of a policy
    traits = subject.traits("inference", options.batch_size)
    traits.treatments = [treatment.traits() for treatment in base]
    given = traits.drop_treatments().labelled_values()
    return {
        "checkpoint": fingerprint(subject.module),
        "dtype": ", ".join(sorted(subject.info.dtypes)),
        "guard": str(guards),
        "inputs": f"{subject.info.inputs}; {fed.name}" if fed is not None else subject.info.inputs,
        "settings": ", ".join(f"{name}={value}" for name, value in sorted(given.items())),
        "pace": f"{options.pace_hz:g} Hz" if options.pace_hz else "back to back",
    }


class Earlier:
    """The earlier ladders of ``subject`` on ``machine``, the newest last.

    Args:
        under: the `circumstances` of the climb that is to begin.
        use: whether earlier ladders are read, and whether `save` adds to them.
    """

    def __init__(self, subject: SubjectInfo, machine: Machine, under: Mapping[str, str], use: Use = "used") -> None:
        self._folder = cache_folder() / "ladders"
        self._of = f"{subject.kind}, {subject.size}, {subject.parameters:,} parameters; {_machine_name(machine)}"
        self._kind, self._use = subject.kind, use
        self._under = {**machine.versions, "strobe": __version__, "threads": str(machine.threads), **under}
        self.file = self._folder / f"v{VERSION}-{_name(subject, machine)}.json"
        self.ladders: list[EarlierLadder] = self._read() if use == "used" else []

    def __str__(self) -> str:
        several = len(self.ladders) > 1
        many = f"{len(self.ladders)} earlier ladder{'s' * several} of {self._kind} on this machine"
        return f"candidates in the order of {many}; --fresh ignores {'them' if several else 'it'}"

    @property
    def rungs(self) -> list[EarlierRung]:
        """The rungs that the last ladder in these circumstances ended with; where there is none, the last of all."""
        alike = list(filter(self._same_circumstances, self.ladders))
        return (alike or self.ladders)[-1].rungs if self.ladders else []

    def standing(self, treatment: str, on: Set[str]) -> Standing:
        """Return what the ladders showed of ``treatment``, as written, where the treatments ``on`` are on.

        A ladder leaves it out only if it was made in the same circumstances, and what was on below it then is on now:
        what broke the guard together with another treatment may hold it alone.
        """
        standing: Standing = "unknown"
        for ladder in reversed(self.ladders):
            tried = ladder.tries.get(treatment)
            if tried is None or tried.outcome == "not tried":
                continue
            if tried.outcome == "kept":
                return "kept" if standing == "unknown" else standing
            if tried.settled and self._same_circumstances(ladder) and set(tried.on) <= on:
                return "left out"
            standing = "undecided"
        return standing

    def save(self, result: OptimizeResult) -> str | None:
        """Add the ladder of ``result`` if it ran to its end. Return why that failed; None otherwise."""
        ladder = _reusable_ladder(result, self._under)
        if ladder is None or self._use == "none":
            return None
        document = _Document(of=self._of, ladders=[*self._read(), ladder][-MOST_LADDERS:])
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            store.replace(self.file, document.model_dump_json().encode())
            files = sorted(self._folder.glob("v*.json"), key=lambda file: file.stat().st_mtime)
            for file in files[:-MOST_FILES]:
                file.unlink(missing_ok=True)
        except OSError as error:
            return f"the next run cannot use this ladder: {self._folder}: {os_error_reason(error)}"
        return None

    def _same_circumstances(self, ladder: EarlierLadder) -> bool:
        return ladder.under == self._under

    def _read(self) -> list[EarlierLadder]:
        try:
            if self.file.stat().st_size > LARGEST_BYTES:
                return []
            return _Document.model_validate_json(contents(self.file)).ladders
        except (OSError, ValidationError):
            return []


def _reusable_ladder(result: OptimizeResult, under: Mapping[str, str]) -> EarlierLadder | None:
    """Return what is worth saving of a climb that ran to its end; None for another."""
    ladder = result.ladder
    if ladder is None or result.status != "complete":
        return None
    tries = {
        tried.treatment: EarlierTry(outcome=tried.outcome, settled=is_settled(tried), on=tried.on)
        for tried in ladder.tries[-MOST_TRIES:]
    }
    top = [rung.name for rung in ladder.rungs].index(ladder.chosen)
    rungs: list[EarlierRung] = []
    for below, rung in pairwise(ladder.rungs):
        added = [spec for spec in rung.treatments if spec not in below.treatments]
        verdict = next(
            (c.verdict for c in result.comparisons if (c.baseline, c.candidate) == (below.name, rung.name)), None
        )
        if ladder.rungs.index(rung) <= top and verdict is not None and verdict.kind == "faster":
            rungs.append(EarlierRung(treatments=added, ratio=min(verdict.ratio, 1 - 1e-9)))
        else:
            tries[rung.treatment] = _rejected_try(rung, below)
    return EarlierLadder(made=result.started, under=dict(under), rungs=rungs, tries=tries)


def is_settled(tried: Try) -> bool:
    """Return whether a try has shown that it need not be made again: nothing is left out for what was not shown."""
    if tried.outcome == "guard":
        return True
    if tried.outcome == "kept":
        return False
    if tried.outcome == "slower" and tried.verdict is not None and tried.verdict.kind == "slower":
        return True
    at_most = (
        1 - tried.verdict.interval.low if tried.most_gain is None and tried.verdict is not None else tried.most_gain
    )
    return at_most is not None and at_most < MATTERS


def _rejected_try(rung: Rung, below: Rung) -> EarlierTry:
    on = list(map(catalogue.format_spec, below.treatments))
    return EarlierTry(outcome="no difference shown" if rung.guarded else "guard", settled=not rung.guarded, on=on)


def _name(subject: SubjectInfo, machine: Machine) -> str:
    kind = re.sub(r"[^a-z0-9]+", "-", subject.kind.lower()).strip("-")[:40]
    size = f"{subject.size}-2e{round(math.log2(max(subject.parameters, 1)))}"
    return f"{kind}-{size}-{hashlib.blake2b(_machine_name(machine).encode(), digest_size=8).hexdigest()}"


def _machine_name(machine: Machine) -> str:
    device = machine.device.partition(":")[0]
    return f"{machine.cpu}, {machine.cores} cores, {machine.system.partition(' ')[0]}, {device}, {machine.device_name}"
