"""The anatomy of LeRobot's policy server, run as it is, with probes.

Threads of gRPC's pool answer the client: one receives an observation, unpickles it and decides whether it is worth a
call; another waits for one, asks the policy, pickles the chunk and sleeps up to ``--inference_latency``. Which thread
does what changes from call to call. Beside the events of `rollout_loop`, times in nanoseconds of `host_ns`:

    role thread name                       from here on, the thread does what is called so
    observed start end bytes decision must_go     an observation came; decision: see `remote_stamps`
    served taken end bytes key             a chunk was made and sent

What it sends along with its answers, as stamps: of an observation when its call began, when it was received and when
unpickled, when the call ended, and the decision; of a chunk when the call began, when its observation was taken, when
inputs were prepared, preprocessed, predicted and postprocessed, when the chunk was pickled, when the call ended.
"""

from __future__ import annotations

import functools
import pickle
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from lerobot.processor.pipeline import DataProcessorPipeline

from strobe.lerobot.flags import parsed, patched_arguments
from strobe.loops import remote_stamps
from strobe.loops.event_log import Log, opener
from strobe.loops.instrument import SLEEP, Call, Watching, standing_in
from strobe.loops.remote_stamps import KEPT, PREDICTED, REPLACED, SIMILAR, key_of
from strobe.loops.rollout import CHUNK, POSTPROCESSING, PREPARE, PREPROCESSING
from strobe.policies import lerobot_policies
from strobe.policies.families.registry import family_of, registered
from strobe.results.subject import SubjectInfo
from strobe.timeline import sections
from strobe.timeline.clock import host_ns
from strobe.timeline.probe import Attached, Hook

COMMAND = "policy_server"
RECEIVE, UNPICKLE, DECIDE, PICKLE = "receive", "unpickle observation", "decide", "pickle actions"
INFERENCE, RECEIVING = "inference", "receiving"  # roles


def config(argv: Sequence[str]) -> Any:
    """The config that LeRobot's policy server makes of ``argv``; nothing is served. Raises UserError."""
    arguments = remote_stamps.arguments_of(COMMAND, argv)
    from lerobot.async_inference.configs import PolicyServerConfig

    with patched_arguments(arguments, COMMAND):
        return parsed(arguments, PolicyServerConfig, lambda _: None, COMMAND)


def main() -> None:
    """Run the server, with the arguments that are lent to it, and with plug-ins, which LeRobot's own has none of."""
    from lerobot.async_inference.policy_server import serve
    from lerobot.utils.import_utils import register_third_party_plugins

    register_third_party_plugins()
    serve()  # pyright: ignore[reportCallIssue]  # reads the command line for itself


