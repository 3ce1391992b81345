"""The anatomy of LeRobot's policy server, run unchanged, with probes.

Threads of gRPC's pool answer the client: one receives an observation, unpickles it and decides whether it is worth a
call; another waits for one, calls the policy, pickles the chunk and sleeps up to ``--inference_latency``. Which thread
does what changes from call to call.

What it sends along with its answers, as stamps: of an observation when its call began, when it was received and when
unpickled, when the call ended, and the decision; of a chunk when the call began, when its observation was taken, when
inputs were prepared, preprocessed, predicted and postprocessed, when the chunk was pickled, when the call ended.
"""

from __future__ import annotations

import functools
import math
import pickle
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lerobot.processor.pipeline import DataProcessorPipeline
from typing_extensions import Self

from strobe.core.families.registry import policy_family
from strobe.core.timeline import sections
from strobe.core.timeline.clock import host_ns
from strobe.core.timeline.probe import Attached, Hook
from strobe.lerobot.policies import lerobot_policies
from strobe.loops import remote_stamps
from strobe.loops.event_log import Log, opener
from strobe.loops.events import Row
from strobe.loops.header import Header, make_subject, parse_config
from strobe.loops.instrument import SLEEP, Call, LoopWatch
from strobe.loops.remote_stamps import KEPT, PREDICTED, REPLACED, SIMILAR, observation_key
from strobe.loops.rollout import CHUNK, POSTPROCESSING, PREPARE, PREPROCESSING

COMMAND = "policy_server"
RECEIVE, UNPICKLE, DECIDE, PICKLE = "receive", "unpickle observation", "decide", "pickle actions"
INFERENCE, RECEIVING = "inference", "receiving"  # roles


def config(argv: Sequence[str]) -> object:
    """The config that LeRobot's policy server makes of ``argv``; nothing is served. Raises UserError."""
    arguments = remote_stamps.parse_arguments(COMMAND, argv)
    from lerobot.async_inference.configs import PolicyServerConfig

    return parse_config(arguments, COMMAND, PolicyServerConfig)


def main() -> None:
    """Run the server, with the arguments that are lent to it, and with plug-ins, which LeRobot's own has none of."""
    from lerobot.async_inference.policy_server import serve
    from lerobot.utils.import_utils import register_third_party_plugins

    register_third_party_plugins()
    serve()  # pyright: ignore[reportCallIssue]  # reads the command line for itself


