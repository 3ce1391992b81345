"""A copy that does not fit in memory is refused before any of it is taken: the system would end the process instead."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat
from torch import nn

from strobe.core.errors import UserError
from strobe.core.treatments import catalogue, room
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.engines import backends
from strobe.treatments.engines.backends import OpenVINO
from strobe.treatments.layers import packed

needs_kernels = pytest.mark.skipif(
    torch.bfloat16 not in packed.packable(torch.device("cpu")), reason="a CPU without kernels for weights of 16 bits"
)

MIB, GIB = 2**20, 2**30


@pytest.fixture(scope="module")
def policy() -> PolicySubject:
    return load_tiny_subject("act", cameras=1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROBE_CACHE", str(tmp_path))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch):
    """Leave ``free`` bytes of this machine, for treatments alone."""
    return lambda free: monkeypatch.setattr(room, "available_bytes", lambda: free)


@pytest.mark.parametrize(
    "spec", [{"precision": "bf16"}, {"int8": "dynamic"}, {"engine": "openvino", "engine.part": "model.backbone"}]
)
def test_a_copy_that_does_not_fit_is_refused_and_one_that_fits_is_made(policy, small, spec) -> None:
    small(1000)
    with pytest.raises(UserError, match=r"takes 0\.\d GiB more, and 0\.0 GiB are free on this machine$"):
        catalogue.make(spec).apply(policy)
    small(GIB)
    catalogue.make(spec).apply(policy)()


def test_a_stack_of_projections_that_does_not_fit_is_refused(small) -> None:
    smolvla = load_tiny_subject("smolvla", cameras=1)
    small(1000)
    with pytest.raises(UserError, match=r"a stack of the projections .* takes 0\.\d GiB more, and 0\.0 GiB are free"):
        catalogue.make({"projections": "fused"}).apply(smolvla)
    small(GIB)
    catalogue.make({"projections": "fused"}).apply(smolvla)()


@needs_kernels
def test_a_packed_copy_counts_beside_the_narrow_one(policy, small) -> None:
    with treat(policy, catalogue.make({"precision": "bf16"})):
        small(1000)
        with pytest.raises(UserError, match="a packed copy of the weights takes"):
            catalogue.make({"weights": "packed"}).apply(policy)


@needs_kernels
def test_what_is_packed_at_the_first_call_is_spoken_for_until_then(small) -> None:
    smolvla = load_tiny_subject("smolvla", cameras=1)
    with treat(smolvla, catalogue.make({"precision": "bf16"})):
        whole = packed._bytes(smolvla.module, [torch.bfloat16])
        small(1.5 * whole / room.SHARE)
        first, second = (catalogue.make({"weights": "packed"}) for _ in range(2))
        undo_first = first.apply(smolvla)
        with pytest.raises(UserError, match="a packed copy of the weights takes"):
            second.apply(smolvla)
        smolvla.call("inference", 1)(0)  # by now the first has taken most of its own
        undo_first()
        second.apply(smolvla)()


def test_where_an_engine_fits_and_its_file_does_not_none_is_kept(policy, monkeypatch) -> None:
    monkeypatch.setattr(OpenVINO, "_KEPT", 1e12)
    catalogue.make({"engine": "openvino", "engine.part": "model.backbone"}).apply(policy)()
    assert not backends.engines_folder().exists()


def test_a_cache_that_cannot_be_written_costs_no_engine(policy, tmp_path, monkeypatch) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    monkeypatch.setenv("STROBE_CACHE", str(file))
    catalogue.make({"engine": "openvino", "engine.part": "model.backbone"}).apply(policy)()


def test_the_engines_that_were_not_used_for_longest_go_first(monkeypatch) -> None:
    backends.engines_folder().mkdir(parents=True)
    for age, name in enumerate(("new", "older", "oldest")):
        file = backends.engines_folder() / name
        file.write_bytes(bytes(100))
        os.utime(file, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(backends, "MOST_BYTES", 250)
    backends.mark_used(backends.engines_folder() / "oldest")
    backends.trim_engines()
    assert {file.name for file in backends.engines_folder().iterdir()} == {"new", "oldest"}


def test_what_a_call_takes_and_gives_back_must_stay_free(small) -> None:
    subject: Any = SimpleNamespace(module=nn.Linear(1, 1), device=torch.device("cpu"))
    with room.record_call_memory(subject):
        torch.ones(300 * MIB // 4)
    small(400 * MIB)
    room.require_room(50 * MIB, "a copy", subject)
    told = r"^a copy takes 0\.2 GiB more, and 0\.1 GiB are free on this machine in addition to the 0\.3 GiB"
    with pytest.raises(UserError, match=told):
        room.require_room(200 * MIB, "a copy", subject)
