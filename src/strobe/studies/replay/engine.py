"""LeRobot's inference engines on a clock of ours: stand-ins for what their module takes time and threads from.

The queue and the tracker are LeRobot's own classes with a few lines around them, which tell the loop of merges and,
where that is asked for, mend what its pull request 4454 mends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from lerobot.rollout.inference import RTCInferenceConfig, SyncInferenceConfig, create_inference_engine, rtc
from lerobot.utils.feature_utils import build_dataset_frame

from strobe.studies.replay.settings import Brain, Setting, rtc_config


class Loop(Protocol):
    """The control loop, as the stand-ins see it."""

    setting: Setting
    now: float
    queue: Any

    def advance(self, until: float) -> None: ...
    def look(self) -> None: ...
    def merged(self, queue: Any, delay: int, executed: int) -> None: ...


def engine_for(setting: Setting, brain: Brain) -> Any:
    config: Any = SyncInferenceConfig()
    if setting.engine == "rtc":
        config = RTCInferenceConfig(rtc=rtc_config(setting.rtc), queue_threshold=setting.threshold)
    return create_inference_engine(
        config,
        policy=brain.policy,
        preprocessor=brain.preprocessor,
        postprocessor=brain.postprocessor,
        robot_wrapper=brain.robot,
        hw_features=brain.hw_features,
        dataset_features=brain.dataset_features,
        ordered_action_keys=brain.keys,
        task=brain.task,
        fps=setting.fps,
        device=brain.device,
        use_torch_compile=setting.warmups > 0,
        compile_warmup_inferences=setting.warmups,
    )


def guide(policy: Any, setting: Setting) -> None:
    """Set the policy up for Real-Time Chunking or not, as LeRobot does when a rollout begins."""
    if setting.engine == "rtc" or hasattr(policy.config, "rtc_config"):
        policy.config.rtc_config = rtc_config(setting.rtc) if setting.engine == "rtc" else None
    if hasattr(policy, "init_rtc_processor"):
        policy.init_rtc_processor()


def stand_ins(loop: Loop, threads: list[Any]) -> dict[str, Any]:
    """The names in LeRobot's module that the clock, the thread, the queue and the tracker come from."""

    class Clock:
        def __getattr__(self, name: str) -> Any:
            return getattr(time, name)

        def perf_counter(self) -> float:
            return loop.now / 1e9

        def sleep(self, seconds: float) -> None:
            loop.advance(loop.now + seconds * 1e9)

    class Thread:
        """Its function is run by the caller."""

        def __init__(self, target: Callable[[], None], **_: Any) -> None:
            self.target = target
            threads.append(self)

        def start(self) -> None:
            pass

        def join(self, timeout: float | None = None) -> None:
            pass

        def is_alive(self) -> bool:
            return False

    plain: Any = rtc.ActionQueue
    clamped = loop.setting.mended

    class Queue(plain):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            loop.queue = self

        def qsize(self) -> int:
            loop.look()
            return super().qsize()

        def left(self) -> int:
            return super().qsize()

        def merge(
            self, original: Any, processed: Any, real_delay: int, index: int | None = None, *more: Any, **named: Any
        ) -> None:
            executed = 0 if index is None else self.last_index - index
            delay = max(0, min(real_delay, executed)) if clamped else real_delay
            super().merge(original, processed, delay, index, *more, **named)
            loop.merged(self, delay, executed)

    def frame_of(features: Any, observation: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        return build_dataset_frame(features, observation(), *args, **kwargs)

    names = {"time": Clock(), "Thread": Thread, "ActionQueue": Queue, "LatencyTracker": _tracker(loop.setting)}
    return names | {"build_dataset_frame": frame_of}


def _tracker(setting: Setting) -> Any:
    plain: Any = rtc.LatencyTracker

    class Tracker(plain):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._first = setting.mended

        def add(self, latency: float) -> None:
            if self._first:  # the first call is slow for reasons of its own
                self._first = False
                return
            super().add(latency)

        def max(self) -> float | None:
            if setting.delay == "p95":
                return self.p95()
            if setting.delay == "max":
                return super().max()
            return max(0.0, int(setting.delay) - 0.5) / setting.fps  # the engine rounds up

    return Tracker


def mended(setting: Setting) -> dict[str, Any]:
    """The padding of a short prefix as LeRobot's pull request 4454 pads it: its last action is held."""
    name = "_normalize_prev_actions_length"
    plain = getattr(rtc, name, None)
    if not setting.mended or plain is None:
        return {}

    def held(actions: torch.Tensor, target_steps: int) -> torch.Tensor:
        missing = target_steps - len(actions)
        if missing <= 0 or not len(actions):
            return plain(actions, target_steps=target_steps)
        return torch.cat([actions, actions[-1:].expand(missing, -1)])

    return {name: held}
