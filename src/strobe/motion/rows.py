"""Checks of rows by themselves: spikes, wraps, changed units, held values, parts that repeat, own means."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strobe.core.results import units
from strobe.lerobot.datasets.fault import format_episodes
from strobe.lerobot.datasets.numbers import ACTION, STATE
from strobe.lerobot.datasets.results import APART
from strobe.motion.look import SHOWN, Look, is_enough, medians, split_groups
from strobe.motion.results import Oddity, Trace
from strobe.motion.series import cut

TRACE = 120  # rows of a trace that is shown
CHANGES = 20.0  # times: radians against degrees are 57, a share against percent 100, and no task moves so much more
MOVES = 0.02  # share of the usual range: the least that a dimension moves in an episode whose unit is judged
PART_S = 1.0  # two hands never make the same numbers for so long
DISTINCT = 0.5  # share of the rows of such a part that differ from one another: an arm that stands repeats itself
HELD = 0.4  # share of the steps during motion that are none: a loop that reads each second row has half
RARE = 0.1  # that share in the other episodes


def spikes(look: Look) -> Iterator[Oddity]:
    """Values that leave for a tick or two and come back, faster than the dimension moves."""
    for vector, columns in look.columns.items():
        for name, column, values in zip(look.series.names[vector], columns, look.series.vectors[vector].T, strict=True):
            if not len(column.spikes):
                continue
            cells = _episodes_of(look, column.spikes)
            at = column.spikes[np.argmax(np.abs(values[column.spikes] - column.clean[column.spikes]))]
            look.traces.append(_trace(look, f"{vector}: {name}", values, int(at)))
            inside = np.delete(values, column.spikes).std()
            yield look.place(
                cells,
                f"{name} of {vector} has {units.count(len(column.spikes), 'value')} that no motion explains: "
                f"{values[at]:.4g} between {values[max(at - 3, 0)]:.4g} and {values[min(at + 3, len(values) - 1)]:.4g}",
                f"They come and go within two ticks. The spread of {name} is {values.std():.3g} with them, and "
                f"{inside:.3g} without.",
                "strobe preflight --dataset.root=DATA --fix_data=FOLDER writes a copy with the values of the rows "
                "around them, and its statistics",
                joints=[name],
                feature=vector,
            )


def wraps(look: Look) -> Iterator[Oddity]:
    """Angles that jump by a whole turn."""
    found: dict[str, list[str]] = {}
    cells = np.zeros(len(look.series.bounds), bool)
    for vector, columns in look.columns.items():
        for name, column, values in zip(look.series.names[vector], columns, look.series.vectors[vector].T, strict=True):
            if len(column.wraps):
                found.setdefault(name, []).append(vector)
                cells |= _episodes_of(look, column.wraps)
                look.traces.append(_trace(look, f"{vector}: {name}", values, int(column.wraps[0])))
    for name, vectors in found.items():
        vector = vectors[-1]
        at = look.series.names[vector].index(name)
        column, values = look.columns[vector][at], look.series.vectors[vector][:, at]
        yield look.place(
            cells,
            f"{name} jumps by a whole turn in {' and '.join(vectors)}",
            f"{units.count(len(column.wraps), 'jump')} between {values.min():.4g} and {values.max():.4g} in a tick. "
            f"Its mean is {values.mean():.4g} and its spread {values.std():.3g}; unwrapped they are "
            f"{column.clean.mean():.4g} and {column.clean.std():.3g}.",
            "strobe preflight --dataset.root=DATA --fix_data=FOLDER writes a copy in which the angle goes on over "
            "whole turns; on the robot, take whole turns from the policy's actions. Or write its sine and cosine",
            joints=[name],
            feature=vector,
            leave_out=False,
        )


def changed_units(look: Look) -> Iterator[Oddity]:
    """Dimensions of a vector that change their unit between episodes."""
    for vector in (ACTION, STATE):
        if vector not in look.columns:
            continue
        clean = [column.clean for column in look.columns[vector]]
        reach = np.maximum([column.reach for column in look.columns[vector]], 1e-12)
        ranges = np.stack([np.ptp(cut(clean, start, end), axis=0) for start, end in look.series.bounds])
        sizes = np.where(ranges > 1e-4 * reach, np.log(np.maximum(ranges, 1e-12)), np.nan)
        some = np.isfinite(sizes).any(axis=1)
        whole = np.full(len(sizes), np.nan)
        whole[some] = np.nanmedian((sizes - medians(sizes))[some], axis=1)
        names = look.series.names[vector]
        groups = split_groups(whole, np.log(CHANGES))
        if groups is None:
            continue
        upper, low, high = groups
        cells = (upper if 2 * upper.sum() <= some.sum() else ~upper) & some
        factor = float(np.exp(high - low))
        changed = [name for name, one in zip(names, _step(sizes, upper), strict=True) if one > np.log(CHANGES)]
        near = "degrees and radians" if abs(np.log(factor) - np.log(180 / np.pi)) < 0.7 else "two units"
        if look.joints is not None:
            some_joints = [at for at, name in enumerate(look.joints.names) if name in changed]
            look.explain(np.ones(len(sizes), bool), some_joints)
        yield look.place(
            cells,
            f"{vector} is in {near} in one recording: {units.join_names(changed, SHOWN)}",
            f"Its motions in these episodes are {factor:.3g} times {'as large' if cells[upper].any() else 'smaller'} "
            "than in the others, in all of these dimensions alike.",
            "convert these episodes and compute the statistics again (--fix_data does not change rows)",
            joints=changed,
            feature=vector,
        )


def _step(sizes: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return np.nan_to_num(medians(sizes[upper]) - medians(sizes[~upper]))


def held_values(look: Look) -> Iterator[Oddity]:
    """Episodes of which a vector has new values more seldom than the others have."""
    for vector in (ACTION, STATE):
        if vector not in look.columns:
            continue
        clean = [column.clean for column in look.columns[vector]]
        share: np.ndarray = np.full(len(look.series.bounds), np.nan)
        for at, (start, end) in enumerate(look.series.bounds):
            share[at] = _share_held(cut(clean, start, end))
        cells = share > HELD
        rest = share[np.isfinite(share) & ~cells]
        if not is_enough(cells, np.isfinite(share)) or not len(rest) or np.median(rest) > RARE:
            continue  # a set that is so everywhere has a sentence of its own
        held = float(np.median(share[cells]))
        yield look.place(
            cells,
            f"{vector} has new values at {look.series.fps * (1 - held):.3g} Hz in a part of the episodes",
            f"During motion {100 * held:.0f} % of their rows repeat the row before; in the others "
            f"{100 * float(np.median(rest)):.0f} %.",
            "record these episodes again",
            feature=vector,
        )


def _share_held(values: np.ndarray) -> float:
    """Return the share of rows that repeat the row before while the arm moves; NaN for an arm that hardly does."""
    same = (np.diff(values, axis=0) == 0).all(axis=1)
    far = 6
    if len(values) < 5 * far:
        return np.nan
    moves = (np.abs(values[far:] - values[:-far]) > 0.02 * np.maximum(np.ptp(values, axis=0), 1e-12)).any(axis=1)
    inside = moves[: len(same) - far + 1]
    middle = same[far // 2 :][: len(inside)]
    return float(middle[inside[: len(middle)]].mean()) if inside.sum() >= 30 else np.nan


def repeated_parts(look: Look) -> Iterator[Oddity]:
    """Parts of an episode that are another's, number by number."""
    series = look.series
    vectors = [series.vectors[name] for name in (ACTION, STATE) if name in series.vectors]
    rows = np.concatenate([np.arange(start, end, dtype=np.int32) for start, end in series.bounds])
    lengths = [end - start for start, end in series.bounds]
    owner = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    key = np.zeros(len(rows), np.uint64)
    random = np.random.default_rng(0)
    for values in vectors:
        for column in values.T:
            bits = column[rows].astype(np.float32).view(np.uint32)
            key = (key ^ bits) * (random.integers(1, 2**63, dtype=np.uint64) | np.uint64(1))
    order = np.argsort(key, kind="stable")
    pair = np.flatnonzero(key[order][1:] == key[order][:-1])
    early, late = order[pair], order[pair + 1]
    by_row = np.argsort(late)
    early, late = early[by_row], late[by_row]
    apart = owner[early] != owner[late]
    early, late = early[apart], late[apart]
    ends = np.diff(owner[late]) | np.diff(owner[early])
    cuts = np.flatnonzero((np.diff(late) != 1) | (np.diff(early) != 1) | (ends != 0)) + 1
    starts = np.cumsum([0, *lengths[:-1]])
    cells, first, whole = np.zeros(len(lengths), bool), None, np.split(key, starts[1:])
    for run, source in zip(np.split(late, cuts), np.split(early, cuts), strict=True):
        if len(run) < PART_S * series.fps or len(np.unique(key[run])) < DISTINCT * len(run):
            continue
        one, two = owner[source[0]], owner[run[0]]
        if np.array_equal(whole[one], whole[two]):
            continue  # a whole copy, which has a sentence of its own
        if (source[0], run[0]) == (starts[one], starts[two]):
            continue  # a simulator that begins from one state
        cells[two] = True
        first = first or (two, one, len(run))
    if first is None:
        return
    numbers = [int(series.episodes[at]) for at in first[:2]]
    yield look.place(
        cells,
        f"A part of {format_episodes(numbers[:1])} is also in {format_episodes(numbers[1:])}",
        f"{first[2]} rows in a row have the same actions and states ({first[2] / series.fps:.1f} s).",
        "find out which of the two it belongs to",
    )


