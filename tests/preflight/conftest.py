"""A policy, a data set and a robot that fit together; each test plants its own fault in a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.builders.arm_policy import save_act
from support.builders.stage import Wired, make_wired


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an ACT with random weights."""
    folder = tmp_path_factory.mktemp("policy")
    save_act(folder, 64, 64)
    return folder


@pytest.fixture
def stage(policy: Path, tmp_path: Path) -> Wired:
    """It executes 10 actions of a chunk of 30, at 30 Hz."""
    return make_wired(policy, tmp_path)
