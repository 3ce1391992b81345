"""Several checkpoints on the same starts: which of them are named, and the order in which those that remain are played.

It imports neither torch nor LeRobot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.errors import UserError
from strobe.evaluate.episodes.play import Plan, StartByStart
from strobe.evaluate.measure.best_arm import bonferroni_pairs, eliminated
from strobe.evaluate.measure.success_rates import LEVEL
from strobe.lerobot.policies.options import check_checkpoint

if TYPE_CHECKING:
    from strobe.evaluate.episodes.settings import Candidate


@dataclass(frozen=True)
class NamedCheckpoint:
    """A checkpoint: the part of its path that tells it from the others, and its folder or Hub id."""

    name: str
    path: str


@dataclass(frozen=True)
class NamedCheckpoints:
    """The checkpoints that are played, and notes on links that name one of them again."""

    all: list[NamedCheckpoint]
    notes: list[str]


def parse_policies(text: str) -> NamedCheckpoints:
    """Return the checkpoints of ``'FOLDER_A,FOLDER_B'``.

    LeRobot's folder of checkpoints has a link ``last`` to the last one. A folder that two names lead to is played once,
    and a note says so.

    Raises:
        UserError: a folder that is no checkpoint, the same one twice, or fewer than two.
    """
    paths = [part.strip() for part in text.split(",") if part.strip()]
    for path in paths:
        try:
            check_checkpoint(path)
        except UserError as error:
            raise UserError(f"--policies: {error}") from None
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UserError(f"--policies: {twice} is named twice: give each checkpoint once")
    folders = [Path(path).resolve() if Path(path).is_dir() else Path(path) for path in paths]
    chosen: dict[Path, str] = {}
    for path, folder in zip(paths, folders, strict=True):
        # The folder's own name is shown, not that of a link to it.
        if folder not in chosen or folder.parts[-2:] == Path(path).parts[-2:]:
            chosen[folder] = path
    if len(chosen) < 2:
        raise UserError(
            f"--policies={text}: name two checkpoints or more, as FOLDER_A,FOLDER_B; for one, --policy.path"
        )
    kept = [path for path, folder in zip(paths, folders, strict=True) if chosen[folder] == path]
    again = [(path, chosen[folder]) for path, folder in zip(paths, folders, strict=True) if chosen[folder] != path]
    notes = [f"{path} is the folder {other} by another name: it is played once" for path, other in again]
    return NamedCheckpoints([NamedCheckpoint(*each) for each in zip(_names(kept), kept, strict=True)], notes)


def _names(paths: Sequence[str]) -> list[str]:
    """Return the parts of each path in which the paths differ: '010000' of 'outputs/a/checkpoints/010000/…'."""
    parts = [Path(path).parts for path in paths]
    if len({len(each) for each in parts}) == 1:
        differing = [place for place, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
        return ["/".join(each[place] for place in differing) for each in parts]
    shortest = min(map(len, parts))
    before = next((n for n in range(shortest) if len({each[n] for each in parts}) > 1), shortest - 1)
    before = min(before, shortest - 1)
    after = next((n for n in range(shortest - before) if len({each[-1 - n] for each in parts}) > 1), 0)
    return [str(Path(*each[before : len(each) - after])) for each in parts]


@dataclass(frozen=True)
class CheckpointRows:
    """A row for each checkpoint, by its name; picklable. Of each policy only its own row is played."""

    names: tuple[str, ...]

    def __call__(self, _subject: object = None, _recipes: Sequence[Path] = ()) -> list[Candidate]:
        """Return the rows, which are the same for each policy."""
        from strobe.core.treatments.treatment import Variant
        from strobe.evaluate.episodes.settings import Candidate

        return [Candidate(Variant(name)) for name in self.names]


class SuccessiveElimination(StartByStart):
    """All checkpoints play each start. One goes when it is shown to succeed less than another one that remains.

    Attributes:
        by: checkpoint that went → the one that it is shown to succeed less than.
        starts: checkpoint that went → complete starts that it had played.
        each_level: of each pair, so that all together are as sure as `LEVEL`: `strobe.evaluate.measure.best_arm`.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.candidates, plan.tasks, plan.starts())
        self.by: dict[str, str] = {}
        self.starts: dict[str, int] = {}
        self._won: dict[str, list[bool]] = {candidate.name: [] for candidate in plan.candidates}
        self.each_level = bonferroni_pairs(len(plan.candidates), LEVEL)

    @property
    def playing(self) -> list[Candidate]:
        """The checkpoints that remain."""
        return [candidate for candidate in self.candidates if candidate.name not in self.by]

    @property
    def _settled(self) -> bool:
        return len(self.playing) == 1

    def played(self, name: str) -> int:
        """Return the complete starts that the checkpoint ``name`` has played."""
        return self.starts.get(name, self._place)

    def _decide(self) -> list[str]:
        outcomes = {each.name: self._won[each.name] for each in self.playing}
        for name, won in outcomes.items():
            won += [self.counted[(name, *start)].success for start in self._starts[len(won) : self._place]]
        gone = eliminated(outcomes, self.each_level)
        self.by |= gone
        self.starts |= dict.fromkeys(gone, self._place)
        return [f"{name}: shown to succeed less than {by}, after {self._place} starts" for name, by in gone.items()]