class ServerWatch(Watching):
    """Watches one run of LeRobot's policy server in this process; what is recorded begins with its first policy."""

    def __init__(self, log: Log, depth: int = 1, record_s: float = 1800.0) -> None:
        super().__init__(log, record_s)
        self.depth = depth
        self.endless = True
        self._policy = ExitStack()  # probes on the policy that is served now
        self._on = False
        self._here = threading.local()  # of the call that a thread answers: its marks, and what it found

    def __enter__(self) -> Self:
        from lerobot.async_inference import policy_server as module

        self._module = module
        server = module.PolicyServer
        # gRPC keeps the handlers that it finds when the server begins: these stay, and pass through when not on.
        for name, around in (
            ("SendPolicyInstructions", self._instructed),
            ("SendObservations", self._observing),
            ("GetActions", self._serving),
            ("_enqueue_observation", self._deciding),
            ("_predict_action_chunk", self._predicting),
        ):
            self._swap(server, name, _method(around, getattr(server, name)))
        self._interruptible()
        return self

    def let_go(self) -> None:
        self._on = False
        self._policy.close()
        super().let_go()

    def _instructed(self, inner: Call, server: Any, *args: Any, **kwargs: Any) -> Any:
        self._policy.close()
        found = inner(server, *args, **kwargs)
        if server.policy is None or self.stopped:
            return found
        try:
            first = not self._until
            if first:
                self._attach()
                path = pickle.loads(args[0].data).pretrained_name_or_path  # as the server did a moment ago
                self.log.start(header_of(server, str(path)))
                self.begin()
            self._on = True
            self._attach_policy(server)
        except Exception as error:
            self._unwatched(error)
        return found

    def _attach(self) -> None:
        module = self._module
        shim = standing_in(
            pickle,
            dumps=self._marking(self._sizing(pickle.dumps), PICKLE),
            loads=self._marking(pickle.loads, UNPICKLE),
        )
        self._replaced(module, "pickle", shim)
        self._replaced(module, "time", standing_in(time, sleep=self._timed(time.sleep, SLEEP)))
        for name, section in (
            ("receive_bytes_in_chunks", RECEIVE),
            ("raw_observation_to_observation", PREPARE),
        ):
            self._replaced(module, name, self._marking(self._sizing(getattr(module, name)), section))
        self._replaced(module, "observations_similar", self._comparing(module.observations_similar))
        self._probes.callback(sections.put_on(opener(self.log.append)))

    def _attach_policy(self, server: Any) -> None:
        names = {id(server.preprocessor): PREPROCESSING, id(server.postprocessor): POSTPROCESSING}
        hook = Hook(DataProcessorPipeline, "__call__", "")
        self._policy.enter_context(Attached([hook], lambda inner, _, __: self._processing(names, inner)))
        hook = Hook(server, "_get_action_chunk", CHUNK)
        self._policy.enter_context(Attached([hook], lambda inner, _, __: self._marking(inner, CHUNK)))
        try:
            parts = family_of(server.policy, server.policy_type).hooks(server.policy, training=False, depth=self.depth)
            self._policy.enter_context(Attached(parts))
        except Exception as error:
            self.notes.append(f"the policy's parts are not told: {error}"[:300])

    def _processing(self, names: dict[int, str], inner: Call) -> Call:
        marked = {number: self._marking(inner, name) for number, name in names.items()}

        @functools.wraps(inner)
        def call(pipeline: Any, *args: Any, **kwargs: Any) -> Any:
            return marked.get(id(pipeline), inner)(pipeline, *args, **kwargs)

        return call

    def _marking(self, inner: Call, name: str) -> Call:
        """A section around ``inner``, whose end is also a mark of the call that this thread answers."""
        timed, here = self._timed(inner, name), self._here

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            found = timed(*args, **kwargs)
            if (marks := getattr(here, "marks", None)) is not None:
                marks[name] = host_ns()
            return found

        return call

    def _sizing(self, inner: Call) -> Call:
        """``inner``, whose bytes are counted."""
        here = self._here

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            found = inner(*args, **kwargs)
            if isinstance(found, bytes):
                here.size = len(found)
            return found

        return call

    def _comparing(self, inner: Call) -> Call:
        here = self._here

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> bool:
            here.similar = inner(*args, **kwargs)
            return here.similar

        return call

    # What gRPC calls.

    def _observing(self, inner: Call, server: Any, request: Any, context: Any) -> Any:
        if not self._on or self._over(host_ns()):
            return inner(server, request, context)
        start, here = host_ns(), self._here
        here.marks, here.size, here.decision, here.must_go = {}, 0, KEPT, False
        self.log.append(("role", threading.get_ident(), RECEIVING))
        try:
            return inner(server, request, context)
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
        kept = self._timed(inner, DECIDE)(server, observation)
        here.must_go = observation.must_go
        here.decision = (REPLACED if full else KEPT) if kept else (SIMILAR if here.similar else PREDICTED)
        return kept

    def _serving(self, inner: Call, server: Any, request: Any, context: Any) -> Any:
        if not self._on or self._over(host_ns()):
            return inner(server, request, context)
        start, here = host_ns(), self._here
        here.marks, here.size, here.key, here.taken, here.done, here.length = {}, 0, None, start, start, 0
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

    def _predicting(self, inner: Call, server: Any, observation: Any) -> Any:
        here = self._here
        if getattr(here, "marks", None) is None:
            return inner(server, observation)
        here.taken, here.key = host_ns(), key_of(observation.get_timestamp())
        found = inner(server, observation)
        here.done, here.length = host_ns(), len(found)
        return found


def _method(around: Call, inner: Call) -> Call:
    @functools.wraps(inner)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(inner, self, *args, **kwargs)

    return call


def header_of(server: Any, path: str) -> dict[str, Any]:
    """Facts about a run that events do not tell, as JSON data; of the first policy that it serves."""
    kind = server.policy_type
    family = registered(kind)
    info = SubjectInfo(
        name=kind,
        kind=kind,
        source=Path(path).name,
        inputs="observations that a robot client sends",
        anatomy=family.name if family is not None and family.probes is not None else "modules",
        **lerobot_policies.count(server.policy),
    )
    return {
        "command": COMMAND,
        "subject": info.model_dump(mode="json"),
        "robot": "a robot client",
        "device": str(server.device),
        "strategy": "serve",
        "engine": "server",
        "fps": float(server.config.fps),
        "multiplier": 1,
        "dataset_fps": None,
        "threshold": None,
        "latency": float(server.config.inference_latency),
        "chunk": int(server.actions_per_chunk),
        "horizon": None,
        "guided": False,
        "can_rtc": False,
        "joints": [],
        "main": threading.get_ident() if threading.current_thread() is threading.main_thread() else 0,
        "compiled": False,
    }
