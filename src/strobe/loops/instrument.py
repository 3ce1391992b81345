"""Watch a command of LeRobot from inside its process: what all watches share, and what those of a robot's loops do.

A probe takes no lock and computes nothing that the robot is given. What it records goes into a `Log`, as the events of
`strobe.loops.events`. After its sleep the loop finds its code cold: a call of a probe then costs it some
microseconds, several times what it costs in a tight loop. So a probe appends once, and as few functions as can be are
called in a tick.
"""

from __future__ import annotations

import functools
import math
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from lerobot.processor.pipeline import DataProcessorPipeline
from typing_extensions import Self

from strobe.core.errors import error_line
from strobe.core.timeline.clock import host_ns
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Attached, Hook
from strobe.lerobot import versions
from strobe.lerobot.quiet import scheduling
from strobe.loops.bench_calls import CallWatch
from strobe.loops.device_probes import BusProbe, CameraProbe, cpu_use
from strobe.loops.event_log import Log
from strobe.loops.events import Row

OBSERVATION, CAMERA, ACTION = "observation", "camera", "action"
PROCESS_OBSERVATION, PROCESS_ACTION = "process observation", "process action"
RECORD, SAVE, SLEEP = "record frame", "save episode", "sleep"
MOTORS_READ, MOTORS_WRITTEN = "read motors", "write motors"
LEADER_READ, LEADER_WRITTEN = "read leader motors", "write leader motors"


class Instrument:
    """Probes on one run of a command, inside ``with``.

    Names of the command's module stay replaced until the end of the block. The probes may come off earlier.
    """

    def __init__(self) -> None:
        self._body, self._probes = ExitStack(), ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.let_go()
        self._body.close()

    def let_go(self) -> None:
        """Take every probe off."""
        self._probes.close()

    def _replace(self, owner: object, name: str, value: object, stack: ExitStack | None = None) -> None:
        """Put ``value`` in place of ``owner.name`` until the end of the ``with`` block, or until ``stack`` closes."""
        (stack or self._body).callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    def _stand_in(
        self, importer: object, module: ModuleType, stack: ExitStack | None = None, **changed: object
    ) -> None:
        """Let ``importer`` alone have ``module`` with some of its names ``changed``, as long as `_replace` does."""
        made = ModuleType(module.__name__)
        vars(made).update(vars(module) | changed)
        self._replace(importer, module.__name__, made, stack)

    def _wrap(self, owner: object, name: str, around: Call, stack: ExitStack | None = None) -> None:
        """Call ``around`` in place of ``owner.name``, with that and its arguments, as long as `_replace` does."""
        inner = getattr(owner, name)

        @functools.wraps(inner, updated=())
        def call(*args: object, **kwargs: object) -> object:
            return around(inner, *args, **kwargs)

        self._replace(owner, name, call, stack)


