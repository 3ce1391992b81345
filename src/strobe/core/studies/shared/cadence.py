"""The cadence of calls: as on a robot, one every so many control ticks, or back to back.

A robot asks for a chunk once it has executed the one before, as far as it means to. Between two calls the processor
idles: its clocks fall, and others take its caches. Back to back there is no such gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set

from strobe.core.measure.sampling import Pacer
from strobe.core.results.measurement import Cadence
from strobe.core.subjects.subject import Subject

SETTLE_S = 0.25  # time of calls back to back before the first that counts: clocks rise within tenths of a second


def ticks_between_calls(subject: Subject) -> int:
    """Control ticks from one call of the policy to the next, as it is now; a backbone is called in every tick.

    With Real-Time Chunking they are its execution horizon, without it the config's ``n_action_steps``.
    """
    config = getattr(getattr(subject, "policy", None), "config", None)
    rtc = getattr(config, "rtc_config", None)
    if rtc is not None and rtc.enabled:
        return max(1, rtc.execution_horizon)
    return max(1, getattr(config, "n_action_steps", None) or 1)


class Spacing:
    """Lets calls begin at the robot's pace, and those named ``back_to_back`` right after one another.

    Where one way of calling follows the other, calls that are not timed come first: one at the robot's pace, or
    `SETTLE_S` of them back to back. So a call meets the clocks and caches that its own way of calling leaves behind.

    Args:
        hz: control rate, ticks per second.
    """

    def __init__(self, hz: float, back_to_back: Set[str] = frozenset()) -> None:
        self._hz, self._back_to_back = hz, back_to_back
        self._pacer = Pacer()
        self._paced: bool | None = None  # how the call before was begun
        self._ticks: dict[str, int] = {}
        self._in_time: dict[str, list[bool]] = {}

    def wait_for_start(self, name: str, ticks: int, untimed: Callable[[], object]) -> None:
        """Wait until the call of ``name`` may begin.

        Args:
            ticks: from its call to the next, at the robot's pace.
            untimed: one call like it that nobody times.
        """
        changed = self._paced is not None and self._paced != (name not in self._back_to_back)
        self._paced = name not in self._back_to_back
        if not self._paced:
            settled = time.perf_counter() + SETTLE_S
            while changed:
                untimed()
                changed = time.perf_counter() < settled
            self._pacer.began()
            return
        self._ticks[name] = ticks
        if changed:
            self._pacer.wait(ticks / self._hz)
            untimed()
        self._in_time.setdefault(name, []).append(self._pacer.wait(ticks / self._hz))

    def find_cadence(self, name: str, rounds: Sequence[int]) -> Cadence | None:
        """The cadence of ``name`` over ``rounds``; None if its calls were back to back."""
        if name not in self._ticks:
            return None
        late = sum(not self._in_time[name][index] for index in rounds)
        ticks = self._ticks[name]
        return Cadence(hz=self._hz, ticks=ticks, period_ms=1e3 * ticks / self._hz, calls=len(rounds), late=late)
