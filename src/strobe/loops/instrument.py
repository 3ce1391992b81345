"""Watch a loop of LeRobot from inside its process: what the watches of all its loops share.

A probe takes no lock and computes nothing that the robot is given. What it sees goes into a `Log`, as events that
`rollout_loop` describes. After its sleep the loop finds its code cold: a call of a probe then costs it some
microseconds, several times what it costs in a tight loop. So a probe appends once, and as few functions as can be are
called in a tick.
"""

from __future__ import annotations

import functools
import operator
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Self

from lerobot.processor.pipeline import DataProcessorPipeline

from strobe.lerobot import versions
from strobe.lerobot.thread_priority import scheduling
from strobe.loops.bus_probe import BusProbe, spent
from strobe.loops.camera_probe import CameraProbe
from strobe.loops.event_log import Event, Log
from strobe.timeline.clock import host_ns
from strobe.timeline.probe import Attached, Hook

OBSERVATION, CAMERA, ACTION = "observation", "camera", "action"
PROCESS_OBSERVATION, PROCESS_ACTION = "process observation", "process action"
RECORD, SAVE, SLEEP = "record frame", "save episode", "sleep"
MOTORS_READ, MOTORS_WRITTEN = "read motors", "write motors"
LEADER_READ, LEADER_WRITTEN = "read leader motors", "write leader motors"


Call = Callable[..., Any]