def own_means(look: Look) -> Iterator[Oddity]:
    """Episodes whose own means in meta/episodes are not those of their rows."""
    series, off, own = look.series, {}, {}
    for name in (ACTION, STATE):
        if name not in look.columns or not np.isfinite(series.means.get(name, np.array([np.nan]))).any():
            continue
        values = series.vectors[name]
        own[name] = np.stack([values[start:end].mean(axis=0, dtype=float) for start, end in series.bounds])
        spread = np.array([max(values[:: look.every, at].std(), 1e-9) for at in range(values.shape[1])])
        apart = np.abs(own[name] - series.means[name]) / spread
        off[name] = np.nan_to_num(apart).max(axis=1)
    if len(own) == 2 and own[ACTION].shape == own[STATE].shape:
        crossed = [np.abs(own[one] - series.means[two]).max(axis=1) for one, two in ((ACTION, STATE), (STATE, ACTION))]
        straight = [np.abs(own[name] - series.means[name]).max(axis=1) for name in (ACTION, STATE)]
        cells = np.maximum(*crossed) < 0.1 * np.minimum(*straight)
        if cells.any():
            if look.joints is not None:
                look.explain(cells, range(len(look.joints.names)))
            off = {name: np.where(cells, 0, each) for name, each in off.items()}
            yield look.place(
                cells,
                "State and action are exchanged in a part of the episodes",
                "meta/episodes has the mean of each episode: there the rows' actions have the mean of the states, "
                "and the states that of the actions.",
                "exchange the two columns in these episodes",
            )
    for name, size in off.items():
        cells = size > APART
        if cells.any():
            worst = int(np.argmax(size))
            yield look.place(
                cells,
                f"The rows of {name} are not those that meta/episodes describes",
                f"The mean of {format_episodes([int(series.episodes[worst])])} is {size[worst]:.2g} times the "
                "dimension's spread off the one in meta/episodes, which LeRobot wrote when it saved the episode.",
                "compare these rows with the original recording",
                feature=name,
            )