class ServerWatch(LoopWatch):
    """Watches one run of LeRobot's policy server in this process; what is recorded begins with its first policy."""

    def __init__(self, log: Log, depth: int = 1, record_s: float = 1800.0, keep: Call | None = None) -> None:
        super().__init__(log, depth, record_s, keep)
        self.endless = True
        self._policy = ExitStack()  # probes on the policy that is served now
        self._on = False
        self._here = threading.local()  # of the call that a thread answers: its marks, sizes and decision

    def __enter__(self) -> Self:
        from lerobot.async_inference import policy_server as module

        self._module = module
        server = module.PolicyServer
        # gRPC keeps the handlers that it finds when the server begins: these stay, and pass through when not on.
        for name, around in (
            ("SendPolicyInstructions", self._receive_instructions),
            ("SendObservations", self._observing),
            ("GetActions", self._serving),
            ("_enqueue_observation", self._deciding),
            ("_predict_action_chunk", self._predicting),
        ):
            self._wrap(server, name, around)
        self._interruptible()
        return self

    def let_go(self) -> None:
        self._on = False
        self._policy.close()
        super().let_go()

    def _receive_instructions(self, inner: Call, server: Any, *args: Any, **kwargs: object) -> object:
        self._policy.close()
        try:
            result = inner(server, *args, **kwargs)
        except Exception as error:
            self._failing("SendPolicyInstructions", error)
            raise
        if server.policy is None or self.stopped:
            return result
        try:
            first = not self._until
            if first:
                self._attach()
                path = pickle.loads(args[0].data).pretrained_name_or_path  # as the server did a moment ago
                self.log.start(make_header(server, str(path)))
                self.begin()
            self._on = True
            self._attach_policy(server)
        except Exception as error:
            self._continue_unwatched(error)
        return result

    def _failing(self, request: str, error: Exception) -> list[str]:
        failure = remote_stamps.describe_failure(error)
        if self._until:
            self.log.append(("failed", host_ns(), request, *failure))
        else:
            self.notes.append(f"{request} failed: {failure[0]} ({failure[1]})")
        return failure

    def _attach(self) -> None:
        module = self._module
        self._stand_in(
            module,
            pickle,
            self._probes,
            dumps=self._marking(self._sizing(pickle.dumps), PICKLE),
            loads=self._marking(pickle.loads, UNPICKLE),
        )
        self._stand_in(module, time, self._probes, sleep=self._wrap_in_section(time.sleep, SLEEP))
        for name, section in ("receive_bytes_in_chunks", RECEIVE), ("raw_observation_to_observation", PREPARE):
            self._replace(module, name, self._marking(self._sizing(getattr(module, name)), section), self._probes)
        self._replace(module, "observations_similar", self._comparing(module.observations_similar), self._probes)
        self._probes.callback(sections.apply_opener(opener(self.log.append)))

    def _attach_policy(self, server: Any) -> None:
        names = {id(server.preprocessor): PREPROCESSING, id(server.postprocessor): POSTPROCESSING}
        hook = Hook(DataProcessorPipeline, "__call__", "")
        self._policy.enter_context(Attached([hook], lambda inner, _, __: self._processing(names, inner)))
        hook = Hook(server, "_get_action_chunk", CHUNK)
        self._policy.enter_context(Attached([hook], lambda inner, _, __: self._marking(inner, CHUNK)))
        try:
            parts = policy_family(server.policy, server.policy_type).hooks(
                server.policy, training=False, depth=self.depth
            )
            self._policy.enter_context(Attached(parts))
        except Exception as error:
            self.notes.append(f"the policy's parts are not timed: {error}"[:300])

    def _processing(self, names: dict[int, str], inner: Call) -> Call:
        marked = {number: self._marking(inner, name) for number, name in names.items()}

        @functools.wraps(inner)
        def call(pipeline: Any, *args: object, **kwargs: object) -> object:
            return marked.get(id(pipeline), inner)(pipeline, *args, **kwargs)

        return call

    def _marking(self, inner: Call, name: str) -> Call:
        """A section around ``inner``, whose end is also a mark of the call that this thread answers."""
        timed, here = self._wrap_in_section(inner, name), self._here

        @functools.wraps(inner)
        def call(*args: object, **kwargs: object) -> object:
            result = timed(*args, **kwargs)
            if (marks := getattr(here, "marks", None)) is not None:
                marks[name] = host_ns()
            return result

        return call

    def _sizing(self, inner: Call) -> Call:
        """``inner``, whose bytes are counted."""
        here = self._here

        @functools.wraps(inner)
        def call(*args: object, **kwargs: object) -> object:
            result = inner(*args, **kwargs)
            if isinstance(result, bytes):
                here.size = len(result)
            return result

        return call

    def _comparing(self, inner: Call) -> Call:
        here = self._here

        @functools.wraps(inner)
        def call(*args: object, **kwargs: object) -> bool:
            here.similar = inner(*args, **kwargs)
            return here.similar

        return call

    # What gRPC calls.

    def _observing(self, inner: Call, server: object, request: object, context: object) -> object:
        if not self._on or self._is_time_over(host_ns()):
            return inner(server, request, context)
        start, here = host_ns(), self._here
        here.marks, here.size, here.decision, here.must_go = {}, 0, KEPT, False
        self.log.append(("role", threading.get_ident(), RECEIVING))
        try:
            return inner(server, request, context)
        except Exception as error:
            self._failing("SendObservations", error)
            raise
        finally:
            end, marks = host_ns(), here.marks
            here.marks = None
            if UNPICKLE in marks:
                self.log.append(("observed", start, end, here.size, here.decision, int(here.must_go)))
                remote_stamps.send(context, [start, marks.get(RECEIVE, start), marks[UNPICKLE], end, here.decision])

    def _deciding(self, inner: Call, server: Any, observation: Any) -> bool:
        here = self._here
        if getattr(here, "marks", None) is None:
            return inner(server, observation)
        here.similar, full = False, server.observation_queue.full()
        accepted = self._wrap_in_section(inner, DECIDE)(server, observation)
        here.must_go = observation.must_go
        here.decision = (REPLACED if full else KEPT) if accepted else (SIMILAR if here.similar else PREDICTED)
        return accepted

    def _serving(self, inner: Call, server: object, request: object, context: object) -> object:
        if not self._on or self._is_time_over(host_ns()):
            return inner(server, request, context)
        start, here = host_ns(), self._here
        here.marks, here.size, here.key, here.taken, here.done, here.length = {}, 0, None, start, start, 0
        here.failure = None
        self.log.append(("role", threading.get_ident(), INFERENCE))
        try:
            return inner(server, request, context)
        finally:
            end, marks = host_ns(), here.marks
            here.marks = None
            if here.key is not None and PICKLE in marks:
                taken, done, length = here.taken, here.done, here.length
                self.log.append(("taken", taken, here.key))
                self.log.append(("merge", end, 0, 0, 0, length, length))
                self.log.append(("served", taken, end, here.size, here.key))
                between = [marks.get(name, taken) for name in (PREPARE, PREPROCESSING, CHUNK)]
                remote_stamps.send(context, [start, taken, *between, done, marks[PICKLE], end])
            elif here.failure is not None:
                remote_stamps.send(context, here.failure, remote_stamps.FAILURE)

    def _predicting(self, inner: Call, server: object, observation: Any) -> object:
        here = self._here
        if getattr(here, "marks", None) is None:
            return inner(server, observation)
        here.taken, here.key = host_ns(), observation_key(observation.get_timestamp())
        try:
            result = inner(server, observation)
        except Exception as error:  # LeRobot logs its message, which may be empty, and answers with nothing
            here.failure = self._failing("GetActions", error)
            raise
        here.done, here.length = host_ns(), len(result)
        self.log.append((_value_rows, here.done, result))
        return result


def _value_rows(at: int, actions: Sequence[Any]) -> list[Row]:
    """Return the event of a chunk's first action with a number that is not finite; of its first where it has none."""
    values = [each.get_action().flatten().tolist() for each in actions]
    return [("values", at, next((one for one in values if not all(map(math.isfinite, one))), values[0]))]


def make_header(server: Any, path: str) -> Header:
    """Return the header of a server's run, of the first policy that it serves."""
    on_main = threading.current_thread() is threading.main_thread()
    return Header(
        command=COMMAND,
        subject=make_subject(
            server.policy_type,
            Path(path).name,
            "observations that a robot client sends",
            **lerobot_policies.count(server.policy),
        ),
        robot="a robot client",
        device=str(server.device),
        strategy="serve",
        engine="server",
        fps=float(server.config.fps),
        latency=float(server.config.inference_latency),
        chunk=int(server.actions_per_chunk),
        main=threading.get_ident() if on_main else 0,
    )
