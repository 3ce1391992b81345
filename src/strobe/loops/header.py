"""The first line of an event file: the facts about a run that its events do not tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from strobe.policies.families.registry import registered
from strobe.results.rollout import EngineName
from strobe.results.subject import SubjectInfo


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
        compiled: --use_torch_compile.
        chunk: actions of a chunk.
        share: --chunk_size_threshold of a client.
        latency: --inference_latency of a server, in seconds.
        arguments: of the command; None where the policy cannot be built again.
        policy: its folder or Hub id.
        made: flags that make a policy of random weights again.
        rtc: fields of LeRobot's RTCConfig.
        warmups: calls that torch.compile warms up with.
        executed: n_action_steps of the policy.
        observation_features: shape of each camera by name, None of a number.
    """

    subject: SubjectInfo
    robot: str
    strategy: str
    engine: EngineName
    fps: float
    main: int
    command: str = "lerobot-rollout"
    device: str = "cpu"
    multiplier: int = 1
    dataset_fps: float | None = None
    threshold: int | None = None
    horizon: int | None = None
    guided: bool = False
    can_rtc: bool = False
    joints: list[str] = field(default_factory=list)
    compiled: bool = False
    chunk: int | None = None
    share: float | None = None
    latency: float | None = None
    arguments: list[str] | None = None
    policy: str = ""
    made: list[str] = field(default_factory=list)
    task: str | None = None
    rtc: dict[str, Any] | None = None
    warmups: int = 2
    executed: int | None = None
    observation_features: dict[str, list[int] | None] = field(default_factory=dict)
    action_features: list[str] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: Any) -> Header:
        """Return the header that ``data``, read from JSON, describes. Raises ValueError where it describes none."""
        return _ADAPTER.validate_python(data)

    def to_json(self) -> dict[str, Any]:
        """Return the header as JSON data. Raises ValueError where a value has none."""
        return _ADAPTER.dump_python(self, mode="json", warnings=False)


_ADAPTER = TypeAdapter(Header)


def subject_of(
    kind: str, source: str, inputs: str, parameters: int = 0, weight_bytes: int = 0, **more: Any
) -> SubjectInfo:
    """Return what a run shows of its policy of type ``kind``, or of the robot that has none.

    Args:
        source: a folder, a Hub id, or 'random weights'.
        inputs: where observations come from, in words.
        more: further fields of `SubjectInfo`.
    """
    family = registered(kind)
    return SubjectInfo(
        name=kind,
        kind=kind,
        source=source,
        inputs=inputs,
        parameters=parameters,
        weight_bytes=weight_bytes,
        anatomy=family.name if family is not None and family.probes is not None else "modules",
        **more,
    )
