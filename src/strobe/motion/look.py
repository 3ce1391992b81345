"""The look that all checks of motion share: what was read and measured, and in which episodes an oddity is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from strobe.core.results import units
from strobe.lerobot.datasets.fault import Fault, format_episodes, ways
from strobe.lerobot.datasets.images import Pictures
from strobe.lerobot.datasets.numbers import ACTION, STATE
from strobe.motion.episodes import Figures, Joints
from strobe.motion.results import CameraLag, Oddity, Trace
from strobe.motion.series import Column, Series

LEAST, SHARE = 2, 0.02  # episodes: one alone may be an accident of its motion
GAP = 4.0  # times the spread within groups of episodes: two groups, and not one that is wide
SHOWN = 4  # joints that a sentence names


@dataclass
class Look:
    """A recording as it was read. Checks of action against state have `joints` and `figures`, of images `pictures`.

    Args:
        columns: vector → its dimensions, without spikes and wraps.
        positions: (joints,) whether its action is a position in the state's unit, and no step or speed.
        explained: (episodes, joints) what an earlier check has explained.
        traces: dimensions to show, which checks add to.
    """

    series: Series
    columns: dict[str, list[Column]]
    pictures: Pictures
    joints: Joints = field(default=None)  # type: ignore[assignment]
    figures: Figures = field(default=None)  # type: ignore[assignment]
    positions: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    explained: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), bool))
    cameras: list[CameraLag] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)

    def dimensions(self) -> Iterator[tuple[str, str, Column, np.ndarray]]:
        """Yield the vector, the name, the column and the recorded values of each dimension."""
        for vector, columns in self.columns.items():
            for each in zip(self.series.names[vector], columns, self.series.vectors[vector].T, strict=True):
                yield vector, *each

    def speeds(self) -> np.ndarray:
        """Return how fast the joints move from each row to the next, (frames − 1,), in parts of their ranges."""
        columns = self.columns[STATE if STATE in self.columns else ACTION]
        moves = [np.abs(np.diff(each.clean)) / each.reach for each in columns if each.reach > 0]
        return np.sum(moves, axis=0) if moves else np.zeros(len(self.series.task) - 1)

    def judged_episodes(self, joint: int) -> np.ndarray:
        """Return the episodes in which a joint is judged: no earlier check has explained it."""
        return self.positions[joint] & ~self.explained[:, joint]

    def explain(self, cells: np.ndarray, joints: Sequence[int]) -> None:
        """Note that a check has explained what is odd about ``joints`` in the episodes ``cells``."""
        for joint in joints:
            self.explained[cells, joint] = True

    def claim(self, cells: np.ndarray, judged: np.ndarray, *joints: int) -> bool:
        """Return whether enough of the ``judged`` episodes are odd, and note then that this is explained."""
        if enough := is_enough(cells, judged):
            self.explain(cells, joints)
        return enough

    def place(
        self, cells: np.ndarray, title: str, found: str, do: str, *, joints: Sequence[str] = (),
        feature: str | None = None, leave_out: bool = True, camera: str | None = None,
    ) -> Oddity:  # fmt: skip
        """Return what a check found in the episodes ``cells``, booleans or places, and how much of the set they are.

        Args:
            do: what repairs it, without a capital and a full stop.
            leave_out: whether leaving the episodes out is a way too.
            camera: the feature, for a check of images: it looked at those episodes that were decoded.
        """
        rows, numbers = self.series.rows, self.series.episodes[cells].tolist()
        some = list(rows) if camera is None else self.series.episodes[list(self.pictures.first[camera])].tolist()
        share = sum(rows[number] for number in numbers) / max(1, sum(rows[number] for number in some))
        whole, behind = len(numbers) == len(some), "" if camera is None else " that were decoded"
        size = f"That is {format_episodes(numbers)}: {len(numbers):,} of {len(some):,}{behind}, "
        size += f"{100 * share:.0f} % of {'the' if camera is None else 'their'} rows."
        if whole:
            size = f"That is {'each of the episodes' if len(some) > 1 else 'the only episode'}{behind}."
        few = 2 * len(numbers) <= len(some) == len(rows)  # no advice costs most of a set
        out = tuple(numbers) if leave_out and not whole and few else ()
        advice = units.capital(ways(Fault("motion", title, do, out), list(rows)))
        return Oddity(
            title=title, found=f"{found} {size}", do=f"{advice}.", episodes=numbers, share=share, joints=list(joints),
            feature=feature or camera,
        )  # fmt: skip


def is_enough(cells: np.ndarray, judged: np.ndarray) -> bool:
    """Return whether so many episodes are no chance: at least two and 2 % of those that are judged, or all."""
    count, total = int(cells.sum()), int(judged.sum())
    return count > 0 and (count >= max(LEAST, SHARE * total) or count == total)


def split_groups(values: np.ndarray, least: float) -> tuple[np.ndarray, float, float] | None:
    """Return which of (episodes,) are in the upper of two groups, and the groups' medians; None for one group.

    The groups are `least` apart, the gap between them is `GAP` times the spread within them, and each has enough
    episodes.
    """
    known = np.sort(values[np.isfinite(values)])
    if len(known) < 2 * LEAST:
        return None
    at = int(np.argmax(np.diff(known)))
    middle = (known[at] + known[at + 1]) / 2
    low, high = known[: at + 1], known[at + 1 :]
    medians = float(np.median(low)), float(np.median(high))
    within = 1.4826 * float(np.median(np.abs(np.concatenate([low - medians[0], high - medians[1]]))))
    fewest = max(LEAST, SHARE * len(known))
    if min(len(low), len(high)) < fewest or medians[1] - medians[0] < least:
        return None
    if known[at + 1] - known[at] < max(GAP * within, least / 2):
        return None
    return np.nan_to_num(values, nan=-np.inf) > middle, *medians


def medians(values: np.ndarray) -> np.ndarray:
    """Return the median of each joint; NaN where no episode has one."""
    some = np.isfinite(values).any(axis=0)
    found = np.full(values.shape[1], np.nan)
    found[some] = np.nanmedian(values[:, some], axis=0)
    return found
