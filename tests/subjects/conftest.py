"""Shared by the tests of the subjects: everything is tiny, on the CPU, and never asks the Hub."""

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

KINDS = ("act", "diffusion", "smolvla", "pi0", "pi05")


def build(kind: str, *overrides: str, size: str = "tiny", seed: int = 0):
    """A policy of ``kind`` with synthetic inputs: (config, inputs, loaded)."""
    from strobe.subjects import inputs, policies

    config = policies.config_from_type(kind, ["--device=cpu", *overrides])
    made = inputs.synthetic(config, tiny=size == "tiny")
    return config, made, policies.load(config, made, size=size, seed=seed)


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from strobe.subjects.scripted_pusht import record_pusht

    return record_pusht(tmp_path_factory.mktemp("pusht") / "data", episodes=2, frames=12, image=96)
