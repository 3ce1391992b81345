"""Compare a simulator with a training set, without a policy.

A turn of an image, or another camera, is claimed where it fits as the set's own episodes do, and the image as it comes
far worse. A linear model of the recording says how far actions move the state in a few ticks. The simulator executes
recorded actions, and each dimension gets the factor by which it moves as far: 1 with the same convention, −1 negated.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.transform import Rotation

from strobe.contract.results import Check, CheckKind, Contract, Verdict
from strobe.contract.sides import Side, look, read_set
from strobe.lerobot.datasets.images import FLOOR, distances, find_farthest, shrink
from strobe.lerobot.datasets.numbers import ACTION, STATE, is_switch
from strobe.lerobot.envs.environments import display_name

if TYPE_CHECKING:
    from lerobot.envs.configs import EnvConfig

FEWEST = 4  # episodes of the training set whose images are usual; motions of a gripper
BETTER, LESS = 0.5, 0.7  # times the distance of the images as they come; times what the actions leave over in order
FITS = 2.0  # times the farthest episode of the set
SEEN = 0.005  # share of the pixels in which a turned image differs
STRONG, LEANS = 12.0, 0.1  # steps of 255 between red and blue of a coloured pixel; from 0, as much red as blue, to 1
AS_IS = "as it comes"
TURNS: dict[str, tuple[int, ...]] = {AS_IS: (), "upside down": (1,), "mirrored": (2,), "turned by 180°": (1, 2)}
ROOM = 0.1, 0.02  # shares of a dimension's range, and of its size, that a start may be outside of the recorded ones
# Forms of a rotation: how many numbers, by how much their length may differ from 1, how they are read, written, and
# replaced by the other numbers of the same rotation.
FORMS: dict[str, tuple[int, float, Callable[..., Rotation], Callable[..., np.ndarray], Callable[..., np.ndarray]]] = {
    "axis-angle": (3, 5.3, Rotation.from_rotvec, Rotation.as_rotvec,
                   lambda own: own * (1 - 2 * np.pi / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-9))),
    "Euler angles": (3, 5.3, partial(Rotation.from_euler, "xyz"), methodcaller("as_euler", "xyz"), np.copy),
    "a quaternion, w last": (4, 0.01, Rotation.from_quat, Rotation.as_quat, np.negative),
    "a quaternion, w first": (4, 0.01, lambda own: Rotation.from_quat(np.roll(own, -1, axis=1)),
                              lambda own: np.roll(own.as_quat(), 1, axis=1), np.negative),
}  # fmt: skip
HORIZON = 4  # ticks of a motion
UNIT = float(np.log(3))  # logarithm of the least ratio of two units, and of what starts and motions may differ by
ALIKE = float(np.log(1.6))  # two motions of one convention, as the logarithm of their ratio
STILL = 0.05  # σ of the recording: an action that moves less is constant
TIED, SETTLED, MOVED = 0.5, 6, 0.1  # of a gripper: correlation with its action; ticks of a motion; share of the range
TOWARDS = -0.3  # change of a state for its distance from where it was, where actions are positions
OWN, UNSURE, LEFT = 0.3, 0.2, 0.7  # largest error of a factor in the recording, standard error, share left over


def compare(env: EnvConfig, root: Path, rename: Mapping[str, str], episodes: Sequence[int] | None = None) -> Contract:
    """Return how the simulator differs from the data set at ``root``. Raises UserError if one of them cannot be read.

    Args:
        rename: names in the simulator's observations → names in the data set.
        episodes: of the data set, that are used; all by default.
    """
    recorded = read_set(root, episodes)
    seen = look(env, recorded, rename)
    ticks, name = sum(len(each) - 1 for each in seen.states), display_name(env, seen.tasks)
    return Contract(environment=name, starts=len(seen.states), ticks=ticks, checks=judge(recorded, seen))


def judge(recorded: Side, seen: Side) -> list[Check]:
    """Return what the two sides show."""
    starts, states = _compare_starts(recorded, seen)
    numbers = _add_rate(recorded, seen.fps, [starts, *_compare_actions(recorded, replace(seen, states=states))])
    return [*_compare_images(recorded, seen), *numbers, *_compare_tasks(recorded.tasks, seen.tasks)]


def _check(verdict: Verdict, kind: CheckKind, of: str, seen: str) -> Check:
    return Check(verdict=verdict, kind=kind, of=of, seen=seen)


def _compare_images(recorded: Side, seen: Side) -> Iterator[Check]:
    known = {camera: np.stack(list(map(shrink, images))) for camera, images in recorded.images.items()}
    for camera, images in seen.images.items() if known else ():
        if len(next(iter(known.values()))) < FEWEST:
            yield _check("not judged", "image orientation", camera, f"it needs {FEWEST} episodes of the data set")
            continue
        small = np.stack(list(map(shrink, images)))
        check, own = _compare_orientation(camera, small, known)
        yield check
        yield _compare_colours(camera, known[own], small)
        here, there = ("×".join(map(str, side[0].shape[:2])) for side in (images, recorded.images[own]))
        words = f"{here} pixels, in the data set {there}"
        yield _check("agrees" if here == there else "differs", "image size", camera, words)


def _compare_orientation(camera: str, small: np.ndarray, known: Mapping[str, np.ndarray]) -> tuple[Check, str]:
    """Return what the orientation shows, and the data set's camera whose images these are to be."""
    usual = {name: np.median(theirs.mean(axis=-1), axis=0) for name, theirs in known.items()}
    whole = np.ones(small.shape[1:3], bool)
    far = {(name, turn): float(np.median(distances(np.flip(small, axes), theirs, whole)))
           for name, theirs in known.items() for turn, axes in TURNS.items()}  # fmt: skip
    best = min(far, key=lambda each: far[each])
    own = camera if camera in known else best[0]
    # Only pixels count in which the two usual images differ: in most worlds the rest is a plain table.
    where = {(name, turn): abs(usual[own] - np.flip(usual[name], [axis - 1 for axis in axes])) > FLOOR
             for name, turn in far for axes in [TURNS[turn]]}  # fmt: skip
    if where[best].mean() < SEEN:
        best = own, AS_IS
    there, axes = whole if best == (own, AS_IS) else where[best], TURNS[best[1]]
    here, limit = float(np.median(distances(small, known[own], there))), find_farthest(known[own], there)
    words = f"{here:.2g} from the usual image of {own}, whose own episodes are at most {limit:.2g} from it"
    if best == (own, AS_IS):
        alike = [turn for turn in TURNS if turn != AS_IS and where[own, turn].mean() < SEEN]
        words += f"; {' or '.join(alike)} it looks the same" if alike else ""
        verdict: Verdict = "agrees" if here <= FITS * limit and not alike else "not judged"
        return _check(verdict, "image orientation", camera, words), own
    flipped = np.flip(small, axes), np.flip(there, [axis - 1 for axis in axes])
    turned = float(np.median(distances(flipped[0], known[best[0]], flipped[1])))
    kind = "image orientation" if best[0] == own else "camera order"
    fits = turned < min(BETTER * here, FITS * find_farthest(known[best[0]], flipped[1]))
    verdict = "differs" if here > limit and fits else "not judged"
    return _check(verdict, kind, camera, f"{words}; {turned:.2g} {best[1]} from {best[0]}"), own


