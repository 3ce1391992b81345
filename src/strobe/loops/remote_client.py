"""The anatomy of LeRobot's robot client, run unchanged, with probes: observations go to a server, actions come back.

The control thread takes an action from the queue, and below a threshold sends an observation, which holds it until the
server has received it. A second thread waits for chunks and puts them into the queue.
"""

from __future__ import annotations

import functools
import pickle
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Self

from strobe.core.timeline.clock import host_ns
from strobe.core.timeline.probe import Hook
from strobe.loops import remote_stamps
from strobe.loops.device_probes import device_type, motor_buses, robot_cameras
from strobe.loops.event_log import Log
from strobe.loops.header import Header, checked_arguments, make_subject, parse_config
from strobe.loops.instrument import ACTION, OBSERVATION, SLEEP, Call, LoopWatch
from strobe.loops.observations import jpeg, time_repeated
from strobe.loops.remote_stamps import observation_key

COMMAND = "robot_client"
PICKLE, SEND = "pickle observation", "send observation"
WAIT, UNPICKLE, MERGE = "wait for actions", "unpickle actions", "merge into the queue"
NAMES = frozenset({PICKLE, SEND})
REMEMBERED = 1000  # observations on their way
JOIN_S = 5.0  # seconds that the receiver may take to end, once its connection is closed
TRIED = 10  # times that the last images are encoded


def config(argv: Sequence[str]) -> object:
    """The config that LeRobot's robot client makes of ``argv``; nothing is connected. Raises UserError."""
    arguments = remote_stamps.parse_arguments(COMMAND, argv)
    from lerobot.async_inference.robot_client import RobotClientConfig

    return parse_config(checked_arguments(arguments, COMMAND, "robot.type"), COMMAND, RobotClientConfig)


def main() -> None:
    """Run the client, with the arguments that are lent to it."""
    from lerobot.async_inference.robot_client import async_client
    from lerobot.utils.import_utils import register_third_party_plugins

    register_third_party_plugins()
    async_client()  # pyright: ignore[reportCallIssue]  # reads the command line for itself