class Watching:
    """Probes on one run of a command, inside ``with``, and what became of the run.

    Args:
        log: where events go; started once the robot is connected.
        record_s: after so many seconds the probes come off and the run goes on by itself.

    Attributes:
        notes: what could not be watched, and why.
        failed: the last error of a thread of LeRobot's own that gave up; '' else.
        stopped: the time to record was over before the run was.
        joints: names in the observation whose values are noted in each tick; none: no positions are.
        keep: takes each tick's start and observation, at once; None: they are not kept.
        calls: what calls the policy again once the run is over (see `rollout_bench`); None where nothing can.
        endless: the command runs until it is interrupted, which then is its ordinary end.
    """

    def __init__(self, log: Log, record_s: float = 1800.0) -> None:
        self.log, self.record_s = log, record_s
        self.notes: list[str] = []
        self.failed = ""
        self.stopped = False
        self.endless = False
        self.joints: list[str] = []
        self.keep: Call | None = None
        self.calls: Any = None
        self._interrupted = 0
        self._resting = False  # the robot is being put to rest, which nothing may disturb
        self._body, self._probes = ExitStack(), ExitStack()
        self._until = 0
        self._scheduled()

    @property
    def signals(self) -> int:
        """Signals to stop that came, however LeRobot dealt with them."""
        return self._interrupted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._scheduled()
        self.let_go()
        self._body.close()

    def let_go(self) -> None:
        """Take every probe off."""
        self._probes.close()

    def begin(self) -> None:
        """Say that the loop begins, on the thread that runs it."""
        self._scheduled()
        self.log.append(("run", host_ns()))
        self.log.append(("turns", host_ns(), *spent()))
        if self._until:
            return  # another segment of an interactive session
        self._until = host_ns() + round(self.record_s * 1e9)
        if timer := versions.timer():
            self._body.enter_context(Attached([Hook(timer, "log_run_summary", "")], self._reporting))

    def end(self) -> None:
        """Say that the loop is over, on the thread that ran it, and take every probe off."""
        self._scheduled()
        self.log.append(("turns", host_ns(), *spent()))
        self.log.append(("end", host_ns()))
        self.let_go()

    def _scheduled(self) -> None:
        """Say which scheduling policy this thread has: an encoder may change it."""
        if (found := scheduling()) is not None:
            self.log.append(("scheduled", host_ns(), *found))

    def _reporting(self, inner: Call, _: Hook, __: bool) -> Call:
        """Take along the words of LeRobot's timer at the end of a run."""
        append = self.log.append

        @functools.wraps(inner)
        def call(timer: Any, *args: Any, **kwargs: Any) -> Any:
            report = getattr(timer, "_report", None)
            if report is None:
                return inner(timer, *args, **kwargs)

            def told(text: str) -> None:
                append(("cadence", text))
                report(text)

            timer._report = told
            try:
                return inner(timer, *args, **kwargs)
            finally:
                timer._report = report

        return call

    def _interruptible(self) -> None:
        """Make SIGTERM and SIGHUP a Ctrl-C until the robot is put to rest, and nothing from then on.

        LeRobot's commands other than its rollout die of these signals, and leave the arm with its torque on. What was
        there before is there again at the end of the ``with`` block.
        """
        if threading.current_thread() is not threading.main_thread():
            return

        def interrupt(*_: Any) -> None:
            if not self._resting:
                self._interrupted += 1
                raise KeyboardInterrupt

        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is None or (before := signal.getsignal(number)) in (signal.SIG_IGN, None):
                continue
            signal.signal(number, interrupt)
            self._body.callback(signal.signal, number, before)

    def _rest_at(self, *ends: tuple[Any, str]) -> None:
        """Say which calls, each an owner and the name of a method, begin to put the robot to rest."""

        def around(inner: Call, _: Hook, __: bool) -> Call:
            @functools.wraps(inner)
            def call(*args: Any, **kwargs: Any) -> Any:
                self._resting = True
                return inner(*args, **kwargs)

            return call

        self._body.enter_context(Attached([Hook(owner, name, "") for owner, name in ends], around))

    def _unwatched(self, error: Exception) -> None:
        """Let the run go on without probes, and say why."""
        self.let_go()
        self.notes.append(f"the run was not watched: {type(error).__name__}: {error}"[:300])

    def _swap(self, owner: Any, name: str, value: Any) -> None:
        """Put ``value`` in the place of ``owner.name`` until the end of the ``with`` block."""
        self._body.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    def _replaced(self, owner: Any, name: str, value: Any) -> None:
        """Put ``value`` in the place of ``owner.name`` until the probes come off."""
        self._probes.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    def _attached(self, hooks: list[Hook]) -> None:
        """A section around each hook."""
        self._probes.enter_context(Attached(hooks, lambda inner, hook, _: self._timed(inner, hook.name)))

    def _around(self, hook: Hook, around: Callable[[Call], Call]) -> None:
        self._probes.enter_context(Attached([hook], lambda inner, _, __: functools.wraps(inner)(around(inner))))

    def _timed(self, inner: Call, name: str) -> Call:
        """A section around ``inner``: what `section` records, at half its cost, where nothing is ever compiled."""
        append, ident = self.log.append, threading.get_ident

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            start = host_ns()
            try:
                return inner(*args, **kwargs)
            finally:
                append(("s", name, start, host_ns(), ident()))

        return call

    def _processors(self, names: dict[int, str], told: str | Call = "s") -> None:
        """A section around each of LeRobot's processors, whose ``id`` tells its name.

        Args:
            told: stands before name, start, end and thread in what is appended: the event's kind, or a function that
                makes events of them.
        """
        append, ident, name_of = self.log.append, threading.get_ident, names.get

        def around(inner: Call) -> Call:
            # One function for all: each further one costs the loop some µs, cold as its code is in every tick.
            # Its one argument is passed on as such: packing and unpacking it would double its price.
            def call(pipeline: Any, data: Any) -> Any:
                name = name_of(id(pipeline))
                if name is None:
                    return inner(pipeline, data)
                start = host_ns()
                try:
                    return inner(pipeline, data)
                finally:
                    append((told, name, start, host_ns(), ident()))

            return call

        self._around(Hook(DataProcessorPipeline, "__call__", ""), around)

    def _over(self, now: int) -> bool:
        """Whether the time to record is over; then every probe is off."""
        if not self._until or now <= self._until:
            return False
        self.stopped = True
        self.log.append(("end", now))
        self.let_go()
        return True

    def _ticking(self, bare: Call) -> Call:
        """Record the observation, which begins a tick, as a section."""
        append, keep, ident, values = self.log.append, self.keep, threading.get_ident, several(self.joints)

        def call(*args: Any, **kwargs: Any) -> Any:
            now = host_ns()
            if self._until and now > self._until and self._over(now):
                return bare(*args, **kwargs)
            append(("tick", now))
            try:
                found = bare(*args, **kwargs)
            except BaseException:
                append(("s", OBSERVATION, now, host_ns(), ident()))
                raise
            end = host_ns()
            append((_observed, now, end, ident(), list(map(float, values(found)))))
            if keep is not None:
                keep((now, found))
            return found

        return call

    def _camera(self, name: str, camera: Any) -> None:
        probe = CameraProbe(name, f"{CAMERA} {name}", camera, self.log.append)
        for method in ("read_latest", "async_read"):
            if hasattr(camera, method):
                self._around(Hook(camera, method, CAMERA), probe.reading)

    def _buses(self, buses: Mapping[str, Any]) -> None:
        """The robot's motors, read and written; of each arm, where ``buses`` has several by name."""
        for arm, bus in buses.items():
            read, written = (f"{name} {arm}".rstrip() for name in (MOTORS_READ, MOTORS_WRITTEN))
            probe = BusProbe(bus, self.log.append, read, arm)
            self._around(Hook(bus, "sync_read", read), probe.reading)
            if hasattr(reader := getattr(bus, "sync_reader", None), "txRxPacket"):
                self._around(Hook(reader, "txRxPacket", ""), probe.trying)
            if hasattr(bus, "sync_write"):
                self._attached([Hook(bus, "sync_write", written)])

    def _commanding(self, bare: Call, picks: bool = False) -> Call:
        """``picks``: an action that is sent is the one that the tick has."""
        append, ident, joints = self.log.append, threading.get_ident, self.joints
        values = several(joints)

        def call(*args: Any, **kwargs: Any) -> Any:
            start, told = host_ns(), []
            try:
                sent = bare(*args, **kwargs)
            except BaseException:
                append((_sent, start, host_ns(), ident(), told, picks))
                raise
            end = host_ns()
            if isinstance(sent, dict):
                try:
                    told = list(map(float, values(sent)))
                except KeyError:  # some of the joints
                    told = [float(sent[name]) for name in joints if name in sent]
            append((_sent, start, end, ident(), told, picks))
            return sent

        return call

    def _recording(self, bare: Call) -> Call:
        append, ident = self.log.append, threading.get_ident

        def call(*args: Any, **kwargs: Any) -> Any:
            start = host_ns()
            try:
                found = bare(*args, **kwargs)
            except BaseException:
                append(("s", RECORD, start, host_ns(), ident()))
                raise
            append((_recorded, start, host_ns(), ident()))
            return found

        return call


