"""The calls that a treated policy is judged by, and their order: faults of caches show where an observation returns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

FEWEST = 4  # observations that a judgement needs, however long a chunk takes
SPECIAL = 4  # observations for each call with Real-Time Chunking, and for each that is applied for alone


@dataclass(frozen=True)
class CheckCall:
    """One call.

    Args:
        observation: its number among those that are checked; it draws the noise as well.
        words: what is special about the call, in words.
        rtc: whether Real-Time Chunking guides it.
        isolated: whether the treatments are applied for this call alone.
        reset: whether the policy is reset before it, as at the start of an episode.
        required: whether a judgement needs it, where time is short (`mark_required`).
    """

    observation: int
    words: str = ""
    rtc: bool = False
    isolated: bool = False
    reset: bool = False
    required: bool = False

    @property
    def baseline_call(self) -> tuple[int, bool]:
        """The call of the baseline that it is compared with: the observation, and whether RTC guides it."""
        return self.observation, self.rtc


def plan(count: int, *, rtc: bool, passes: int = 1) -> list[CheckCall]:
    """Return the calls on ``count`` observations, in order.

    Each pass goes A B A C B D C …, so that each observation is followed by one seen before it; from the second pass on
    in another order. Half-way the policy is reset. Then come calls with Real-Time Chunking and without in turn, where
    the policy has it, and calls that the treatments are applied for alone.
    """
    visits: list[CheckCall] = []
    for number in range(passes):
        order = list(range(count))
        if number:
            random.Random(number).shuffle(order)
        visits += _returning(order, "" if not number else f"pass {number + 1}, ")
    half = len(visits) // 2
    visits[half] = CheckCall(visits[half].observation, f"{visits[half].words}, after a reset", reset=True)
    special = max(count // SPECIAL, 1)
    if rtc:
        for call in range(special):
            visits.append(CheckCall(call % count, "with RTC", rtc=True))
            visits.append(CheckCall((call + 1) % count, "without RTC after a call with it"))
    visits += [CheckCall((3 * call) % count, "put on for this call alone", isolated=True) for call in range(special)]
    return visits


def required_visits(visits: Sequence[CheckCall]) -> set[int]:
    """Return the places among ``visits`` of the calls that a judgement needs, where time is short.

    These are the first call on each of `FEWEST` observations, the first return to one, and the first call of each
    special kind.
    """
    places: set[int] = set()
    observations: set[int] = set()
    kinds: set[tuple[bool, ...]] = set()
    for place, visit in enumerate(visits):
        returns = visit.observation in observations
        after_guidance = place > 0 and visits[place - 1].rtc
        kind = (visit.rtc, visit.isolated, visit.reset, after_guidance)
        if not returns and len(observations) < FEWEST:
            observations.add(visit.observation)
            places.add(place)
        elif returns and kind not in kinds:
            kinds.add(kind)
            places.add(place)
    return places


def mark_required(visits: Sequence[CheckCall]) -> list[CheckCall]:
    """Return ``visits``, in which those that a judgement needs are marked."""
    places = required_visits(visits)
    return [replace(visit, required=place in places) for place, visit in enumerate(visits)]


def describe(visits: Sequence[CheckCall]) -> str:
    """Describe ``visits`` in a line."""
    observations = len({visit.observation for visit in visits})
    kinds = {
        "on returning to an earlier one": sum("again" in visit.words for visit in visits),
        "with RTC": sum(visit.rtc for visit in visits),
        "with the treatments applied for the call alone": sum(visit.isolated for visit in visits),
    }
    named = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    return f"{len(visits)} calls on {observations} observations: {named}" if named else f"{len(visits)} calls"


def _returning(order: Sequence[int], words: str) -> list[CheckCall]:
    visits = []
    for place, observation in enumerate(order):
        visits.append(CheckCall(observation, f"{words}observation {observation + 1}"))
        if place:
            earlier = order[place - 1]
            visits.append(CheckCall(earlier, f"{words}observation {earlier + 1} again"))
    return visits