def _compare_colours(camera: str, recorded: np.ndarray, images: np.ndarray) -> Check:
    theirs, here = _redness(recorded), _redness(images)
    usual, middle = float(np.median(theirs)), float(np.median(here))
    apart, turned = abs(middle - usual), abs(middle + usual)
    verdict: Verdict = "agrees" if apart < turned else "not judged"
    if (np.sign(usual) * here).max() < 0 and turned < BETTER * apart:
        verdict = "differs"
    shown = (np.sign(usual) * theirs).min() > LEANS  # one of the colours leads in all episodes
    words = f"red over blue {middle:+.2f}, in the data set {usual:+.2f} (−1 to 1)"
    return _check(verdict if shown else "not judged", "image colours", camera, words)


def _redness(images: np.ndarray) -> np.ndarray:
    """Return how much more red than blue the coloured pixels of each image are, from −1 to 1."""
    apart = images[..., 0] - images[..., 2]
    apart = np.where(np.abs(apart) < STRONG, 0, apart)
    return apart.sum(axis=(1, 2)) / np.maximum(np.abs(apart).sum(axis=(1, 2)), 1)


def _compare_starts(recorded: Side, seen: Side) -> tuple[Check, list[np.ndarray]]:
    """Return what the first states show, and the simulator's states in the training set's order; none in its unit."""
    theirs, here = (np.stack([state[0] for state in side.states]) for side in (recorded, seen))
    names, states = recorded.names[0], seen.states
    whole, low, high = np.concatenate(recorded.states), theirs.min(axis=0), theirs.max(axis=0)
    room = ROOM[0] * np.ptp(whole, axis=0) + ROOM[1] * abs(whole).max(axis=0) + 1e-6

    def is_outside(rows: ArrayLike, within: np.ndarray = theirs) -> np.ndarray:
        away = abs(np.asarray(rows) - (within.min(axis=0) + within.max(axis=0)) / 2)
        return (away > np.ptp(within, axis=0) / 2 + room).mean(axis=0) > 0.5

    alike = here.shape[1] == theirs.shape[1]
    forms = [form for form in _turn_rotations(states, whole) if not is_outside(np.concatenate(form[1]), whole).any()]
    forms = [form for form in [("", states)] * alike + forms if not is_outside([each[0] for each in form[1]]).any()]
    if forms:  # of those that fit, the one whose motions do; another than the simulator's own only if that is clear
        left = [_find_rest(recorded, some, seen.actions) * (1 if words else LESS) for words, some in forms]
        words, some = forms[int(np.argmin(left))]
        if words:
            return _check("differs", "rotation form", STATE, words), some
        return _check("agrees", "starts", STATE, f"{len(here)} starts as in the data set"), states
    if not alike:
        words = f"{here.shape[1]} dimensions, in the data set {theirs.shape[1]}: {', '.join(names)}"
        return _check("differs", "state dimensions", STATE, words), []
    far = is_outside(here)
    usual, middle = np.median(theirs, axis=0), np.median(here, axis=0)
    words = "; ".join(f"{names[at]} {middle[at]:.4g}, in the data set {low[at]:.4g} to {high[at]:.4g}"
                      for at in np.flatnonzero(far))  # fmt: skip
    order, away = np.arange(len(far)), np.minimum(abs(middle[far] - usual[far, None]) / room[far, None], 1e6)
    order[far] = np.flatnonzero(far)[linear_sum_assignment(away)[1]]
    if far.sum() > 1 and not is_outside(here[:, order]).any():
        words += "; all fit in another order"
        return _check("differs", "state order", STATE, words), [each[:, order] for each in states]
    rows = [make_rows(recorded.states, recorded.actions), make_rows(states, seen.actions)]
    moves = [each.moves.std(axis=0) + 1e-9 for each in rows if each is not None]
    if len(moves) == 2:  # another unit scales starts and motions alike, another start does not
        motion, start = np.log(moves[0] / moves[1]), np.log(np.maximum(usual / np.where(middle, middle, 1), 1e-9))
        clear = far & (abs(usual) > room)  # near 0, a start is as near in any unit
        if (abs(motion[far]) > UNIT).all() and clear.any() and (abs(start - motion)[clear] < UNIT).all():
            words += f"; the motions differ by as much: about {np.exp(np.median(start[clear])):.2g} times that fits"
            return _check("differs", "state unit", STATE, words), []
    return _check("differs", "starts", STATE, words), states