class _Receiver(threading.Thread):
    """The client's receiving thread, for which LeRobot waits without a limit after the robot is disconnected.

    A signal raises KeyboardInterrupt between any two steps of the main thread, also between the end of a block of gRPC
    and the release of its lock. Then the receiver waits for that lock for ever.
    """

    def __init__(self, notes: list[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._notes = notes

    def join(self, timeout: float | None = None) -> None:
        super().join(JOIN_S if timeout is None else timeout)
        if timeout is None and self.is_alive():
            self._notes.append(f"the client's receiving thread did not end within {JOIN_S:g} s")


class ClientWatch(LoopWatch):
    """Watches one run of LeRobot's robot client in this process."""

    def __init__(self, log: Log, depth: int = 1, record_s: float = 1800.0, keep: Call | None = None) -> None:
        super().__init__(log, depth, record_s, keep)
        self.endless = True
        self._sent: dict[int, int] = {}  # observations → when pickling them began
        self._current: tuple[int, int, bool] = (0, 0, False)  # key, bytes, must_go of the observation at hand
        self._came: tuple[int, int, int, list[int] | None] = (0, 0, 0, None)  # the chunk at hand
        self._latest: tuple[object, int] = (None, 0)  # the queue, and the number of its chunk
        self._shared = False
        self._images: list[np.ndarray] = []
        self._refused: str | None = None  # gRPC's status of the request to begin

    def __enter__(self) -> Self:
        from lerobot.async_inference import robot_client as module

        self._module = module
        client = module.RobotClient
        self._wrap(client, "start", self._start_client)
        self._wrap(client, "control_loop", self._run_loop)
        self._stand_in(module, threading, Thread=functools.partial(_Receiver, self.notes))
        self._interruptible()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if self._images:  # the robot is at rest
            try:
                self.log.append(("encoding", len(self._images), *measure_encodings(self._images)))
            except Exception as error:
                self.notes.append(f"not judged: images as JPEG: {error}"[:300])
        self._images = []
        self._latest = (None, 0)

    def _start_client(self, inner: Call, client: Any, *args: object, **kwargs: object) -> object:
        try:  # the robot is connected: whatever happens here must not keep LeRobot from putting it to rest
            header = make_header(client)
            self._attach(client)
            self.log.start(header)
        except Exception as error:
            self._continue_unwatched(error)
        result = inner(client, *args, **kwargs)
        if not result:
            self.notes.append(self._start_failure_reason(client.server_address))
        return result

    def _start_failure_reason(self, address: str) -> str:
        if not self._refused:
            return f"no policy server at {address}, or it refused the policy; LeRobot's message is above"
        if self._refused.startswith("UNAVAILABLE"):
            return f"no policy server at {address}: {self._refused}"
        return f"the policy server at {address} refused the policy: {self._refused}"

    def _run_loop(self, inner: Call, client: object, *args: object, **kwargs: object) -> object:
        self.begin()
        try:
            return inner(client, *args, **kwargs)
        finally:
            self._resting = True
            # The receiver waits there for this thread to come. Interrupted before, it never does, and LeRobot would
            # wait for the receiver without end.
            if (barrier := getattr(client, "start_barrier", None)) is not None:
                barrier.abort()
            self.end()  # what follows puts the robot to rest

    def _attach(self, client: Any) -> None:
        module, robot = self._module, client.robot
        self._stand_in(module, time, self._probes, sleep=self._wrap_in_section(time.sleep, SLEEP))
        self._stand_in(
            module,
            pickle,
            self._probes,
            dumps=self._wrap_in_section(self._pickling(pickle.dumps), PICKLE),
            loads=self._wrap_in_section(pickle.loads, UNPICKLE),
        )
        self._time([Hook(robot, "get_observation", OBSERVATION)])
        self._buses(motor_buses(robot))
        for name, camera in robot_cameras(robot).items():
            self._camera(name, camera)
        self._wrap_calls(Hook(robot, "send_action", ACTION), self._acting)
        self._wrap_calls(Hook(client, "actions_available", ""), functools.partial(self._beginning, client))
        self._wrap_calls(Hook(client, "send_observation", ""), self._sending)
        for name in ("Ready", "SendPolicyInstructions"):
            self._wrap_calls(Hook(client.stub, name, ""), self._wrap_start)
        self._wrap_calls(Hook(client.stub, "SendObservations", SEND), self._uploading)
        self._wrap_calls(Hook(client.stub, "GetActions", WAIT), self._downloading)
        self._wrap_calls(Hook(client, "_aggregate_action_queues", MERGE), functools.partial(self._merging, client))

    def _beginning(self, client: Any, inner: Call) -> Call:
        append = self.log.append

        def call(*args: object, **kwargs: object) -> object:
            start = host_ns()
            if self._is_time_over(start):
                return inner(*args, **kwargs)
            append(("tick", start))
            got = bool(inner(*args, **kwargs))
            queue, number = client.action_queue, self._latest[1]
            if got and queue is not self._latest[0]:
                number += 1  # merged this moment
            append(("get", start, host_ns(), int(got), max(0, queue.qsize() - got), number, -1))
            append(("pick", host_ns(), int(got)))
            return got

        return call

    def _wrap_start(self, inner: Call) -> Call:
        def call(*args: object, **kwargs: object) -> object:
            try:
                return inner(*args, **kwargs)
            except Exception as error:
                self._refused = remote_stamps.grpc_status(error)
                raise

        return call

    def _failing(self, request: str, error: Exception) -> None:
        if not self._resting and (status := remote_stamps.grpc_status(error)):
            self.log.append(("failed", host_ns(), request, status, "", ""))

    def _acting(self, bare: Call) -> Call:
        append, inner = self.log.append, self._wrap_in_section(bare, ACTION)

        def call(action: Any, *args: object, **kwargs: object) -> object:
            append(("values", host_ns(), [float(value) for value in action.values()]))
            return inner(action, *args, **kwargs)

        return call

    def _sending(self, inner: Call) -> Call:
        append = self.log.append

        def call(observation: Any, *args: object, **kwargs: object) -> object:
            now, key = host_ns(), observation_key(observation.get_timestamp())
            self._sent[key] = now
            if len(self._sent) > REMEMBERED:
                self._sent.pop(next(iter(self._sent)))
            self._current = (key, 0, bool(observation.must_go))
            append(("seen", now, key))
            result = inner(observation, *args, **kwargs)
            arrays = [each for each in observation.get_observation().values() if isinstance(each, np.ndarray)]
            self._images = [each for each in arrays if each.dtype == np.uint8 and each.shape[2:] == (3,)]
            return result

        return call

    def _pickling(self, inner: Call) -> Call:
        def call(thing: Any, *args: object, **kwargs: object) -> bytes:
            made = inner(thing, *args, **kwargs)
            self._current = (self._current[0], len(made), self._current[2])
            return made

        return call

    def _uploading(self, bare: Call) -> Call:
        append, ident = self.log.append, threading.get_ident
        stamped = getattr(bare, "with_call", None)

        def call(*args: object, **kwargs: object) -> object:
            start, stamps = host_ns(), None
            try:
                if stamped is None:
                    return bare(*args, **kwargs)
                answer, done = stamped(*args, **kwargs)
                stamps = self._stamps(done)
                return answer
            except Exception as error:
                self._failing("SendObservations", error)
                raise
            finally:
                end = host_ns()
                key, size, must_go = self._current
                append(("s", SEND, start, end, ident()))
                append(("upload", key, self._sent.get(key, start), start, end, size, int(must_go), stamps))

        return call

    def _downloading(self, bare: Call) -> Call:
        stamped = getattr(bare, "with_call", None)
        timed = self._wrap_in_section(bare if stamped is None else stamped, WAIT)

        def call(*args: object, **kwargs: object) -> object:
            start = host_ns()
            try:
                answer, done = (timed(*args, **kwargs), None) if stamped is None else timed(*args, **kwargs)
            except Exception as error:
                self._failing("GetActions", error)
                raise
            if not answer.data:
                self.log.append(("empty", start, host_ns()))
            if done is not None and (failure := remote_stamps.failure_received(done)) is not None:
                self.log.append(("failed", host_ns(), "GetActions", *failure))
            stamps = None if done is None else self._stamps(done)
            self._came = (start, host_ns(), len(answer.data), stamps)
            return answer

        return call

    def _stamps(self, call: object) -> list[int] | None:
        stamps, there = remote_stamps.read_stamps(call)
        if stamps is not None and not self._shared and there and there == remote_stamps.boot():
            self._shared = True
            self.log.append(("shared", 1))
        return stamps

    def _merging(self, client: Any, bare: Call) -> Call:
        append, inner = self.log.append, self._wrap_in_section(bare, MERGE)

        def call(incoming: Any, *args: object, **kwargs: object) -> object:
            begin, before = host_ns(), client.action_queue.qsize()
            result = inner(incoming, *args, **kwargs)
            end, queue = host_ns(), client.action_queue
            self._latest = (queue, self._latest[1] + 1)
            if incoming:
                key = observation_key(incoming[0].get_timestamp())
                executed = max(0, client.latest_action - incoming[0].get_timestep())
                start, came, size, stamps = self._came
                append(("taken", self._sent.get(key, start), key))
                append(("merge", end, executed, before, executed, len(incoming), queue.qsize()))
                append(("trip", key, start, came, size, stamps, begin, end))
            return result

        return call


def measure_encodings(images: Sequence[np.ndarray]) -> tuple[int, int, int, int]:
    """Measure bytes and nanoseconds (packed and unpacked, median) of ``images``: pickled, then as JPEG of quality 95.

    Args:
        images: uint8, of shape (height, width, 3).
    """
    import cv2

    def jpeg_round_trip() -> int:
        packed = [jpeg(image) for image in images]
        for image in packed:
            cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
        return sum(map(len, packed))

    def raw() -> int:
        packed = pickle.dumps(list(images))
        pickle.loads(packed)
        return len(packed)

    return *time_repeated(raw, TRIED), *time_repeated(jpeg_round_trip, TRIED)


def make_header(client: Any) -> Header:
    """Return the header of a client's run."""
    config, robot = client.config, client.robot
    cameras = sum(isinstance(shape, tuple) for shape in robot.observation_features.values())
    return Header(
        command=COMMAND,
        subject=make_subject(
            config.policy_type,
            Path(str(config.pretrained_name_or_path)).name,
            f"the robot {device_type(robot)}, {cameras} cameras; the policy runs at {client.server_address}",
        ),
        robot=device_type(robot),
        strategy=config.aggregate_fn_name,
        engine="remote",
        fps=float(config.fps),
        threshold=int(config.chunk_size_threshold * config.actions_per_chunk),
        share=float(config.chunk_size_threshold),
        chunk=int(config.actions_per_chunk),
        guided=True,
        joints=list(robot.action_features),
        main=threading.get_ident(),
    )
