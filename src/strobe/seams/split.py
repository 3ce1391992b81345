"""The jump of each seam as a sum of causes, by chunks that the policy would have given otherwise.

Let m(o) be the mean chunk of some calls on the observation o, without Real-Time Chunking. The old chunk was predicted
from o1, and its action p came last. The new one was predicted from o2, n executed actions ago, and the engine began it
at its action i. With the arm of o2 where its last command had sent it, o2 becomes c. The jump is then the sum of

- step: what the old chunk would have done next, p to p + 1 in m(o1): no fault of a seam.
- observation: m(c)[n] - m(o1)[p + 1], two chunks about the same moment, of which one knows more.
- arm: m(o2)[n] - m(c)[n], since the arm was not where its commands had sent it.
- count: m(o2)[i] - m(o2)[n], since the engine began at another action than the next one.
- noise: the rest: how far both chunks lie from the means of their observations. RTC's guidance is a part of it.

A cause's share is the sum of its parts along the jumps over the sum of the jumps squared. The order of the differences
is a choice: an observation that is new and an arm that is behind are told apart with the command in the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from strobe.core.measure.statistics import Array
from strobe.core.results.data import Interval
from strobe.loops.measure.rollout import DRAWS_LEVEL, RESAMPLES, Action, LoopRun, middle
from strobe.seams.results import FEWEST, Cause, CauseName, Remedy, RemedyName

BACK = 10  # actions of the old chunk that tell which way the path led
AHEAD = 10  # actions beyond the next one at which an aligned chunk may begin


@dataclass(frozen=True)
class Seam:
    """Two actions in a row of two chunks, and what the run tells of their calls.

    Attributes:
        path: latest actions of the old chunk, (n, joints); the last one is where the jump begins.
        now: first action of the new chunk, (joints,).
        old_at, new_at: start of the tick whose observation each chunk was asked for on, in nanoseconds.
        place: of the last action in the old chunk.
        begun: action of the new chunk that the engine began with.
        executed: actions executed since the new chunk's observation.
    """

    path: Array
    now: Array
    old_at: int
    new_at: int
    place: int
    begun: int
    executed: int


def find_seams(run: LoopRun) -> list[Seam]:
    """Return the seams of ``run`` at which nothing lies between the chunks, and both calls have an observation."""
    found, calls = list[Seam](), {call.chunk: call for call in run.calls}
    ranks: list[int] = []  # of each action within its chunk
    for before, now in zip([None, *run.actions], run.actions, strict=False):
        same = before is not None and before.chunk == now.chunk
        ranks.append(ranks[-1] + 1 if same else 0)
    for index in range(1, len(run.actions)):
        before, now = run.actions[index - 1 : index + 1]
        old, new = calls.get(before.chunk), calls.get(now.chunk)
        if before.chunk == now.chunk or not now.joined or old is None or new is None:
            continue
        if old.observed_ns is None or new.observed_ns is None:
            continue
        path = _values(run.actions[max(0, index - 1 - min(ranks[index - 1], BACK)) : index])
        executed = sum(action.at_ns >= new.observed_ns for action in run.actions[max(0, index - 1000) : index])
        if np.isfinite(path).all() and np.isfinite(now.values).all():
            place = (old.dropped or 0) + ranks[index - 1]
            found.append(Seam(path, np.array(now.values, float), old.observed_ns, new.observed_ns, place,
                              new.dropped or 0, executed))  # fmt: skip
    return found


def _values(actions: Sequence[Action]) -> Array:
    return np.array([action.values for action in actions], float)


@dataclass(frozen=True)
class Parts:
    """A seam's jump by cause, and with each remedy; (joints,), in the robot's units.

    Attributes:
        causes: sum to the jump.
        remedies: the jump itself under 'none', then the one that each remedy leaves.
        path: the way of the last actions.
        expected: variance that the noise of both chunks should have, from the spread of the calls.
    """

    causes: Mapping[CauseName, Array]
    remedies: Mapping[RemedyName, Array]
    path: Array
    expected: Array


def split(seam: Seam, old: Array, new: Array, corrected: Array, steps: Array) -> Parts:
    """Split the jump of ``seam``.

    Args:
        steps: an ordinary step of each joint, as of `shares`.
        old, new: chunks on its observations, (draws, chunk, joints).
        corrected: those on the new one with the arm where its commands had sent it.
    """
    last, jump = seam.path[-1], seam.now - seam.path[-1]
    before, after = old.mean(0), new.mean(0)
    here, coming = _action_at(before, seam.place), _action_at(before, seam.place + 1)
    counted, begun = _action_at(after, seam.executed), _action_at(after, seam.begun)
    commanded = _action_at(corrected.mean(0), seam.executed)
    causes: dict[CauseName, Array] = {
        "step": coming - here,
        "observation": commanded - coming,
        "arm": counted - commanded,
        "count": begun - counted,
    }
    causes["noise"] = jump - sum(causes.values())
    # The noise that the run had stays at each of the chunk's actions.
    given = after + (seam.now - begun)
    window = given[: seam.executed + AHEAD + 1]
    wanted = last + causes["step"]
    aligned = window[np.argmin(np.linalg.norm(_scale(window - wanted, steps), axis=-1))]
    remedies: dict[RemedyName, Array] = {
        "none": jump,
        "counted": _action_at(given, seam.executed) - last,
        "aligned": aligned - last,
    }
    draws, expected = len(new), np.zeros_like(jump)
    if draws > 1:
        alike = np.array(
            [_action_at(new[draw], seam.begun) - _action_at(old[draw], seam.place) for draw in range(draws)]
        )
        remedies["same noise"] = alike[np.argsort(np.linalg.norm(_scale(alike, steps), axis=-1))[draws // 2]]
        ends = [[_action_at(chunk, place) for chunk in some] for some, place in ((old, seam.place), (new, seam.begun))]
        expected = np.var(ends, axis=1, ddof=1).sum(0) * (1 + 1 / draws)
    return Parts(causes, remedies, last - seam.path[0], expected)


def repeats_run(parts: Sequence[Parts], steps: Array) -> bool:
    """Return whether the recorded actions lie no farther from the means than the spread of the calls explains."""
    noise = sum(float((_scale(part.causes["noise"], steps) ** 2).sum()) for part in parts)
    expected = sum(float(_scale(part.expected, steps**2).sum()) for part in parts)
    jumps = sum(float((_scale(part.remedies["none"], steps) ** 2).sum()) for part in parts)
    return noise <= MOST_NOISE * expected + MOST_UNEXPLAINED * jumps


def _action_at(chunk: Array, place: int) -> Array:
    """Return an action of ``chunk``; beyond its end it goes on as it ended."""
    over = place - (len(chunk) - 1)
    if over <= 0:
        return chunk[place]
    return chunk[-1] + over * (chunk[-1] - chunk[-2] if len(chunk) > 1 else 0)


def shares(parts: Sequence[Parts], steps: Array, rng: np.random.Generator) -> list[Cause]:
    """Return the share of each cause in all jumps, largest first.

    Args:
        steps: an ordinary step of each joint, which it is measured in; 0: the joint does not count.
    """
    jumps = np.array([_scale(part.remedies["none"], steps) for part in parts])
    squared = (jumps**2).sum(-1)
    chosen = rng.integers(len(parts), size=(RESAMPLES, len(parts)))
    causes = []
    for name in parts[0].causes:
        along = (np.array([_scale(part.causes[name], steps) for part in parts]) * jumps).sum(-1)
        interval = None
        if len(parts) >= FEWEST:
            drawn = along[chosen].sum(-1) / np.maximum(squared[chosen].sum(-1), 1e-30)
            low, high = middle(drawn)
            interval = Interval(low=low, high=high, level=DRAWS_LEVEL)
        share = float(along.sum() / max(float(squared.sum()), 1e-30))
        causes.append(Cause(name=name, share=share, interval=interval))
    return sorted(causes, key=lambda cause: -cause.share)


def remedies(parts: Sequence[Parts], steps: Array) -> list[Remedy]:
    """Return the jumps' median length as they were, and with each remedy."""
    return [
        Remedy(name=name, jump=float(np.median([np.linalg.norm(_scale(p.remedies[name], steps)) for p in parts])))
        for name in parts[0].remedies
    ]


def directions(parts: Sequence[Parts], steps: Array) -> tuple[int, int]:
    """Return how many jumps go back along the path of the last actions, and how many leave it to a side.

    The others go on, or the arm stood.
    """
    back = off = 0
    for part in parts:
        jump, path = _scale(part.remedies["none"] - part.causes["step"], steps), _scale(part.path, steps)
        lengths = float(np.linalg.norm(jump) * np.linalg.norm(path))
        if np.linalg.norm(path) < 1 or not lengths:
            continue
        cosine = float(jump @ path) / lengths
        back, off = back + (cosine < -COSINE), off + (abs(cosine) <= COSINE)
    return back, off


COSINE = 0.5  # 60° between a jump and the path
MOST_NOISE = 4.0  # noise squared over its variance: a few calls tell that variance within a factor of two
MOST_UNEXPLAINED = 0.1  # of the jumps squared: recorded images are JPEGs, and move a chunk a little


def _scale(values: Array, steps: Array) -> Array:
    counts = steps > 0
    return values[..., counts] / steps[counts]
