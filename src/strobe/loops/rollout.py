"""The anatomy of ``lerobot-rollout``: its config, and LeRobot's own loop and inference engines with probes.

What the loop calls becomes sections, what passes between its threads becomes other events
(`strobe.loops.events`), all as tuples in a `Log`. A probe takes no lock and computes nothing that the robot is
given. Where one cannot be attached the robot runs without.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lerobot.policies.rtc import ActionQueue
from lerobot.rollout import RolloutConfig
from lerobot.rollout.inference import rtc
from lerobot.rollout.robot_wrapper import ThreadSafeRobot
from lerobot.rollout.strategies import core
from lerobot.scripts import lerobot_rollout as loop
from lerobot.utils.action_interpolator import ActionInterpolator
from typing_extensions import Self

from strobe.core.errors import UserError
from strobe.core.families.registry import policy_family
from strobe.core.timeline import sections
from strobe.core.timeline.clock import host_ns
from strobe.core.timeline.probe import Attached, Hook
from strobe.lerobot import versions
from strobe.lerobot.policies import lerobot_policies
from strobe.lerobot.versions import actions_left
from strobe.loops.bench_calls import CallWatch
from strobe.loops.device_probes import motor_buses, robot_cameras
from strobe.loops.event_log import LastError, Log, opener
from strobe.loops.events import Row
from strobe.loops.header import checked_arguments, make_header, parse_config, require_rate
from strobe.loops.instrument import (
    ACTION,
    MOTORS_READ,
    MOTORS_WRITTEN,
    OBSERVATION,
    PROCESS_ACTION,
    PROCESS_OBSERVATION,
    RECORD,
    SAVE,
    SLEEP,
    Call,
    LoopWatch,
    find_argument,
    sleeps,
)

COMMAND = "lerobot-rollout"
PREPARE, PREPROCESSING, POSTPROCESSING = "prepare inputs", "preprocessing", "postprocessing"
GET_ACTION, SELECT, CHUNK = "get action", "select action", "predict chunk"
MERGE = "merge into the queue"
TELEMETRY, QUERY = "telemetry", "query"
NAMES = frozenset(
    {OBSERVATION, MOTORS_READ, PROCESS_OBSERVATION, PROCESS_ACTION, PREPARE, PREPROCESSING, POSTPROCESSING, GET_ACTION}
    | {SELECT, CHUNK, MERGE, ACTION, MOTORS_WRITTEN, RECORD, SAVE, TELEMETRY, QUERY, SLEEP}
)


class RolloutWatch(LoopWatch):
    """Watches one run of ``lerobot-rollout`` in this process, inside ``with RolloutWatch(log) as watch:``."""

    _call_watch: CallWatch  # of the context that the probes are attached to

    def __init__(self, log: Log, depth: int = 1, record_s: float = 1800.0, keep: Call | None = None) -> None:
        super().__init__(log, depth, record_s, keep)
        self._engine: Any = None
        self._context: Any = None
        self._latest: tuple[object, int] = (None, 0)  # the queue's actions, and the number of their chunk
        self._errors = LastError(lambda: log.append(("raised", host_ns())))

    def __enter__(self) -> Self:
        for name, around in (
            ("build_rollout_context", self._build_context),
            ("create_strategy", self._strategy),
            ("ProcessSignalHandler", self._handler),
        ):
            self._wrap(loop, name, around)
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if self._engine is not None and getattr(self._engine, "failed", False):
            self.failed = self._errors.text or "the inference thread gave up"
        self._engine = self._context = None  # the robot switches its torque off when nobody holds it any more
        self._latest = (None, 0)

    # What LeRobot's main calls before its loop.

    def _handler(self, inner: Call, *args: object, **kwargs: object) -> object:
        self._signals = inner(*args, **kwargs)
        return self._signals

    def _build_context(self, inner: Call, config: object, *args: object, **kwargs: object) -> object:
        context = inner(config, *args, **kwargs)
        try:  # the robot is connected: whatever happens here must not keep LeRobot from putting it to rest
            header = make_header(context)
            self._context = context
            self.attach(context)
            self.log.start(header)
        except Exception as error:
            self._continue_unwatched(error)
        return context

    def _strategy(self, inner: Call, *args: object, **kwargs: object) -> object:
        strategy = inner(*args, **kwargs)
        run = strategy.run

        def run_watched(*args: object, **kwargs: object) -> object:
            if self._until and not self.stopped:  # another segment of an interactive session
                try:
                    self.attach(self._context)
                except Exception as error:
                    self._continue_unwatched(error)
            self.begin()
            try:
                return run(*args, **kwargs)
            except KeyboardInterrupt:  # after which LeRobot ends as if nothing was
                self._interrupted += 1
                raise
            finally:
                self.end()  # what follows puts the robot to rest

        strategy.run = run_watched
        return strategy

    # The probes.

    def attach(self, context: Any) -> None:
        """Attach every probe to what LeRobot's ``build_rollout_context`` made."""
        self._engine = context.policy.inference
        self.calls = self._call_watch = CallWatch(context, self.log.append)
        robot, policy = context.hardware.robot_wrapper.inner, context.policy.policy
        multiplier = context.runtime.cfg.interpolation_multiplier
        base = getattr(policy, "get_base_model", lambda: policy)()  # PEFT's wrapper
        joints, features = context.data.ordered_action_keys, robot.observation_features
        self.joints = list(joints) if all(features.get(name) is float for name in joints) else []
        self._wrap_calls(Hook(ThreadSafeRobot, "send_action", ACTION), self._commanding)
        hooks: list[Hook] = []
        if context.runtime.cfg.display_data:
            hooks.append(Hook(core.RolloutStrategy, "_log_telemetry", TELEMETRY))
        package = core.__name__.rpartition(".")[0]  # of strategies: each holds the loop's functions under its own names
        hooks += sleeps([module for name, module in list(sys.modules.items()) if name.startswith(f"{package}.")])
        hooks.append(Hook(rtc, "prepare_observation_for_inference", PREPARE))
        dataset = context.data.dataset
        if dataset is not None:
            hooks.append(Hook(dataset, "save_episode", SAVE))
            self._wrap_calls(Hook(dataset, "add_frame", RECORD), self._recording)
        names = {
            id(context.processors.robot_observation_processor): PROCESS_OBSERVATION,
            id(context.processors.robot_action_processor): PROCESS_ACTION,
            id(context.policy.preprocessor): PREPROCESSING,
            id(context.policy.postprocessor): POSTPROCESSING,
        }
        self._time(hooks)
        threaded = hasattr(self._engine, "_action_queue")
        steps = None if threaded else Steps()
        self._time_processors(names, "s" if steps is None else steps.processor_events)
        for name, camera in robot_cameras(robot).items():
            self._camera(name, camera)
        self._buses(motor_buses(robot))
        self._wrap_calls(Hook(ThreadSafeRobot, "get_observation", OBSERVATION), self._ticking)
        self._wrap_calls(
            Hook(self._engine, "get_action", GET_ACTION), self._getting(base, steps, picks=multiplier == 1)
        )
        if threaded:  # of one that asks the policy in the loop, it does nothing
            self._wrap_calls(Hook(self._engine, "notify_observation", ""), self._noting)
        self._wrap_calls(Hook(self._engine, "reset", ""), self._resetting)
        if hasattr(self._engine, versions.QUERY):
            self._time([Hook(self._engine, versions.QUERY, QUERY)])
        if multiplier > 1:
            self._wrap_calls(Hook(ActionInterpolator, "get", ""), self._picking)
        self._wrap_calls(Hook(rtc, "build_dataset_frame", PREPARE), self._taking)
        self._wrap_calls(Hook(policy, "predict_action_chunk", CHUNK), self._predicting)
        self._wrap_calls(Hook(ActionQueue, "merge", MERGE), self._merging)
        try:
            parts = policy_family(base, context.runtime.cfg.policy.type).hooks(base, training=False, depth=self.depth)
            self._probes.enter_context(Attached(parts))
        except Exception as error:
            self.notes.append(f"the policy's parts are not timed: {error}"[:300])
        logger = logging.getLogger(rtc.__name__)
        logger.addHandler(self._errors)
        self._body.callback(logger.removeHandler, self._errors)
        self._probes.callback(sections.apply_opener(opener(self.log.append)))

    def _getting(self, policy: object, steps: Steps | None, picks: bool) -> Callable[[Call], Call]:
        """``steps``: of an engine that asks the policy in the loop. ``picks``: the tick sends what it gets here.

        LeRobot makes a new action each time and changes none, so the writing thread may read it. It may not read one on
        a device, since it would wait for that in the middle of other work. A tick leaves out Strobe's own functions.
        """
        append, engine, used = self.log.append, self._engine, self._call_watch
        chunks, ident, own = [0], threading.get_ident, vars(policy).get
        rows_of = _get_rows if steps is None else steps.get_rows

        def wrap_call(inner: Call) -> Call:
            def from_queue(*args: object, **kwargs: object) -> object:
                start = host_ns()
                action = inner(*args, **kwargs)
                queue = engine._action_queue
                held, number, depth, at = None if queue is None else queue.queue, self._latest[1], 0, 0
                if held is not None and queue is not None:
                    if held is not self._latest[0]:
                        number += 1  # merged this moment
                    at = queue.last_index
                    depth = len(held) - at
                    if at == 0 and action is not None:
                        number -= 1  # merged since: the action was the last one of the chunk before
                end = host_ns()
                values = action if action is None or action.is_cpu else action.tolist()
                append((_get_rows, start, end, ident(), values, depth, number, at - 1, picks))
                return action

            def from_policy(*args: object, **kwargs: object) -> object:
                queue = own("_action_queue")
                before, start = actions_left(policy) if queue is None else len(queue), host_ns()
                if before <= 0:
                    used.begin(args, kwargs)
                action = inner(*args, **kwargs)
                end, queue = host_ns(), own("_action_queue")
                after = actions_left(policy) if queue is None else len(queue)
                if before <= 0:
                    used.end()
                    chunks[0] += 1
                values = action if action is None or action.is_cpu else action.tolist()
                append((rows_of, start, end, ident(), values, after, chunks[0], int(before > 0), picks))
                return action

            return from_queue if steps is None else from_policy

        return wrap_call

    def _predicting(self, bare: Call) -> Call:
        append, inner = self.log.append, self._wrap_in_section(bare, CHUNK)

        def call(*args: object, **kwargs: Any) -> object:
            self._call_watch.options = kwargs
            assumed, left = kwargs.get("inference_delay"), kwargs.get("prev_chunk_left_over")
            start = host_ns()
            actions = inner(*args, **kwargs)
            shape = getattr(actions, "shape", ())
            length = shape[-2] if len(shape) > 1 else 1
            append(("call", start, host_ns(), assumed, None if left is None else len(left), length))
            return actions

        return call

    def _merging(self, bare: Call) -> Call:
        append, inner = self.log.append, self._wrap_in_section(bare, MERGE)

        def call(queue: Any, *args: object, **kwargs: object) -> object:
            before, at = queue.qsize(), queue.last_index
            self._call_watch.end()
            result = inner(queue, *args, **kwargs)
            held = queue.queue
            self._latest = (held, self._latest[1] + 1)
            processed = find_argument(args, kwargs, 1, "processed_actions")
            delay = find_argument(args, kwargs, 2, "real_delay")
            index = find_argument(args, kwargs, 3, "action_index_before_inference")
            length, after = (0 if actions is None else len(actions) for actions in (processed, held))
            executed = 0 if index is None else at - index
            append(("merge", host_ns(), delay or 0, before, executed, length, after - queue.last_index))
            return result

        return call

    def _noting(self, inner: Call) -> Call:
        append = self.log.append

        def call(*args: object, **kwargs: object) -> object:
            append(("seen", host_ns(), id(args[0] if args else kwargs.get("obs"))))
            return inner(*args, **kwargs)

        return call

    def _taking(self, bare: Call) -> Call:
        append, inner = self.log.append, self._wrap_in_section(bare, PREPARE)

        def call(*args: object, **kwargs: object) -> object:
            append(("taken", host_ns(), id(find_argument(args, kwargs, 1, "values"))))
            self._call_watch.begin(args, kwargs)
            return inner(*args, **kwargs)

        return call

    def _picking(self, inner: Call) -> Call:
        append = self.log.append

        def call(interpolator: object) -> object:
            action = inner(interpolator)
            append(("pick", host_ns(), int(action is not None)))
            return action

        return call

    def _resetting(self, inner: Call) -> Call:
        append = self.log.append

        def call(*args: object, **kwargs: object) -> object:
            append(("reset", host_ns()))
            return inner(*args, **kwargs)

        return call