def _observed(start: int, end: int, thread: int, at: list[float]) -> list[Event]:
    section = ("s", OBSERVATION, start, end, thread)
    return [section, ("at", at)] if at else [section]


def _sent(start: int, end: int, thread: int, told: list[float], picks: bool) -> list[Event]:
    found: list[Event] = [("pick", start, 1)] if picks else []
    found.append(("s", ACTION, start, end, thread))
    return [*found, ("sent", told)] if told else found


def _recorded(start: int, end: int, thread: int) -> list[Event]:
    return [("s", RECORD, start, end, thread), ("frame", end)]


def several(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """A function that returns the values of ``names`` in a mapping, of which it may lack none."""
    if len(names) > 1:
        return operator.itemgetter(*names)  # no function of Python's: it costs a tick nothing to call
    return lambda found: tuple(found[name] for name in names)


def sleeps(modules: Iterable[Any]) -> list[Hook]:
    """Hooks on the sleep at a tick's end, in ``modules`` or in LeRobot's timer."""
    return [Hook(one, "precise_sleep", SLEEP) for one in versions.sleeping(modules)]


def standing_in(module: ModuleType, **changed: Any) -> ModuleType:
    """A module with the names of ``module``, some of them ``changed``; in its place for one importer alone."""
    made = ModuleType(module.__name__)
    vars(made).update(vars(module) | changed)
    return made


def given(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    """An argument, however it was passed; None where it was not."""
    return args[place] if len(args) > place else kwargs.get(name)
