"""A fault of a dataset, and the sentence that reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SHOWN = 12  # episodes written out in a flag


@dataclass(frozen=True)
class Fault:
    """A fault of a dataset.

    Args:
        kind: the same for faults of one kind in one place; these are reported together.
        what: place and size in words: episode, frame, file.
        repair: the remedy in words, if leaving the episodes out is not the only one.
        episodes: the episodes with the fault, as far as a training can leave them out.
        stops: whether LeRobot cannot read the affected frames. Otherwise it reads them, with wrong content.
        why: what it does to a policy, if that is not plain.
        brief: place and size in a few words, if ``what`` is long.
    """

    kind: str
    what: str
    repair: str | None = None
    episodes: tuple[int, ...] = ()
    stops: bool = True
    why: str | None = None
    brief: str | None = None


class DatasetError(Exception):
    """A fault that makes all further checks impossible."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


def merge(faults: Sequence[Fault]) -> list[Fault]:
    """Return one fault for all of a kind, in the words of the first; those that LeRobot cannot read come first."""
    kinds: dict[tuple[str, bool], list[Fault]] = {}
    for fault in faults:
        kinds.setdefault((fault.kind, fault.stops), []).append(fault)
    merged = []
    for same in kinds.values():
        episodes = dict.fromkeys(episode for fault in same for episode in fault.episodes)
        others = [episode for episode in episodes if episode not in same[0].episodes]
        more = f"; the same in {format_episodes(others)}" if others else ""
        merged.append(replace(same[0], what=f"{same[0].what}{more}", episodes=tuple(episodes)))
    return sorted(merged, key=lambda fault: not fault.stops)


def sentence(fault: Fault, chosen: Sequence[int]) -> str:
    """Return ``fault`` in a line: what is wrong, and what to do.

    Args:
        chosen: the episodes that are to be read; the sound ones are listed in the flag that leaves the others out.
    """
    found = ways(fault, chosen)
    return f"{fault.what}; {found}" if found else fault.what


def ways(fault: Fault, chosen: Sequence[int]) -> str:
    """Return what to do about ``fault``. ``chosen``: as for `sentence`."""
    whole = [episode for episode in chosen if episode not in set(fault.episodes)]
    found = []
    if fault.episodes and whole:
        flag = f"--dataset.episodes=[{','.join(map(str, whole))}]"
        if len(whole) > SHOWN:
            flag = f"--dataset.episodes with the other {len(whole):,}"
        found.append(f"leave {format_episodes(fault.episodes)} out ({flag})")
    found += [fault.repair] if fault.repair else []
    return ", or ".join(found)


def distance(seconds: float, fps: float) -> str:
    """Return a distance in time in words: ``1 frame (100 ms)``.

    >>> distance(0.1, 10), distance(-0.03, 10), distance(1.2, 10)
    ('1 frame (100 ms)', '0.3 frames (30 ms)', '12 frames (1,200 ms)')
    """
    frames, ms = (float(f"{value:.3g}") for value in (abs(seconds) * fps, 1000 * abs(seconds)))
    return f"{frames:,g} frame{'s' * (frames != 1)} ({ms:,g} ms)"


def format_episodes(episodes: Sequence[int]) -> str:
    """Return episodes in words; successive ones as a range.

    >>> format_episodes([3]), format_episodes([1, 4]), format_episodes(range(8))
    ('episode 3', 'episodes 1 and 4', 'episodes 0 to 7')
    """
    if len(episodes) > 2 and episodes[-1] - episodes[0] == len(episodes) - 1:
        return f"episodes {episodes[0]} to {episodes[-1]}"
    shown = [str(episode) for episode in episodes[:SHOWN]]
    if len(episodes) > SHOWN:
        return f"episodes {', '.join(shown)} and {len(episodes) - SHOWN:,} more"
    if len(shown) == 1:
        return f"episode {shown[0]}"
    return f"episodes {', '.join(shown[:-1])} and {shown[-1]}"