def _turn_rotations(states: Sequence[np.ndarray], whole: np.ndarray) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield the states with a rotation in another form, which ``whole``, the recorded ones, may have it in."""
    cuts, values = np.cumsum([len(each) for each in states])[:-1], np.concatenate(states)
    for (here, (wide, slack, read, *_)), (there, (other, room, _, write, again)) in permutations(FORMS.items(), 2):
        for at in range(values.shape[1] - wide + 1) if values.shape[1] - wide + other == whole.shape[1] else ():
            part, theirs = values[:, at : at + wide], whole[:, at : at + other]
            if all(abs(np.linalg.norm(own, axis=1) - 1).max() <= off for own, off in ((part, slack), (theirs, room))):
                two = np.stack([turned := write(read(part)), again(turned)])
                nearer = np.linalg.norm(two - theirs.mean(axis=0), axis=2).argmin(axis=0)
                new = np.hstack([values[:, :at], two[nearer, np.arange(len(part))], values[:, at + wide :]])
                yield f"dimensions {at + 1} to {at + wide} fit as {there} in place of {here}", np.split(new, cuts)


class Rows(NamedTuple):
    """Motions of `HORIZON` ticks, (rows, dimensions): mean action, state before, and the state's change."""

    actions: np.ndarray
    states: np.ndarray
    moves: np.ndarray


def make_rows(states: Sequence[np.ndarray], actions: Sequence[np.ndarray]) -> Rows | None:
    """Return the motions of some episodes; None without any."""
    parts = []
    for state, action in zip(states, actions, strict=False):
        count = min(len(state), len(action)) - HORIZON
        if count > 0 and np.isfinite(state).all() and np.isfinite(action).all():
            means = np.mean([action[at : at + count] for at in range(HORIZON)], axis=0)
            parts.append((means, state[:count], state[HORIZON : HORIZON + count] - state[:count]))
    return Rows(*(np.concatenate(each).astype(float) for each in zip(*parts, strict=True))) if parts else None


