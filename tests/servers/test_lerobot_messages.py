"""Answers of LeRobot's policy server: chunks come back as they went, and no pickle costs more than it weighs."""

from __future__ import annotations

import contextlib
import io
import pickle
import pickletools
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lerobot.async_inference.helpers import TimedAction
from torch._utils import _rebuild_tensor_v2

from strobe.servers.protocols.lerobot_messages import check, decode, extract_actions

CHUNK = torch.arange(12.0).reshape(4, 3)
ANSWER = pickle.dumps([TimedAction(1.0, step, action) for step, action in enumerate(CHUNK)])


def _read(data: bytes) -> tuple[np.ndarray | None, str]:
    check(data)
    return extract_actions(decode(data))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_a_chunk_comes_back_as_it_went(dtype: torch.dtype) -> None:
    rows = [TimedAction(1.0, step, action.to(dtype)) for step, action in enumerate(CHUNK.T)]
    actions, why = _read(pickle.dumps(rows))
    assert why == ""
    assert actions is not None
    assert np.array_equal(actions, CHUNK.T)


class _Made:
    """Pickles as a call of the function that a name stands for."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.function, self.given = function, given

    def __reduce__(self) -> Any:
        return self.function, self.given


def _changed_class() -> bytes:
    """A pickle that names the class of an action, and gives it another way to tell its action."""
    name = b"clerobot.async_inference.helpers\nTimedAction\n"
    return b"\x80\x02" + name + b"N}(X\x0a\0\0\0get_actionX\x06\0\0\0stolenu\x86b."


def _changed_function() -> bytes:
    name = b"ctorch._utils\n_rebuild_tensor_v2\n"
    return b"\x80\x02" + name + b"N}(X\x0c\x00\x00\x00__defaults__(I1\ntu\x86b."


def _storage(count: int) -> bytes:
    """A storage that says that it holds so many numbers, and holds seven."""
    file = io.BytesIO()
    torch.save(torch.arange(7.0).storage(), file, _use_new_zipfile_serialization=False)
    assert file.getvalue().count(b"K\x07") == 1
    return file.getvalue().replace(b"K\x07", b"\x8a\x05" + count.to_bytes(5, "little"))


ONE = pickle.dumps([TimedAction(1.0, 0, torch.zeros(3))])
assert ONE.count(b"K\x03\x85") == ONE.count(b"K\x01\x85") == 1  # its shape and its stride
HUGE = {
    "expanded": ONE.replace(b"K\x03\x85", b"\x8a\x05\0\0\0\0\x02\x85").replace(b"K\x01\x85", b"K\0\x85"),
    "a table": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "an array": b"\x80\x05\x96" + (2**33).to_bytes(8, "little") + b".",
    "a storage": pickle.dumps(_Made(torch.storage._load_from_bytes, _storage(2**33))),
    "many of one": pickle.dumps([TimedAction(1.0, 0, torch.zeros(1_000))] * 10_000),
}


@pytest.mark.parametrize("data", HUGE.values(), ids=HUGE)
def test_an_answer_takes_no_more_memory_than_it_weighs(data: bytes) -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + 2**28, limits[1]))
    try:
        actions, why = _read(data)
    except ValueError as error:
        why, actions = str(error), None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert actions is None
    assert why
    assert not any(word in why for word in ("\n", "MemoryError", "allocate"))


@pytest.mark.parametrize("data", [_changed_class(), _changed_function()], ids=["class", "function"])
def test_an_answer_changes_nothing_in_this_process(data: bytes) -> None:
    before = TimedAction.get_action, _rebuild_tensor_v2.__defaults__
    pickletools.dis(data, out=io.StringIO())  # it is whole
    check(data)
    decode(data)
    assert before == (TimedAction.get_action, _rebuild_tensor_v2.__defaults__)
    actions, _ = _read(ANSWER)
    assert actions is not None
    assert np.array_equal(actions, CHUNK)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(ANSWER) - 1), st.integers(0, 255))
def test_a_changed_byte_is_another_chunk_or_a_line(place: int, value: int) -> None:
    data = ANSWER[:place] + bytes([value]) + ANSWER[place + 1 :]
    with contextlib.suppress(ValueError):
        actions, why = _read(data)
        assert why if actions is None else actions.size <= 10 * CHUNK.numel()