def one_task(look: Look) -> Iterator[Oddity]:
    """Rows that all have one task, where meta/ lists several."""
    rows = np.concatenate([np.arange(start, end) for start, end in look.series.bounds])
    used = np.unique(look.series.task[rows])
    if look.series.tasks > 1 and len(used) == 1 and used[0] >= 0 and len(look.series.bounds) > 1:
        yield look.place(
            np.ones(len(look.series.bounds), bool),
            f"All rows have one task, and meta/tasks lists {look.series.tasks}",
            f"task_index is {used[0]} in every row.",
            "set task_index to each episode's task (meta/episodes has it under 'tasks'), or remove the other tasks",
        )


def _episodes_of(look: Look, rows: np.ndarray) -> np.ndarray:
    return np.array([bool(((rows >= start) & (rows < end)).any()) for start, end in look.series.bounds])


def _trace(look: Look, name: str, values: np.ndarray, row: int) -> Trace:
    episode = next(at for at, (start, end) in enumerate(look.series.bounds) if start <= row < end)
    start, end = look.series.bounds[episode]
    first = max(start, row - TRACE // 2)
    shown = [float(each) for each in values[first : min(end, first + TRACE)]]
    return Trace(name=name, episode=int(look.series.episodes[episode]), first=first - start, values=shown)
