"""The first line of an event file: facts about a run that its events do not tell, and where a rollout gets them.

So does the config that LeRobot makes of a run's arguments, which is checked before the robot is connected.
"""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from lerobot.rollout.inference.rtc import supports_rtc_inference
from lerobot.utils.import_utils import register_third_party_plugins
from pydantic import Field, TypeAdapter

from strobe.core.errors import UserError
from strobe.core.families.registry import find_family
from strobe.core.results.subject import SubjectInfo
from strobe.core.runs.cache import compute_seal, is_sealed
from strobe.core.untrusted import JsonObject, parse_json
from strobe.lerobot.flags.lerobot_flags import join_flag_values, patched_arguments
from strobe.lerobot.flags.lerobot_flags import parse_config as parsed_flags
from strobe.lerobot.policies import lerobot_policies
from strobe.loops.device_probes import joint_limits
from strobe.loops.results.rollout import EngineName

Config = TypeVar("Config")

MADE = "made_with.json"  # next to a policy of random weights: the flags that make it again

# What a file may say: a loop's rate in Hz, and numbers of actions or calls.
Rate = Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


@dataclass(kw_only=True)
class Header:
    """Facts about one run of one of LeRobot's loops. A field that an older Strobe did not write has its default.

    Args:
        strategy: of lerobot-rollout; how a client aggregates chunks; the leader of a teleoperation.
        engine: 'sync', 'rtc', 'remote' (a robot client), 'server' (a policy server) or 'none' (a leader).
        fps: control ticks per second, as requested.
        main: identity of the control thread; 0 where there is none.
        multiplier: --interpolation_multiplier.
        threshold: actions left at which the next call begins.
        horizon: RTC's execution horizon.
        guided: whether a chunk replaces the one before, rather than being queued behind it.
        can_rtc: whether LeRobot can guide the policy by Real-Time Chunking.
        joints: names of the actions' numbers.
        limits: ends of the range of each of these joints that has a known one, in the robot's unit.
        compiled: --use_torch_compile.
        chunk: actions of a chunk.
        share: --chunk_size_threshold of a client.
        latency: --inference_latency of a server, in seconds.
        arguments: of the command; None if the policy cannot be built again.
        policy: its folder or Hub id.
        made: flags that make a policy of random weights again.
        rtc: fields of LeRobot's RTCConfig.
        warmups: calls that torch.compile warms up with.
        executed: n_action_steps of the policy.
        observation_features: shape of each camera by name, None of a number.
        ends: whether the log has a last line; see `event_log`.
        seal: of this user on this machine, on what a replay builds the policy from; '' if it could not be sealed.
    """

    subject: SubjectInfo
    robot: str
    strategy: str
    engine: EngineName
    fps: Rate
    main: int
    command: str = "lerobot-rollout"
    device: str = "cpu"
    multiplier: Annotated[int, Field(ge=1, le=1000)] = 1
    dataset_fps: Rate | None = None
    threshold: Count | None = None
    horizon: Count | None = None
    guided: bool = False
    can_rtc: bool = False
    joints: list[str] = field(default_factory=list)
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)
    compiled: bool = False
    chunk: Count | None = None
    share: float | None = None
    latency: float | None = None
    arguments: list[str] | None = None
    policy: str = ""
    made: list[str] = field(default_factory=list)
    task: str | None = None
    rtc: JsonObject | None = None
    warmups: Count = 2
    executed: Count | None = None
    observation_features: dict[str, list[int] | None] = field(default_factory=dict)
    action_features: list[str] = field(default_factory=list)
    ends: bool = field(default=False, compare=False)
    seal: str = ""

    @property
    def is_own(self) -> bool:
        """Whether this user recorded the run on this machine, by the seal: else what it names is a stranger's word."""
        return is_sealed(self._sealed_content, self.seal)

    @property
    def _sealed_content(self) -> JsonObject:
        return {"arguments": self.arguments, "policy": self.policy, "made": self.made}

    @classmethod
    def from_json(cls, data: object) -> Header:
        """Return the header that ``data``, read from JSON, describes. Raises ValueError where it describes none."""
        return _ADAPTER.validate_python(data)

    def to_json(self) -> JsonObject:
        """Return the header as JSON data. Raises ValueError where a value has none."""
        return _ADAPTER.dump_python(self, mode="json", warnings=False)


_ADAPTER = TypeAdapter(Header)


def make_subject(
    kind: str, source: str, inputs: str, parameters: int = 0, weight_bytes: int = 0, **more: Any
) -> SubjectInfo:
    """Return what a run shows of its policy of type ``kind``, or of the robot that has none.

    Args:
        source: a folder, a Hub id, or 'random weights'.
        inputs: where observations come from, in words.
        more: further fields of `SubjectInfo`.
    """
    family = find_family(kind)
    return SubjectInfo(
        name=kind,
        kind=kind,
        source=source,
        inputs=inputs,
        parameters=parameters,
        weight_bytes=weight_bytes,
        anatomy=family.name if family is not None and family.probes is not None else "modules",
        packages=lerobot_policies.packages_of_type(kind),
        **more,
    )


