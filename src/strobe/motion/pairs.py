"""Checks of action against state: levels, polarity, scale, exchanged joints, encoders that stand, delays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from strobe.core.results import units
from strobe.motion.episodes import Joints, shift_rows
from strobe.motion.look import SHOWN, Look, medians, split_groups
from strobe.motion.results import Oddity
from strobe.motion.series import sample_rows

# An arm's moves are smooth, so its steps correlate over some ticks: 0.6 by chance needs two moves, seen in one episode
# of a hundred. Two episodes must show it.
ALIKE = 0.6
CLOSE = 0.98  # correlation of values by which a factor is read: a joint that runs into its stop has less
STRONG, NEARER = 0.8, 0.1  # correlation with the other joint's action, and how much nearer that is than its own
FACTOR = 1.35  # an arm that is slow to follow swings less: down to 0.75 of its action in fast moves
DEGREES = 180 / np.pi
SAGS = 3.0  # degrees: gravity holds a hobby servo 1 to 2° below its goal
OTHER = 0.1  # share of the range of what is no angle: a gripper's stop is some percent off
OTHERS = 4.0  # times what the other joints have
APART = 0.15  # share of its range that a joint moves in an episode whose level is judged
LONGEST_S = 1.0  # a state that stands longer while its action moves is no servo that begins to follow
FIXED = 1e-4  # share of a joint's range: no encoder is so fine that a moving joint stays within it
PILE = 0.005  # share of the rows at the very end of the range
SURE = 0.6  # mean correlation over the joints by which a delay is read
AT_ONCE = 0.25  # ticks from an action to its state below which the arm cannot have followed it
TICKS = 1.5  # a camera or a bus read more or less makes a tick


def exchanged_joints(look: Look) -> Iterator[Oddity]:
    """Two joints whose states follow each other's action, and not their own."""
    names, cross = look.joints.names, look.figures.cross
    own = np.nan_to_num(np.diagonal(cross, axis1=1, axis2=2), nan=1.0)
    for one in range(len(names)):
        for two in range(one + 1, len(names)):
            both = np.minimum(np.abs(cross[:, one, two]), np.abs(cross[:, two, one]))
            cells = (both > STRONG) & (np.maximum(np.abs(own[:, one]), np.abs(own[:, two])) < both - NEARER)
            if not look.claim(cells, np.isfinite(both), one, two):
                continue
            yield look.place(
                cells,
                f"{names[one]} and {names[two]} are exchanged in the state",
                f"{names[one]}'s state follows {names[two]}'s action, and the other way round (correlation of the "
                f"steps {np.nanmedian(both[cells]):.2f}; with their own {np.median(np.abs(own[cells, one])):.2f}).",
                "exchange the two in the state, or correct the motors' ids",
                joints=[names[one], names[two]],
            )


def polarity(look: Look) -> Iterator[Oddity]:
    """Joints whose state moves against their action."""
    joints, figures = look.joints, look.figures
    for at, name in enumerate(joints.names):
        judged = look.judged_episodes(at) & np.isfinite(figures.steps[:, at])
        cells = judged & (figures.steps[:, at] < -ALIKE) & (figures.levels[:, at] < -ALIKE)
        if not look.claim(cells, judged, at):
            continue
        total = float(np.median(figures.action[cells, at] + figures.state[cells, at]))
        complement, rest = abs(total) > 0.5 * joints.reach[at], np.delete(figures.levels, at, axis=1)
        what = f"the complement of its action (state ≈ {total:.3g} − action)" if complement else "against its action"
        yield look.place(
            cells,
            f"The state of {name} {'is' if complement else 'moves'} {what}",
            f"Correlation of action and state {np.median(figures.levels[cells, at]):.2f}; that of the other joints "
            f"{np.nanmedian(rest) if np.isfinite(rest).any() else 0.0:.2f}.",
            f"set {'state to ' + f'{total:.3g} − state' if complement else 'the sign of the state'} in these "
            "episodes, or invert the motor in the calibration",
            joints=[name],
        )


