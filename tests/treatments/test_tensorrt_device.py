"""TensorRT on a second card, with a torch-tensorrt that is made up: what it is told, and with which current device."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from strobe.core.devices.accelerators import computes_bf16
from strobe.treatments.engines import backends
from strobe.treatments.engines.backends import TensorRT

SECOND = torch.device("cuda:1")
OLD, NEW = torch.device("cuda:0"), SECOND  # a card without bfloat16, and one with it


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The current device, last; cards differ in what they are."""
    stack = [0]

    @contextmanager
    def device(which: Any) -> Any:
        stack.append(torch.device(which).index)
        yield
        stack.pop()

    def index(which: Any = None) -> int:
        number = None if which is None else torch.device(which).index
        return stack[-1] if number is None else number

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: stack[-1])
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: stack[-1] == 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda which=None: f"card {index(which)}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda which=None: (7 + index(which), 0))
    monkeypatch.setattr(backends, "version", lambda _: "2.11.0")
    return stack


def package(compile: Any, current: list[int], seen: list[Any]) -> Any:
    def run(*_: Any) -> torch.Tensor:
        seen.append(("run", current[-1]))
        return torch.zeros(1)

    def record_build(*args: Any, **kwargs: Any) -> Any:
        compile(*args, **kwargs)
        seen.append(("build", current[-1]))
        return run

    record_build.__signature__ = __import__("inspect").signature(compile)  # type: ignore[attr-defined]

    def load(_: str) -> Any:
        seen.append(("load", current[-1]))
        return SimpleNamespace(module=lambda: run)

    return SimpleNamespace(dynamo=SimpleNamespace(compile=record_build), save=lambda *_, **__: None, load=load)


def build_recorded_engine(monkeypatch: pytest.MonkeyPatch, compile: Any, current: list[int]) -> list[Any]:
    seen: list[Any] = []
    monkeypatch.setitem(sys.modules, "torch_tensorrt", package(compile, current, seen))
    inputs: Any = [SimpleNamespace(device=SECOND)]
    program: Any = None
    TensorRT().build(program, [inputs], "fp16", Path("unused"))(inputs)
    TensorRT().load(Path("unused"), "fp16", SECOND)(inputs)
    return seen


def test_an_engine_is_built_loaded_and_run_on_the_subject_s_card(
    monkeypatch: pytest.MonkeyPatch, current: list[int]
) -> None:
    told: dict[str, Any] = {}

    def compile(program: Any, *, arg_inputs: Any, device: Any, attn_bias_is_causal: bool = True, **more: Any) -> None:
        told.update(more, device=device, attn_bias_is_causal=attn_bias_is_causal)

    seen = build_recorded_engine(monkeypatch, compile, current)
    assert seen == [("build", 1), ("run", 1), ("load", 1), ("run", 1)]
    assert told["device"] == SECOND
    assert told["attn_bias_is_causal"] is False  # else every mask in attention would be taken for a causal one
    assert current == [0]


def test_a_version_without_the_option_for_causal_masks_is_not_given_it(
    monkeypatch: pytest.MonkeyPatch, current: list[int]
) -> None:
    def compile(program: Any, *, arg_inputs: Any, device: Any, use_explicit_typing: bool, truncate_double: bool,
                min_block_size: int) -> None: ...  # fmt: skip

    assert build_recorded_engine(monkeypatch, compile, current)[0] == ("build", 1)


def test_precisions_and_the_cache_s_names_are_those_of_the_subject_s_card(current: list[int]) -> None:
    assert TensorRT().precisions(OLD) == ("fp32", "fp16")
    assert TensorRT().precisions(NEW) == ("fp32", "bf16", "fp16")
    assert not computes_bf16(OLD, emulated=False)
    names = {TensorRT().versions(torch.device(name), "fp16") for name in ("cuda:0", "cuda", "cuda:1")}
    assert len(names) == 2  # 'cuda' is the current one; an engine holds the number of its card
    assert any("card 1 (8, 0) cuda:1" in name for name in names)