class Steps:
    """The steps of an engine that asks the policy in the loop, from those that are probed; on the log's thread.

    Inputs are prepared until they are preprocessed, and the policy selects from then until the action is postprocessed.
    Probes of their own would cost a tick more than they tell.
    """

    def __init__(self) -> None:
        self._processed: dict[str, tuple[int, int]] = {}  # the last start and end of each processor

    def processor_events(self, name: str, start: int, end: int, thread: int) -> list[Row]:
        """Return the events of a processor's call."""
        self._processed[name] = start, end
        return [("s", name, start, end, thread)]

    def get_rows(self, start: int, end: int, thread: int, *action: Any) -> list[Row]:
        """Return the events of a call for an action, which returned ``action``; see `_get_rows`."""
        rows: list[Row] = []
        (begun, ready), (over, _) = (self._processed.get(name, (0, 0)) for name in (PREPROCESSING, POSTPROCESSING))
        if start <= begun <= ready <= over:
            rows = [("s", PREPARE, start, begun, thread), ("s", SELECT, ready, over, thread)]
        return [*rows, *_get_rows(start, end, thread, *action)]


def _get_rows(
    start: int, end: int, thread: int, action: Any, depth: int, chunk: int, position: int, picks: bool
) -> list[Row]:
    returned = int(action is not None)
    rows: list[Row] = [("s", GET_ACTION, start, end, thread), ("get", start, end, returned, depth, chunk, position)]
    if returned:
        rows.append(("values", end, action if isinstance(action, list) else action.tolist()))
    return [*rows, ("pick", end, returned)] if picks else rows


def rollout_config(argv: Sequence[str]) -> RolloutConfig:
    """The config that ``lerobot-rollout`` makes of ``argv``; nothing is connected or loaded.

    Raises:
        UserError: an unknown flag (with the nearest known one), a value of the wrong kind or that LeRobot refuses, no
            robot, no policy or one that is not there.
    """
    # Policies register themselves when they are imported; robots did, when LeRobot's script was.
    lerobot_policies.known_types()
    arguments = checked_arguments(argv, COMMAND, "robot.type", "policy.path")
    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    if "config_path" not in given:
        lerobot_policies.config_from_path(given["policy.path"], [])
    config = parse_config(arguments, COMMAND, RolloutConfig)
    require_rate(config.fps, "--fps")
    if config.interpolation_multiplier < 1:
        raise UserError(f"--interpolation_multiplier={config.interpolation_multiplier}: must be at least 1")
    return config