def scale(look: Look) -> Iterator[Oddity]:
    """Joints whose state is in another scale than their action, and the other joints are not."""
    joints, figures = look.joints, look.figures
    close = (np.abs(figures.levels) > CLOSE) & (figures.slope > 0) & (figures.ratio > 0)
    # Fingers around something, and a joint at its stop, reach less far and yet step as far as they are told.
    both = [np.log(np.where(close, each, 1.0)) for each in (figures.slope, figures.ratio)]
    alike = np.where(both[0] * both[1] > 0, np.sign(both[0]) * np.minimum(*np.abs(both)), 0.0)
    size = np.where(close, alike, np.nan)
    usual = medians(size)
    if np.isfinite(usual).any() and np.nanmedian(np.abs(usual)) > np.log(FACTOR):
        return  # action and state have other units by construction, in all joints
    for at, name in enumerate(joints.names):
        judged = look.judged_episodes(at) & close[:, at]
        cells = judged & (np.abs(size[:, at]) > np.log(3.0 if joints.switch[at] else FACTOR))
        if not look.claim(cells, judged, at):
            continue
        factor = float(np.exp(np.median(size[cells, at])))
        words = f"{max(factor, 1 / factor):.3g} times {'as large as' if factor > 1 else 'smaller than'} its action"
        if abs(abs(np.log(factor)) - np.log(DEGREES)) < 0.1:
            words = f"in {'degrees' if factor > 1 else 'radians'}, and its action in "
            words += "radians" if factor > 1 else "degrees"
        yield look.place(
            cells,
            f"The state of {name} is {words}",
            f"Its motions are {factor:.3g} times those of its action (correlation "
            f"{np.median(np.abs(figures.levels[cells, at])):.2f}); those of the other joints "
            f"{float(np.exp(np.nanmedian(np.delete(usual, at)))) if len(usual) > 1 else 1.0:.2f} times.",
            f"divide the state by {factor:.3g} in these episodes, or calibrate the joint's range again",
            joints=[name],
        )


def stuck_joints(look: Look) -> Iterator[Oddity]:
    """Joints whose state stands while their action moves."""
    joints, figures = look.joints, look.figures
    for at, name in enumerate(joints.names):
        judged = look.judged_episodes(at) & (figures.moved_action[:, at] > APART) & ~joints.switch[at]
        whole = judged & (figures.moved_state[:, at] < FIXED)
        state = joints.state[at][sample_rows(look.series)]
        pile = max(
            float((np.abs(state - end) <= FIXED * joints.reach[at]).mean()) for end in (state.min(), state.max())
        )
        # A joint at its stop, or fingers around something, stand too: always at the same place, an end of the range.
        part = judged & (figures.held[:, at] > LONGEST_S) & (pile < PILE)
        cells = whole | part
        if not look.claim(cells, judged, at):
            continue
        yield look.place(
            cells,
            f"The state of {name} stands while its action moves",
            f"It stands for {np.max(figures.held[cells, at]):.1f} s and more, in "
            f"{units.count(int(whole.sum()), 'episode')} of these all the time; its action moves by "
            f"{100 * np.median(figures.moved_action[cells, at]):.0f} % of the joint's range.",
            "check the joint's encoder and cable, and record these episodes again",
            joints=[name],
        )


def delays(look: Look) -> Iterator[Oddity]:
    """Episodes whose states follow their actions later or sooner than those of the others."""
    lag = np.where((look.figures.sure > SURE) & ~look.explained.all(axis=1), look.figures.lag, np.nan)
    groups = split_groups(lag, TICKS)
    if groups is None:
        return
    late, low, high = groups
    odd = ~late if low < -TICKS / 2 <= high else late if 2 * late.sum() <= np.isfinite(lag).sum() else ~late
    ticks, others = (high, low) if odd is late else (low, high)
    cells = odd & np.isfinite(lag)
    apart, by = ticks - others, abs(round(ticks - others))
    yield look.place(
        cells,
        f"The states come {_ticks(ticks)} their actions in {units.count(int(cells.sum()), 'episode')}, and "
        f"{_ticks(others)} them in the others",
        f"That is {abs(apart) / look.series.fps * 1000:.0f} ms {'more' if apart > 0 else 'less'} than in the other "
        f"{int(np.isfinite(lag).sum() - cells.sum())} episodes.",
        f"shift the actions of these episodes alone by {by} ticks {'backwards' if apart > 0 else 'forwards'}: "
        f"action[t] becomes action[t {'−' if apart > 0 else '+'} {by}] (a shift of all is right for neither)",
    )


