"""The requested changes of a replay, as the flags give them. Needs neither torch nor LeRobot."""

from __future__ import annotations

import dataclasses

PLAIN = ("fps", "interpolation_multiplier", "inference.type", "inference.queue_threshold", "policy.n_action_steps")
# Flags that only a policy can answer.
OF_POLICY = ("policy.", "device", "task", "rename_map")


def is_lerobots(name: str) -> bool:
    """Return whether a flag (without --) is one of lerobot-rollout's that a replay can change."""
    return name in PLAIN or name.startswith(("inference.", *OF_POLICY))


@dataclasses.dataclass(frozen=True)
class Changes:
    """Differences from the recorded run.

    Args:
        lerobot: flags of lerobot-rollout, name without -- → value.
        latency: 'recorded', 'x0.5', '+20', '-20' or '120' (milliseconds), or another recorded run.
        delay, mended: as of `Setting`; None: as in the run.
        recipe: the name of one that is put on the policy; '' without.
    """

    lerobot: dict[str, str] = dataclasses.field(default_factory=dict)
    latency: str = "recorded"
    delay: str | None = None
    mended: bool = False
    recipe: str = ""

    @property
    def any(self) -> bool:
        """Whether anything differs from the recorded run."""
        return (
            bool(self.lerobot)
            or self.latency != "recorded"
            or self.delay is not None
            or self.mended
            or bool(self.recipe)
        )

    @property
    def arguments(self) -> list[str]:
        """For lerobot-rollout."""
        return [f"--{name}={value}" for name, value in self.lerobot.items()]

    @property
    def of_policy(self) -> list[str]:
        """The flags that make it another policy, or the same one act otherwise."""
        named = [f"--{name}" for name in self.lerobot if name.startswith(OF_POLICY) and name not in PLAIN]
        return named + ["--recipe"] * bool(self.recipe)
