"""Checks of rows by themselves: spikes, wraps, changed units, held values, parts that repeat, own means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pandas import DataFrame
from pandas.util import hash_pandas_object

from strobe.core.results import units
from strobe.lerobot.datasets.fault import format_episodes
from strobe.lerobot.datasets.numbers import ACTION, STATE, repeats
from strobe.lerobot.datasets.results import APART
from strobe.motion.look import SHOWN, Look, is_enough, medians, split_groups
from strobe.motion.results import Oddity, Trace
from strobe.motion.series import Column, Series, cut, sample_rows

TRACE = 120  # rows of a trace that is shown
CHANGES = 20.0  # times: radians against degrees are 57, a share against percent 100, and no task moves so much more
EXACT, SAME_UNIT = (180 / np.pi, 100.0), 3.0  # factors between units; times by which motions in one unit may differ
GRAIN, FEW = 0.01, 5  # share by which steps of one size may differ, by rounding; least number of them
COPY = "strobe preflight --dataset.root=DATA --fix_data=FOLDER writes a copy"
PART_S = 1.0  # two hands never make the same numbers for so long
DISTINCT = 0.5  # share of the rows of such a part that differ from one another: an arm that stands repeats itself
SPEED_S = 0.1  # over which a speed is taken: a tick that comes 10 ms late changes it by a tenth
FASTER = 1.3  # times that speed: a full battery has 8.4 V for 7.4, and a tick may be late
BEYOND_SHARE = 105.0  # LeRobot writes degrees, as an angle beyond it is, or −100 to 100 of the calibrated range …
SHARES = 2.6  # … of which a unit is no less than half a degree: nobody calibrates less than 100°
HELD = 0.4  # share of the steps during motion that are none: a loop that reads each second row has half
RARE = 0.1  # that share in the other episodes


def spikes(look: Look) -> Iterator[Oddity]:
    """Values that leave for a tick or two and come back, faster than the dimension moves."""
    for vector, name, column, values in look.dimensions():
        if not len(column.spikes):
            continue
        at = column.spikes[np.argmax(np.abs(values[column.spikes] - column.clean[column.spikes]))]
        look.traces.append(_trace(look, f"{vector}: {name}", values, int(at)))
        yield look.place(
            _episodes_of(look, column.spikes),
            f"{name} of {vector} has {units.count(len(column.spikes), 'value')} that no motion explains: "
            f"{values[at]:.4g} between {values[max(at - 3, 0)]:.4g} and {values[min(at + 3, len(values) - 1)]:.4g}",
            f"They come and go within two ticks. The spread of {name} is {values.std():.3g} with them, and "
            f"{np.delete(values, column.spikes).std():.3g} without.",
            f"{COPY} with the values of the rows around them, and its statistics",
            joints=[name],
            feature=vector,
        )


def wraps(look: Look) -> Iterator[Oddity]:
    """Angles that jump by a whole turn."""
    found: dict[str, list[tuple[str, Column, np.ndarray]]] = {}
    cells = np.zeros(len(look.series.bounds), bool)
    for vector, name, column, values in look.dimensions():
        if len(column.wraps):
            found.setdefault(name, []).append((vector, column, values))
            cells |= _episodes_of(look, column.wraps)
            look.traces.append(_trace(look, f"{vector}: {name}", values, int(column.wraps[0])))
    for name, wrapped in found.items():
        vector, column, values = wrapped[-1]
        yield look.place(
            cells,
            f"{name} jumps by a whole turn in {' and '.join(each[0] for each in wrapped)}",
            f"{units.count(len(column.wraps), 'jump')} between {values.min():.4g} and {values.max():.4g} in a tick. "
            f"Its mean is {values.mean():.4g} and its spread {values.std():.3g}; unwrapped they are "
            f"{column.clean.mean():.4g} and {column.clean.std():.3g}.",
            f"{COPY} in which the angle goes on over whole turns; on the robot, take whole turns from the policy's "
            "actions. Or write its sine and cosine",
            joints=[name],
            feature=vector,
            leave_out=False,
        )


class Units(NamedTuple):
    """Two units in one vector: (episodes,) those in the rarer one, (dimensions,) which have two, and the factor there.

    ``exact``: 180/π or 100, or one over it, if the encoders' smallest steps have that ratio in each of them; else None.
    """

    few: np.ndarray
    changed: np.ndarray
    factor: float
    exact: float | None


def find_units(series: Series, vector: str, columns: Sequence[Column]) -> Units | None:
    """Return the episodes that have a vector in another unit than most; None if all have one."""
    clean = [column.clean for column in columns]
    reach = np.maximum([column.reach for column in columns], 1e-12)
    ranges = np.stack([np.ptp(cut(clean, start, end), axis=0) for start, end in series.bounds])
    sizes = np.where(ranges > 1e-4 * reach, np.log(np.maximum(ranges, 1e-12)), np.nan)
    some = np.isfinite(sizes).any(axis=1)
    whole = np.full(len(sizes), np.nan)
    whole[some] = np.nanmedian((sizes - medians(sizes))[some], axis=1)
    groups = split_groups(whole, np.log(CHANGES))
    if groups is None:
        return None
    few = (groups[0] if 2 * groups[0].sum() <= some.sum() else ~groups[0]) & some
    apart = medians(sizes[few]) - medians(sizes[~few & some])
    changed = np.abs(apart) > np.log(CHANGES)
    factor = float(np.exp(np.median(apart[changed]))) if changed.any() else 1.0
    shown = changed.any() and some.all() and (changed | (np.abs(apart) < np.log(SAME_UNIT))).all()
    each = series.vectors[vector].T[changed] if shown else []
    ratios = np.array([_find_grain(series, one, few) / _find_grain(series, one, ~few) for one in each])
    near = [size for one in EXACT for size in (one, 1 / one) if shown and (np.abs(ratios / size - 1) < GRAIN).all()]
    return Units(few, changed, factor, near[0] if near else None)


def _find_grain(series: Series, values: np.ndarray, some: np.ndarray) -> float:
    """Return the smallest step of an encoder in the episodes ``some``; NaN for numbers that have none."""
    parts = [values[start:end].astype(float) for (start, end), one in zip(series.bounds, some, strict=True) if one]
    steps = np.abs(np.concatenate([np.diff(part) for part in parts]))
    small = steps[(steps > 0) & (steps < 1.5 * steps[steps > 0].min(initial=np.inf))]
    return float(np.median(small)) if len(small) >= FEW and np.ptp(small) < GRAIN * small.min() else np.nan


def changed_units(look: Look) -> Iterator[Oddity]:
    """Dimensions of a vector that change their unit between episodes."""
    for vector in (ACTION, STATE):
        found = find_units(look.series, vector, look.columns[vector]) if vector in look.columns else None
        if found is None:
            continue
        changed = [name for name, one in zip(look.series.names[vector], found.changed, strict=True) if one]
        size = max(found.factor, 1 / found.factor)
        near = "degrees and radians" if abs(np.log(size) - np.log(180 / np.pi)) < 0.7 else "two units"
        named = look.joints.names if look.joints is not None else []
        look.explain(np.ones(len(found.few), bool), [named.index(name) for name in changed if name in named])
        unknown = "convert these episodes and compute the statistics again (no encoder's steps show the factor exactly)"
        yield look.place(
            found.few,
            f"{vector} is in {near} in one recording: {units.join_names(changed, SHOWN)}",
            f"Its motions in these episodes are {size:.3g} times {'as large' if found.factor > 1 else 'smaller'} "
            "than in the others, in all of these dimensions alike.",
            f"{COPY} in the unit of the others, exactly" if found.exact else unknown,
            joints=changed,
            feature=vector,
        )


def impossible_speeds(look: Look) -> Iterator[Oddity]:
    """States that move faster than their servos turn without load."""
    series, servos = look.series, look.series.servos or {}
    far = max(2, round(SPEED_S * series.fps))
    joints = [each for each in look.dimensions() if each[0] == STATE and "gripper" not in each[1]]
    degrees = any(np.abs(column.clean).max() > BEYOND_SHARE for *_, column, _ in joints)
    for _, name, column, _ in joints:
        servo, free = next(each for part, each in servos.items() if part in name)
        moves = np.abs(column.clean[far:] - column.clean[:-far]) * series.fps / far
        speed = np.array([moves[start : max(start, end - far)].max(initial=0.0) for start, end in series.bounds])
        cells, worst = speed > free * (FASTER if degrees else SHARES), int(np.argmax(speed))
        if is_enough(cells, speed >= 0):
            yield look.place(
                cells,
                f"{name} moves faster than its servo can: {speed[worst]:.0f} {'°' if degrees else 'units'}/s",
                f"So over {far} rows in episode {series.episodes[worst]}. A {servo} turns at {free:.0f} °/s unloaded.",
                "compare the rate of the loop with fps, and look for lost rows and another unit; record these again",
                joints=[name],
                feature=STATE,
            )


def held_values(look: Look) -> Iterator[Oddity]:
    """Episodes of which a vector has new values more seldom than the others have."""
    for vector in (name for name in (ACTION, STATE) if name in look.columns):
        parts = (look.series.vectors[vector][start:end] for start, end in look.series.bounds)
        each = (repeats(vector, part, [(0, len(part))]) for part in parts)
        share = np.array([1 - 1 / one.ticks if one is not None else np.nan for one in each])
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


def repeated_parts(look: Look) -> Iterator[Oddity]:
    """Parts of an episode that are another's, number by number."""
    series = look.series
    vectors = [series.vectors[name] for name in (ACTION, STATE) if name in series.vectors]
    rows = np.concatenate([np.arange(start, end, dtype=np.int32) for start, end in series.bounds])
    lengths = [end - start for start, end in series.bounds]
    owner = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    key = np.asarray(hash_pandas_object(DataFrame(np.hstack(vectors)[rows]), index=False))  # type: ignore[call-arg]
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
        spread = np.maximum(values[sample_rows(series)].std(axis=0), 1e-9)
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
    at, (start, end) = next(each for each in enumerate(look.series.bounds) if each[1][0] <= row < each[1][1])
    first = max(start, row - TRACE // 2)
    shown = values[first : min(end, first + TRACE)].astype(float).tolist()
    return Trace(name=name, episode=int(look.series.episodes[at]), first=first - start, values=shown)
