"""A fault of a dataset, and the sentence that tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SHOWN = 12  # episodes written out in a flag


@dataclass(frozen=True)
class Fault:
    """What is wrong with a dataset.

    Args:
        kind: the same for faults of one kind in one place, which are told together.
        what: where and by how much, in words: episode, frame, file.
        repair: what mends it, in words; '' where nothing but to leave its episodes out.
        episodes: those that it is in, as far as a training can leave them out.
        stops: whether LeRobot cannot read the frames that it is in. Others are read, and hold something wrong.
    """

    kind: str
    what: str
    repair: str = ""
    episodes: tuple[int, ...] = ()
    stops: bool = True


class Broken(Exception):
    """A fault that hides all that would be looked at after it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


def together(faults: Sequence[Fault]) -> list[Fault]:
    """One fault for all of a kind, told by the first; those that LeRobot cannot read first."""
    kinds: dict[tuple[str, bool], list[Fault]] = {}
    for fault in faults:
        kinds.setdefault((fault.kind, fault.stops), []).append(fault)
    found = []
    for same in kinds.values():
        episodes = dict.fromkeys(episode for fault in same for episode in fault.episodes)
        others = [episode for episode in episodes if episode not in same[0].episodes]
        more = f"; the same in {named(others)}" if others else ""
        found.append(replace(same[0], what=f"{same[0].what}{more}", episodes=tuple(episodes)))
    return sorted(found, key=lambda fault: not fault.stops)


def sentence(fault: Fault, chosen: Sequence[int]) -> str:
    """Tell ``fault`` in a line: what is wrong, and what to do.

    Args:
        chosen: the episodes that are to be read; those that are whole stand in the flag that leaves the others out.
    """
    whole = [episode for episode in chosen if episode not in fault.episodes]
    ways = []
    if fault.episodes and whole:
        flag = f"--dataset.episodes=[{','.join(map(str, whole))}]"
        if len(whole) > SHOWN:
            flag = f"--dataset.episodes with the other {len(whole):,}"
        ways.append(f"leave {named(fault.episodes)} out ({flag})")
    ways += [fault.repair] if fault.repair else []
    return "; ".join([fault.what, *([", or ".join(ways)] if ways else [])])


def off(seconds: float, fps: float) -> str:
    """A distance in time in words: ``1 frame (100 ms)``.

    >>> off(0.1, 10), off(-0.03, 10), off(1.2, 10)
    ('1 frame (100 ms)', '0.3 frames (30 ms)', '12 frames (1,200 ms)')
    """
    frames, ms = (float(f"{value:.3g}") for value in (abs(seconds) * fps, 1000 * abs(seconds)))
    return f"{frames:,g} frame{'s' * (frames != 1)} ({ms:,g} ms)"


def named(episodes: Sequence[int]) -> str:
    """Episodes in words; one after the other as a range.

    >>> named([3]), named([1, 4]), named(range(8))
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