def _ticks(lag: float) -> str:
    return f"{abs(lag):.1f} ticks {'after' if lag >= 0 else 'before'}"


def copied_state(look: Look) -> Iterator[Oddity]:
    """Actions that are the arm's present position, or an earlier one: such data teaches it to stay (GR00T #137)."""
    joints, figures = look.joints, look.figures
    lags = medians(np.where(np.abs(figures.steps) > ALIKE, figures.own, np.nan))
    at_once = np.flatnonzero(lags <= AT_ONCE)
    if not len(at_once) or 2 * len(at_once) < np.isfinite(lags).sum() or split_groups(figures.lag, TICKS) is not None:
        return  # with episodes of another delay no shift is right for all
    late = float(np.median(lags[at_once]))
    ticks = min(0, round(late))
    names = [joints.names[at] for at in at_once]
    state = f"{-ticks} control ticks before" if ticks else "of the same control tick"
    yield look.place(
        np.ones(len(figures.lag), bool),
        f"The data teaches the arm to stay: the action of {units.join_names(names, SHOWN)} is its present position",
        f"In {100 * share_equal(joints, ticks, at_once.tolist()):.0f} % of the rows in which they move, the action is "
        f"the state {state}; the median lag from action to state is {late:.1f} control ticks.",
        f"shift the actions by {1 - ticks} control tick{units.plural(1 - ticks)}: action[t] becomes the recorded "
        f"action[t + {1 - ticks}]. Or record the leader's positions as actions",
        joints=names,
    )


def share_equal(joints: Joints, ticks: int, some: Sequence[int] | None = None) -> float:
    """Return the share of the motions of ``some`` joints whose action is the state so many ticks later, bit by bit."""
    equal = moves = 0
    for at in range(len(joints.names)) if some is None else some:
        early, late = shift_rows(joints.action[at], joints.state[at], ticks)
        moved = np.diff(early, prepend=early[:1]) != 0
        equal, moves = equal + int((early == late)[moved].sum()), moves + int(moved.sum())
    return equal / max(1, moves)


def levels(look: Look) -> Iterator[Oddity]:
    """Joints that rest away from their commands, in whatever pose."""
    joints, figures = look.joints, look.figures
    enough = figures.resting >= 5
    offset = np.where(enough & (np.abs(figures.slope - 1) < 0.5) & (figures.steps > ALIKE), figures.offset, np.nan)
    same_side = np.sign(figures.low) == np.sign(figures.high)
    least = np.minimum(np.abs(figures.low), np.abs(figures.high))
    floor = np.where(joints.switch, OTHER * joints.reach, SAGS / 360 * joints.turn)
    floor = np.where(joints.reach < 0.02 * joints.turn, OTHER * joints.reach, floor)  # no angle
    found = medians(np.abs(offset))
    for at, name in enumerate(joints.names):
        alike = [other for other in range(len(found)) if other != at and joints.turn[other] == joints.turn[at]]
        usual = float(np.nanmedian(found[alike])) if alike and np.isfinite(found[alike]).any() else 0.0
        judged = look.judged_episodes(at) & np.isfinite(offset[:, at]) & (figures.moved_state[:, at] > APART)
        size = np.abs(offset[:, at])
        cells = judged & (size > max(floor[at], OTHERS * usual)) & same_side[:, at] & (least[:, at] > 0.4 * size)
        if not look.claim(cells, judged, at):
            continue
        mean = float(np.median(offset[cells, at]))
        unit = "°" if joints.turn[at] == 360 else " rad"
        unit = "" if joints.switch[at] or joints.reach[at] < 0.02 * joints.turn[at] else unit
        spread = float(np.median(np.abs(offset[cells, at] - mean)))
        yield look.place(
            cells,
            f"{name} stands {abs(mean):.3g}{unit} {'above' if mean > 0 else 'below'} its command at rest",
            f"Median of these episodes, ± {spread:.2g}{unit}, in {int(cells.sum())} of {int(judged.sum())} episodes "
            f"in which it rests; the other joints: {usual:.2g}{unit}.",
            f"calibrate leader and follower again before the next recording; these episodes keep the offset, unless "
            f"{mean:.3g}{unit} are taken from their states",
            joints=[name],
        )
