"""Earlier ladders of this machine and this kind of policy: they order the candidates, and decide nothing.

One small file for each machine, type and size of policy, in the user's cache. Whatever is wrong with it, it is as if it
were not there.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

import strobe
from strobe.errors import in_words
from strobe.results import store
from strobe.results.answer import OptimizeResult
from strobe.results.cache import cache_folder
from strobe.results.data import Data, Finite
from strobe.results.ladder import TryOutcome
from strobe.results.machine import Machine
from strobe.results.subject import SubjectInfo
from strobe.studies.optimize.candidates import Standing
from strobe.studies.optimize.ladder import AS_IT_IS
from strobe.treatments.treatment import Spec

VERSION = 2  # of the file; in its name, so that two versions of Strobe do not disturb each other
MOST_LADDERS = 8  # in a file, the newest
MOST_TRIES = 100  # of a ladder
MOST_FILES = 64  # the least recently written ones go
LARGEST_BYTES = 2**20  # of a file that is read


class EarlierRung(Data):
    """Treatments that were kept, and what they bought."""

    treatments: list[dict[str, str | int | float | bool | None]]
    ratio: Finite = Field(gt=0, lt=1, description="of its time to that of the rung below")


class EarlierLadder(Data):
    """A climb that ran to its end."""

    made: datetime
    versions: dict[str, str] = Field(description="of the packages that it was made with")
    rungs: list[EarlierRung] = Field(
        description="up to the chosen one, without those that its closing run did not show"
    )
    tries: dict[str, TryOutcome] = Field(description="by the treatment as it is written on a command line")


class _Document(Data):
    version: Literal[2] = VERSION
    of: str = Field(description="policy and machine, for a reader")
    ladders: list[EarlierLadder]


class Earlier:
    """The earlier ladders of ``subject`` on ``machine``, the newest last.

    Args:
        ignored: whether to read none; `keep` adds to them all the same.
        folder: where they are kept; None for the user's cache.
    """

    def __init__(
        self, subject: SubjectInfo, machine: Machine, *, ignored: bool = False, folder: Path | None = None
    ) -> None:
        self._folder = folder or cache_folder() / "ladders"
        self._of = f"{subject.kind}, {subject.size}, {subject.parameters:,} parameters; {_called(machine)}"
        self._kind = subject.kind
        self._versions = _versions(machine)
        self.file = self._folder / f"v{VERSION}-{_name(subject, machine)}.json"
        self.ladders: list[EarlierLadder] = [] if ignored else self._read()

    def __str__(self) -> str:
        several = len(self.ladders) > 1
        many = f"{len(self.ladders)} earlier ladder{'s' * several} of {self._kind} on this machine"
        return f"ordered by {many}; --fresh ignores {'them' if several else 'it'}"

    @property
    def rungs(self) -> list[EarlierRung]:
        """The rungs that the last ladder ended with."""
        return self.ladders[-1].rungs if self.ladders else []

    def standing(self, treatment: str) -> Standing:
        """Return how ``treatment``, as it is written, did in the last ladder that tried it and could judge it.

        What another version of a package did not make faster, this one may.
        """
        for ladder in reversed(self.ladders):
            outcome = ladder.tries.get(treatment, "not tried")
            if outcome == "kept":
                return "kept"
            if outcome not in ("not tried", "too noisy") and ladder.versions == self._versions:
                return "not kept"
        return "unknown"

    def keep(self, result: OptimizeResult) -> str:
        """Add the ladder of ``result``. Return in words why it could not be kept; '' where it was."""
        ladder = _ladder_of(result)
        if ladder is None:
            return ""
        document = _Document(of=self._of, ladders=[*self._read(), ladder][-MOST_LADDERS:])
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            store.replace(self.file, document.model_dump_json().encode())
            files = sorted(self._folder.glob("v*.json"), key=lambda file: file.stat().st_mtime)
            for file in files[:-MOST_FILES]:
                file.unlink(missing_ok=True)
        except OSError as error:
            return f"the next climb will not know of this one: {self._folder}: {in_words(error)}"
        return ""

    def _read(self) -> list[EarlierLadder]:
        try:
            if self.file.stat().st_size > LARGEST_BYTES:
                return []
            return _Document.model_validate_json(self.file.read_bytes()).ladders
        except (OSError, ValidationError):
            return []


def _ladder_of(result: OptimizeResult) -> EarlierLadder | None:
    """Return what is worth keeping of a climb that ran to its end; None for another."""
    ladder = result.ladder
    if ladder is None or result.status != "complete":
        return None
    tries: dict[str, TryOutcome] = {one.treatment: one.outcome for one in ladder.tries[-MOST_TRIES:]}
    top = [rung.name for rung in ladder.rungs].index(ladder.chosen)
    rungs: list[EarlierRung] = []
    on: Sequence[Spec] = ()
    for index, rung in enumerate(ladder.rungs):
        if rung.name == AS_IT_IS:
            continue
        below = ladder.rungs[index - 1].name
        verdict = next((c.verdict for c in result.comparisons if (c.baseline, c.candidate) == (below, rung.name)), None)
        if index > top:
            tries[rung.treatment] = "guard"
        elif verdict is None or verdict.kind != "faster":
            tries[rung.treatment] = "no difference shown"
        else:
            added = [spec for spec in rung.treatments if spec not in on]
            rungs.append(EarlierRung(treatments=added, ratio=min(verdict.ratio, 1 - 1e-9)))
        on = rung.treatments
    return EarlierLadder(made=result.started, versions=_versions(result.machine), rungs=rungs, tries=tries)


def _name(subject: SubjectInfo, machine: Machine) -> str:
    """Return a file's name without its ending: the policy in words, its size to a factor of two, the machine."""
    kind = re.sub(r"[^a-z0-9]+", "-", subject.kind.lower()).strip("-")[:40]
    size = f"{subject.size}-2e{round(math.log2(max(subject.parameters, 1)))}"
    return f"{kind}-{size}-{hashlib.blake2b(_called(machine).encode(), digest_size=8).hexdigest()}"


def _versions(machine: Machine) -> dict[str, str]:
    return {**machine.versions, "strobe": strobe.__version__}


def _called(machine: Machine) -> str:
    device = machine.device.partition(":")[0]
    return f"{machine.cpu}, {machine.cores} cores, {machine.system.partition(' ')[0]}, {device}, {machine.device_name}"