def _scale(rows: Sequence[Rows]) -> list[Rows]:
    """Return the rows in spreads of the first ones; what does not move there is 0."""
    spreads = [(each.std(axis=0), 1e-6 * (1 + abs(each).max(axis=0))) for each in rows[0]]
    units = [np.where(spread > least, spread, np.inf) for spread, least in spreads]
    return [Rows(*(part / unit for part, unit in zip(each, units, strict=True))) for each in rows]


def _find_rest(recorded: Side, states: Sequence[np.ndarray], actions: Sequence[np.ndarray]) -> float:
    """Return the share of the motions that the recording's model leaves over; 1 without motions."""
    rows = make_rows(recorded.states, recorded.actions), make_rows(states, actions)
    if rows[0] is None or rows[1] is None:
        return 1.0
    own, here = _scale([rows[0], rows[1]])
    return _gains(_fit(own), here, range(own.actions.shape[1]))[2]


def _fit(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.column_stack([rows.actions, rows.states, np.ones(len(rows.moves))])
    found = np.linalg.lstsq(inputs, rows.moves, rcond=None)[0]
    return found, 1 / ((rows.moves - inputs @ found).std(axis=0) + STILL)


def _gains(model: Sequence[np.ndarray], rows: Rows, order: Sequence[int]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the factors with which ``model`` moves these states, their errors, and the share left over."""
    (found, weights), size = model, len(order)
    target = (rows.moves - rows.states @ found[size:-1]) * weights
    parts = rows.actions[:, None, list(order)] * (found[:size] * weights).T
    target, parts = (target - target.mean(axis=0)).ravel(), (parts - parts.mean(axis=0)).reshape(-1, size)
    factors = np.linalg.lstsq(parts, target, rcond=None)[0]
    square = float(((target - parts @ factors) ** 2).mean())
    errors = np.sqrt(np.diag(np.linalg.pinv(parts.T @ parts)) * square * HORIZON)
    return factors, errors, square / max(float((target**2).mean()), 1e-12)


def _compare_actions(recorded: Side, seen: Side) -> Iterator[Check]:
    """Yield what the bounds of the actions show, and the motions that they cause."""
    (low, high), names = recorded.bounds, recorded.names[1]
    if recorded.bounds.shape != seen.bounds.shape:
        words = f"{seen.bounds.shape[1]} dimensions, in the data set {len(low)}: {', '.join(names)}"
        yield _check("differs", "action dimensions", ACTION, words)
        return
    for at, (least, most) in enumerate(seen.bounds.T):
        words = f"the simulator takes {least:g} to {most:g}, the data set has {low[at]:.4g} to {high[at]:.4g}"
        beyond = max(least - low[at], high[at] - most) > 0.01 * (high[at] - low[at])
        yield _check("differs" if beyond else "agrees", "action range", names[at], words)
    pairs = [(recorded.states, recorded.actions), (seen.states, seen.actions),
             *((recorded.states[at::2], recorded.actions[at::2]) for at in (0, 1))]  # fmt: skip
    rows = [each for pair in pairs if (each := make_rows(*pair)) is not None]
    if len(rows) < len(pairs):
        yield _check("not judged", "action scale", ACTION, "too few ticks, or another state")
        return
    own, here, first, second = _scale(rows)
    factors, errors, _ = _gains(_fit(first), second, range(len(names)))
    known = (here.actions.std(axis=0) > STILL) & (abs(factors - 1) < OWN) & (errors < UNSURE)
    model, switches, exchanged = _fit(own), is_switch(np.concatenate(recorded.actions)), list[int]()
    factors, errors, left = _gains(model, here, range(len(names)))
    for one, two in combinations(np.flatnonzero(known & ~switches), 2):
        changed = _gains(model, here, [{one: two, two: one}.get(at, at) for at in range(len(names))])
        weak = (abs(factors[[one, two]]) < np.exp(-ALIKE)).all()
        if weak and changed[2] < LESS * left and (abs(np.log(abs(changed[0][[one, two]]))) < UNIT).all():
            words = f"they leave {100 * left:.2g} % of the motion unexplained, exchanged {100 * changed[2]:.2g} %"
            yield _check("differs", "action order", f"{names[one]} and {names[two]}", words)
            (factors, errors, left), exchanged = changed, [one, two]
    if left > LEFT and known.any():
        farther = float(np.median(here.moves.std(axis=0)))  # of the recorded motions
        words = f"the motions are {farther:.2g} times as far, and the actions explain {100 * (1 - left):.2g} % of them"
        yield _check("differs" if abs(np.log(farther)) > UNIT else "not judged", "action mode", ACTION, words)
    for at in sorted({*range(len(names))} - {*exchanged}):
        name, factor, error = names[at], factors[at], errors[at]
        words = f"the same actions move the state {factor:.2f} ± {2 * error:.2f} times as far as in the data set"
        if switches[at]:
            yield _compare_gripper(name, at, int(abs(model[0][at]).argmax()), rows[:2], (recorded, seen))
        elif not known[at] or error > UNSURE * max(1.0, abs(factor)) or left > LEFT:
            yield _check("not judged", "action scale", name, "the recorded motion does not show its effect alone")
        elif factor < -0.3:
            yield _check("differs", "action sign", name, words)
        else:
            alike = abs(np.log(max(factor, 1e-9))) < ALIKE
            yield _check("agrees" if alike else "differs", "action scale", name, words)


def _compare_gripper(name: str, at: int, moved: int, rows: Sequence[Rows], sides: Sequence[Side]) -> Check:
    """Return what the place of a gripper shows, and its motions: they end at its stops, and have no scale."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ties = [np.corrcoef(each.actions[:, at], (each.states + each.moves)[:, moved])[0, 1] for each in rows]
    there, here = (float(np.nan_to_num(tie)) for tie in ties)
    words = f"its place goes with the action by {here:+.2f}, in the data set by {there:+.2f} (correlation)"
    usual, moves = (_find_gripper_moves(side, at, moved, sides[0].bounds[:, at].mean()) for side in sides)
    shares = (moves / usual)[abs(usual) > MOVED * np.ptp(np.concatenate(sides[0].states)[:, moved])]
    if len(shares) > 1 and abs(shares).min() < MOVED and shares.max() > 3 * MOVED:
        words = f"after it goes low and high, the place moves {moves[0]:+.2g} and {moves[1]:+.2g}, in the data set "
        return _check("differs", "gripper range", name, f"{words}{usual[0]:+.2g} and {usual[1]:+.2g}")
    verdict: Verdict = "agrees" if here * there > 0 else "differs"
    return _check(verdict if min(abs(here), abs(there)) > TIED else "not judged", "gripper direction", name, words)


def _find_gripper_moves(side: Side, at: int, moved: int, middle: float) -> np.ndarray:
    """Return the median motions after the action's changes to its low and to its high end; NaN of few changes."""
    found: tuple[list[float], list[float]] = [], []
    for state, action in zip(side.states, side.actions, strict=False):
        high = action[:, at] > middle
        for tick in np.flatnonzero(np.diff(high)) + 1:
            if tick + SETTLED < len(state) and (high[tick : tick + SETTLED] == high[tick]).all():
                found[int(high[tick])].append(state[tick + SETTLED, moved] - state[tick, moved])
    return np.array([np.median(each) if len(each) >= FEWEST else np.nan for each in found])


def _add_rate(recorded: Side, here: float, checks: list[Check]) -> list[Check]:
    """Return the checks with that of the rate. Another rate scales all motions; where none is, a tick is the same."""
    words = f"{here:g} ticks per second, in the data set {recorded.fps:g}"
    scales = [check for check in checks if check.kind == "action scale" and check.verdict != "not judged"]
    agree = [check for check in scales if check.verdict == "agrees"]
    rows = make_rows(recorded.states, recorded.actions)
    # Actions are positions if the state moves the less towards higher ones, the farther it is.
    pull = np.diag(_fit(rows)[0][rows.actions.shape[1] : -1]) if rows is not None else np.zeros(1)
    if here != recorded.fps and (not agree or float(np.median(pull)) < TOWARDS):
        words += "".join(f"; {each.of}: {each.seen}" for each in scales if each not in agree)
        others = [check for check in checks if check not in scales or check in agree]
        return [*others, _check("differs", "control rate", "env.fps", words)]
    words += "" if here == recorded.fps else ", but a tick moves the state as far"
    return [*checks, _check("agrees", "control rate", "env.fps", words)]


def _compare_tasks(recorded: Sequence[str], here: Sequence[str]) -> Iterator[Check]:
    known = {task.strip().casefold(): task for task in recorded if task.strip()}
    for task in here:
        asked = task.strip().casefold()
        if not asked or not known:
            yield _check("not judged", "task in words", "task", "the simulator or the data set has none")
        elif asked in known:
            yield _check("agrees", "task in words", task, "a task of the data set")
        else:
            nearest = known[difflib.get_close_matches(asked, known, 1, 0.0)[0]]
            new = sorted({*asked.split()} - {word for one in known for word in one.split()})
            words = f"no task of the data set; the nearest is '{nearest}'"
            words += f"; words in no episode: {', '.join(new)}" if new else ""
            yield _check("differs", "task in words", task, words)
