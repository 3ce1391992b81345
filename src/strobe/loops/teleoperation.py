"""The anatomy of ``lerobot-record`` and ``lerobot-teleoperate``: LeRobot's own loops, run as they are, with probes.

Both ask the robot for an observation and the leader for an action, and send it on; no policy takes part. Their events
are those of `strobe.loops.events`; a tick that sends an action has had one (``pick``).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from lerobot.scripts import lerobot_record, lerobot_teleoperate
from typing_extensions import Self

from strobe.core.timeline.clock import host_ns
from strobe.core.timeline.probe import Hook
from strobe.loops.device_probes import cpu_use, device_type, joint_limits, motor_buses, robot_cameras
from strobe.loops.event_log import Log
from strobe.loops.header import Header, argument, checked_arguments, make_subject, parse_config, require_rate
from strobe.loops.instrument import (
    ACTION,
    LEADER_READ,
    LEADER_WRITTEN,
    OBSERVATION,
    PROCESS_ACTION,
    PROCESS_OBSERVATION,
    RECORD,
    SAVE,
    Call,
    LoopWatch,
    sleeps,
)

LEADER, PROCESS_LEADER = "leader", "process leader action"
FRAME, DISPLAY = "build frame", "display"
NAMES = frozenset({LEADER, PROCESS_LEADER, FRAME, DISPLAY, LEADER_READ, LEADER_WRITTEN})

RECORDING, TELEOPERATING = "lerobot-record", "lerobot-teleoperate"
LOOPS: dict[str, tuple[ModuleType, str]] = {
    RECORDING: (lerobot_record, "record_loop"),
    TELEOPERATING: (lerobot_teleoperate, "teleop_loop"),
}


def led_config(command: str, argv: Sequence[str]) -> object:
    """The config that ``command``, of `LOOPS`, makes of ``argv``; nothing is connected. Raises UserError."""
    recording = command == RECORDING
    needed = ["robot.type", "teleop.type", *(["dataset.repo_id"] if recording else [])]
    kind: Any = lerobot_record.RecordConfig if recording else lerobot_teleoperate.TeleoperateConfig
    config = parse_config(checked_arguments(argv, command, *needed), command, kind)
    require_rate(config.dataset.fps if recording else config.fps, "--dataset.fps" if recording else "--fps")
    return config


class TeleopWatch(LoopWatch):
    """Watches one run of ``lerobot-record`` or ``lerobot-teleoperate`` in this process.

    Args:
        command: which of the two.
    """

    def __init__(
        self, command: str, log: Log, depth: int = 1, record_s: float = 1800.0, keep: Call | None = None
    ) -> None:
        super().__init__(log, depth, record_s, keep)
        self.command = command
        self._module, self._name = LOOPS[command]
        self._begun = False

    def __enter__(self) -> Self:
        self._wrap(self._module, self._name, self._run_loop)
        self._interruptible()
        return self

    def _run_loop(self, loop: Call, *args: object, **kwargs: object) -> object:
        """One turn of the loop: an episode, a reset between two, or all of a teleoperation.

        LeRobot names every argument; its loops are behind decorators that hide their signatures.
        """
        if not self._begun:
            self._begun = True
            try:  # the robot is connected: whatever happens here must not keep LeRobot from putting it to rest
                header = self._header(kwargs)
                ends = [(kwargs[name], "disconnect") for name in ("robot", "teleop")]
                ends.append((kwargs.get("dataset"), "finalize"))
                self._watch_loop_end(*(end for end in ends if hasattr(*end)))
                self.endless = self.command == TELEOPERATING and kwargs.get("duration") is None
                self._attach(kwargs)
                self.log.start(header)
                self.begin()
            except Exception as error:
                self._continue_unwatched(error)
        append = self.log.append
        append(("reset", host_ns()))
        self._log_scheduling()  # between two episodes the one before was encoded
        try:
            result = loop(*args, **kwargs)
        except BaseException as error:
            self._resting = True
            self._interrupted += isinstance(error, KeyboardInterrupt)
            self.end()  # what follows puts the robot to rest
            raise
        append(("turns", host_ns(), *cpu_use()))
        append(("reset", host_ns()))  # what follows is no tick: saving, speaking, or putting the robot to rest
        return result

    def _header(self, given: dict[str, Any]) -> Header:
        robot, leader, dataset = given["robot"], given["teleop"], given.get("dataset")
        leaders = " and ".join(map(device_type, leader if isinstance(leader, list) else [leader]))
        kind, led = argument("--robot.type") or device_type(robot), argument("--teleop.type") or leaders
        features = robot.observation_features
        self.joints = [name for name in robot.action_features if features.get(name) is float]
        return Header(
            command=self.command,
            subject=make_subject(kind, "no policy", f"the leader {led}, {len(robot_cameras(robot))} cameras"),
            robot=kind,
            strategy=led,
            engine="none",
            fps=float(given["fps"]),
            dataset_fps=dataset.fps if dataset is not None else None,
            joints=self.joints,
            limits=joint_limits(robot),
            main=threading.get_ident(),
        )

    def _attach(self, given: dict[str, object]) -> None:
        robot, leader, dataset = given["robot"], given["teleop"], given.get("dataset")
        leaders = leader if isinstance(leader, list) else [leader]
        hooks = sleeps([self._module])
        for arm in leaders:
            hooks.append(Hook(arm, "get_action", LEADER))
            for bus in motor_buses(arm, "get_action").values():
                pairs = (("sync_read", LEADER_READ), ("sync_write", LEADER_WRITTEN))
                hooks += [Hook(bus, name, of) for name, of in pairs if hasattr(bus, name)]
        if dataset is not None:
            hooks += [Hook(dataset, "save_episode", SAVE), Hook(self._module, "build_dataset_frame", FRAME)]
            self._wrap_calls(Hook(dataset, "add_frame", RECORD), self._recording)
        if given.get("display_data"):
            hooks.append(Hook(self._module, "log_visualization_data", DISPLAY))
        self._time(hooks)
        self._buses(motor_buses(robot))
        self._time_processors(
            {
                id(given["robot_observation_processor"]): PROCESS_OBSERVATION,
                id(given["teleop_action_processor"]): PROCESS_LEADER,
                id(given["robot_action_processor"]): PROCESS_ACTION,
            }
        )
        for name, camera in robot_cameras(robot).items():
            self._camera(name, camera)
        self._wrap_calls(Hook(robot, "get_observation", OBSERVATION), self._ticking)
        self._wrap_calls(Hook(robot, "send_action", ACTION), functools.partial(self._commanding, picks=True))