class LoopWatch(Instrument):
    """Probes on one run of a robot's loop, inside ``with``, and how the run ended.

    Args:
        log: where events go; started once the robot is connected.
        depth: levels of the policy's parts, where a policy runs in this process.
        record_s: after so many seconds the probes come off and the run goes on by itself.
        keep: called with each tick's start and observation; must return at once. None: they are not recorded.

    Attributes:
        notes: what could not be watched, and why.
        failed: the last error of a thread of LeRobot's own that gave up.
        stopped: the time to record was over before the run was.
        joints: names in the observation whose values are noted in each tick; none: no positions are.
        calls: calls the policy again once the run is over (see `bench_calls`); None if nothing can.
        torque: of each arm whose driver shows it, as it was left; noted until ``released`` closes.
        endless: the command runs until it is interrupted, which then is its ordinary end.
    """

    def __init__(self, log: Log, depth: int = 1, record_s: float = 1800.0, keep: Call | None = None) -> None:
        super().__init__()
        self.log, self.depth, self.record_s, self.keep = log, depth, record_s, keep
        self.notes: list[str] = []
        self.failed: str | None = None
        self.stopped = False
        self.endless = False
        self.joints: list[str] = []
        self.calls: CallWatch | None = None
        self.torque: dict[str, str] = {}
        self.released = ExitStack()
        self._interrupted, self._signals = 0, None  # LeRobot's own answer to signals, where it has one
        self._resting = False  # the robot is being put to rest, which nothing may disturb
        self._until = 0
        self._log_scheduling()

    @property
    def signals(self) -> int:
        """Signals and interrupts that came, however LeRobot dealt with them."""
        return self._interrupted + getattr(self._signals, "counter", 0)

    def __exit__(self, *exception: object) -> None:
        self._log_scheduling()
        super().__exit__(*exception)

    def begin(self) -> None:
        """Log that the loop begins, on the thread that runs it."""
        self._log_scheduling()
        self.log.append(("run", host_ns()))
        self.log.append(("turns", host_ns(), *cpu_use()))
        if self._until:
            return  # another segment of an interactive session
        self._until = host_ns() + round(self.record_s * 1e9)
        if timer := versions.timer():
            self._body.enter_context(Attached([Hook(timer, "log_run_summary", "")], self._reporting))

    def end(self) -> None:
        """Log that the loop is over, on the thread that ran it, and take every probe off."""
        self._log_scheduling()
        self.log.append(("turns", host_ns(), *cpu_use()))
        self.log.append(("end", host_ns()))
        self.let_go()

    def _log_scheduling(self) -> None:
        """Log the scheduling policy of this thread: an encoder may change it."""
        if (policy := scheduling()) is not None:
            self.log.append(("scheduled", host_ns(), *policy))

    def _reporting(self, inner: Call, _: Hook, __: bool) -> Call:
        append = self.log.append

        @functools.wraps(inner)
        def call(timer: Any, *args: object, **kwargs: object) -> object:
            report = getattr(timer, "_report", None)
            if report is None:
                return inner(timer, *args, **kwargs)

            def log_and_report(text: str) -> None:
                append(("cadence", text))
                report(text)

            timer._report = log_and_report
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

        def interrupt(*_: object) -> None:
            if not self._resting:
                self._interrupted += 1
                raise KeyboardInterrupt

        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is None or (before := signal.getsignal(number)) in (signal.SIG_IGN, None):
                continue
            signal.signal(number, interrupt)
            self._body.callback(signal.signal, number, before)

    def _watch_loop_end(self, *ends: tuple[object, str]) -> None:
        """Take the first of these calls, each an owner and the name of a method, as the end of the loop.

        It begins to put the robot to rest.
        """

        def wrap_call(inner: Call, _: Hook, __: bool) -> Call:
            @functools.wraps(inner)
            def call(*args: object, **kwargs: object) -> object:
                self._resting = True
                return inner(*args, **kwargs)

            return call

        self._body.enter_context(Attached([Hook(owner, name, "") for owner, name in ends], wrap_call))

    def _continue_unwatched(self, error: Exception) -> None:
        self.let_go()
        self.notes.append(f"Strobe could not watch the run: {type(error).__name__}: {error}"[:300])

    def _time(self, hooks: list[Hook]) -> None:
        self._probes.enter_context(Attached(hooks, lambda inner, hook, _: self._wrap_in_section(inner, hook.name)))

    def _wrap_calls(self, hook: Hook, around: Callable[[Call], Call]) -> None:
        self._probes.enter_context(Attached([hook], lambda inner, _, __: functools.wraps(inner)(around(inner))))

    def _wrap_in_section(self, inner: Call, name: str) -> Call:
        append, ident = self.log.append, threading.get_ident

        @functools.wraps(inner)
        def call(*args: object, **kwargs: object) -> object:
            start = host_ns()
            try:
                return inner(*args, **kwargs)
            finally:
                append(("s", name, start, host_ns(), ident()))

        return call

    def _time_processors(self, names: dict[int, str], kind: str | Call = "s") -> None:
        """Put a section around each of LeRobot's processors, which ``names`` names by their ``id``.

        Args:
            kind: stands before name, start, end and thread in what is appended: the event's kind, or a function that
                makes events of them.
        """
        append, ident, name_of = self.log.append, threading.get_ident, names.get

        def wrap_processor(inner: Call) -> Call:
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
                    append((kind, name, start, host_ns(), ident()))

            return call

        self._wrap_calls(Hook(DataProcessorPipeline, "__call__", ""), wrap_processor)

    def _is_time_over(self, now: int) -> bool:
        if not self._until or now <= self._until:
            return False
        self.stopped = True
        self.log.append(("end", now))
        self.let_go()
        return True

    def _ticking(self, bare: Call) -> Call:
        append, keep, ident, joints = self.log.append, self.keep, threading.get_ident, self.joints

        def call(*args: object, **kwargs: object) -> object:
            now = host_ns()
            if self._until and now > self._until and self._is_time_over(now):
                return bare(*args, **kwargs)
            append(("tick", now))
            at: list[float] = []
            try:
                observation = bare(*args, **kwargs)
                at = [float(observation[name]) for name in joints]
            finally:
                append((_observation_rows, now, host_ns(), ident(), at))
            if keep is not None:
                keep((now, observation))
            return observation

        return call

    def _camera(self, name: str, camera: object) -> None:
        probe = CameraProbe(name, f"{CAMERA} {name}", camera, self.log.append)
        for method in ("read_latest", "async_read"):
            if hasattr(camera, method):
                self._wrap_calls(Hook(camera, method, CAMERA), probe.reading)

    def _watch_torque(self, buses: Mapping[str, object]) -> None:
        """Note whether torque is switched off. On classes: an object that holds itself would keep its torque on."""
        arms = {id(bus): arm for arm, bus in buses.items() if hasattr(bus, "disable_torque")}
        self.torque = dict.fromkeys(arms.values(), "on: nothing switched it off")

        def switch_off(inner: Call, bus: object, motors: object = None, *args: object, **kwargs: object) -> object:
            arm = arms.get(id(bus))
            try:
                result = inner(bus, motors, *args, **kwargs)
            except BaseException as error:
                why = f"not known: switching it off ended in {type(error).__name__}: {error_line(error)}"
                self.torque |= {} if arm is None else {arm: why}
                raise
            self.torque |= {} if arm is None or motors else {arm: "off: the driver switched it off in each motor"}
            return result

        for kind in {type(bus) for bus in buses.values() if id(bus) in arms}:
            self._wrap(kind, "disable_torque", switch_off, self.released)

    def _buses(self, buses: Mapping[str, object]) -> None:
        self._watch_torque(buses)
        for arm, bus in buses.items():
            read, written = (f"{name} {arm}".rstrip() for name in (MOTORS_READ, MOTORS_WRITTEN))
            probe = BusProbe(bus, self.log.append, read, arm)
            self._wrap_calls(Hook(bus, "sync_read", read), probe.reading)
            if hasattr(reader := getattr(bus, "sync_reader", None), "txRxPacket"):
                self._wrap_calls(Hook(reader, "txRxPacket", ""), probe.trying)
            if hasattr(bus, "sync_write"):
                self._time([Hook(bus, "sync_write", written)])

    def _commanding(self, bare: Call, picks: bool = False) -> Call:
        append, ident, joints = self.log.append, threading.get_ident, self.joints

        def call(*args: object, **kwargs: object) -> object:
            start, asked, sent = host_ns(), args[-1] if args else kwargs.get("action"), None
            try:
                sent = bare(*args, **kwargs)
                return sent
            finally:
                both = [dict(each) for each in (sent, asked) if isinstance(each, dict)]
                append((_action_rows, start, host_ns(), ident(), joints, both, picks))

        return call

    def _recording(self, bare: Call) -> Call:
        append, inner = self.log.append, self._wrap_in_section(bare, RECORD)

        def call(*args: object, **kwargs: object) -> object:
            result = inner(*args, **kwargs)
            append(("frame", host_ns()))
            return result

        return call


def _observation_rows(start: int, end: int, thread: int, at: list[float]) -> list[Row]:
    return [("s", OBSERVATION, start, end, thread), *([("at", at)] if at else [])]


def _action_rows(
    start: int, end: int, thread: int, joints: list[str], both: list[dict[str, Any]], picks: bool
) -> list[Row]:
    """Return the events of a command that the robot took and was given: it may limit NaN to a number, or refuse it."""
    picked: list[Row] = [("pick", start, 1)] if picks else []
    told = [[float(each[name]) for each in both if name in each] for name in joints]
    command = [next((one for one in each if not math.isfinite(one)), each[0]) for each in told if each]
    return [*picked, ("s", ACTION, start, end, thread), *([("sent", command)] if command else [])]


def sleeps(modules: Iterable[object]) -> list[Hook]:
    """Return hooks on the sleep at a tick's end, in ``modules`` or in LeRobot's timer."""
    return [Hook(owner, "precise_sleep", SLEEP) for owner in versions.sleeping(modules)]


def find_argument(args: tuple[object, ...], kwargs: dict[str, object], place: int, name: str) -> Any:
    """Return an argument, however it was passed; None if it was not."""
    return args[place] if len(args) > place else kwargs.get(name)
