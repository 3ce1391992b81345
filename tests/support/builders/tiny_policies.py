"""Tiny policies with random weights, on the CPU."""

from __future__ import annotations

from typing import Any

from strobe.lerobot.policies.options import Size

KINDS = ("act", "diffusion", "smolvla", "pi0", "pi05")


def load_tiny_subject(kind: str, *overrides: str, inputs: Any = None, **fields: Any) -> Any:
    """Load a policy of ``kind`` as a subject; ``inputs`` are its `InputOptions`, or ``fields`` their fields."""
    from strobe.lerobot.policies.loading import load_subject
    from strobe.lerobot.policies.options import InputOptions, PolicyOptions

    options = PolicyOptions(type=kind, size="tiny", overrides=["--device=cpu", *overrides])
    return load_subject(options, inputs or InputOptions(**fields))


def load_short_subject(kind: str, *overrides: str, **fields: Any) -> Any:
    """Load a tiny policy of ``kind`` as a subject, with two denoising steps where it has such."""
    from strobe.core.families.capabilities import LiveFields
    from strobe.core.families.registry import find_family

    steps = LiveFields.from_family(find_family(kind)).steps
    return load_tiny_subject(kind, *([f"--{steps}=2"] if steps else []), *overrides, **fields)


def build(kind: str, *overrides: str, size: Size = "tiny", seed: int = 0) -> tuple[Any, Any, Any]:
    """A policy of ``kind`` with synthetic inputs: (config, inputs, loaded)."""
    from strobe.lerobot.policies import inputs, lerobot_policies

    config = lerobot_policies.config_from_type(kind, ["--device=cpu", *overrides])
    made = inputs.synthetic(config, tiny=size == "tiny")
    return config, made, lerobot_policies.load(config, made, size=size, seed=seed)