def make_header(context: Any) -> Header:
    """Return the header of a run of lerobot-rollout, from what its ``build_rollout_context`` made."""
    config, policy = context.runtime.cfg, context.policy.policy
    kind, path = config.policy.type, config.policy.pretrained_path
    robot = argument("--robot.type") or config.robot.type  # so100 and so101 are one class, which knows one name
    features = context.hardware.robot_wrapper.observation_features.values()
    engine = config.inference
    rtc_config = getattr(engine, "rtc", None)
    header = Header(
        subject=make_subject(
            kind,
            "random weights" if path is None else Path(str(path)).name,
            f"the robot {robot}, {sum(isinstance(shape, tuple) for shape in features)} cameras",
            **lerobot_policies.count(policy),
        ),
        robot=robot,
        device=str(config.device),
        strategy=config.strategy.type,
        engine=engine.type,
        fps=config.fps,
        multiplier=config.interpolation_multiplier,
        dataset_fps=config.dataset.fps if config.dataset is not None else None,
        threshold=getattr(engine, "queue_threshold", None),
        horizon=getattr(rtc_config, "execution_horizon", None),
        guided=bool(getattr(rtc_config, "enabled", False)),
        can_rtc=supports_rtc_inference(policy),
        joints=list(context.data.ordered_action_keys),
        limits=joint_limits(context.hardware.robot_wrapper.inner),
        main=threading.get_ident(),
        compiled=bool(config.use_torch_compile),
    )
    try:
        whole = replace(header, **_replay_fields(context))
        return replace(whole, seal=compute_seal(whole._sealed_content))
    except Exception:  # a LeRobot that keeps these elsewhere: the rest is worth having without them
        return header


def argument(flag: str) -> str | None:
    """Return the value of ``flag`` among the run's arguments."""
    given = [argument.partition("=")[2] for argument in sys.argv if argument.startswith(f"{flag}=")]
    return given[-1] if given else None


def _replay_fields(context: Any) -> JsonObject:
    config = context.runtime.cfg
    policy, robot = config.policy, context.hardware.robot_wrapper
    path = Path(str(policy.pretrained_path))
    rtc_config = getattr(config.inference, "rtc", None)
    kinds = ((name, kind) for name, kind in robot.observation_features.items() if kind is float or type(kind) is tuple)
    features = {name: list(kind) if isinstance(kind, tuple) else None for name, kind in kinds}
    return {
        "arguments": sys.argv[1:],  # lent to LeRobot's parser: those of lerobot-rollout
        "policy": str(path.resolve()) if path.exists() else str(path),
        "made": parse_json((path / MADE).read_text()) if (path / MADE).exists() else [],
        "task": config.dataset.single_task if config.dataset is not None else config.task,
        "rtc": None if rtc_config is None else json.loads(json.dumps(asdict(rtc_config), default=str)),
        "warmups": config.compile_warmup_inferences,
        "executed": getattr(policy, "n_action_steps", None),
        "chunk": getattr(policy, "chunk_size", None),
        "observation_features": features,  # of a camera its shape, of a number None
        "action_features": list(robot.action_features),
    }


_EXAMPLES = {
    "robot.type": "name the robot: --robot.type=so101_follower --robot.port=… (or another)",
    "teleop.type": "name the leader: --teleop.type=so101_leader --teleop.port=… (or another)",
    "policy.path": "name the policy: --policy.path=FOLDER_OR_HUB_ID",
    "dataset.repo_id": "name the data set: --dataset.repo_id=YOU/NAME --dataset.single_task=…",
}


def checked_arguments(argv: Sequence[str], command: str, *needed: str) -> list[str]:
    """Return ``argv`` as ``--a=1``. Raises UserError for help, and where one of the ``needed`` flags is missing."""
    register_third_party_plugins()
    arguments = join_flag_values(argv, command)
    given = {argument.removeprefix("--").split("=", 1)[0] for argument in arguments}
    if "help" in given:
        raise UserError(f"`{command} --help` lists its flags; Strobe's own flags come before the --")
    missing = [name for name in needed if name not in given and "config_path" not in given]
    if missing:
        raise UserError(_EXAMPLES[missing[0]])
    return arguments


def parse_config(arguments: list[str], command: str, config_class: type[Config]) -> Config:
    """Return the config that LeRobot's ``command`` makes of ``arguments``; nothing is connected. Raises UserError."""
    with patched_arguments(arguments, command):
        return parsed_flags(arguments, config_class, lambda _: None, command)


def require_rate(fps: float, flag: str) -> None:
    """Raises UserError for a rate that is no positive number."""
    if not 0 < fps < math.inf:
        raise UserError(f"{flag}={fps:g}: must be above 0")
