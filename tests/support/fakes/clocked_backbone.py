"""A tiny V-JEPA 2 whose parts take their time by a test's own clock, and a trace of it on a clock of its own.

What it computes is real and so is the order of what runs; how long anything takes is not left to the machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from torch.profiler import record_function

from strobe.vision.model_subject import ModelSubject
from support.fakes.sleeper import Clock

# Milliseconds: of a healthy model the blocks are nearly all.
DECODE, PREPROCESSING, EMBEDDING, ATTENTION, MLP = 1.0, 2.0, 1.0, 2.0, 3.0

OPERATOR_US, STEP_US = 10.0, 0.1  # in a trace: an operator that calls no other, and the way to the next one
_ASLEEP = "asleep for ms: "


def pause(clock: Clock, ms: float | Callable[[Any], float]) -> Callable[..., None]:
    """A module's forward pre-hook that takes ``ms``, which may depend on the module; a trace shows it."""

    def hook(module: Any = None, *_: Any) -> None:
        took = ms(module) if callable(ms) else ms
        with record_function(f"{_ASLEEP}{took}"):
            clock.sleep(took / 1e3)

    return hook


def pace(subject: ModelSubject, clock: Clock) -> None:
    """Let ``subject`` take a healthy model's time by ``clock``."""

    def taking(ms: float, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(given: Any) -> Any:
            clock.sleep(ms / 1e3)
            return function(given)

        return call

    # A module's own hooks run around its forward, where a part's section is opened: those of its inside run within.
    def add_pause(module: Any, ms: float) -> None:
        module.register_forward_pre_hook(lambda *_: clock.sleep(ms / 1e3))

    subject.clips.read = taking(DECODE, subject.clips.read)
    subject._prepare = taking(PREPROCESSING, subject._prepare)
    encoder: Any = subject.module.get_submodule("encoder")
    add_pause(encoder.embeddings.patch_embeddings, EMBEDDING)
    for block in encoder.layer:
        add_pause(block.attention.query, ATTENTION)
        add_pause(block.mlp.fc1, MLP)


def retime_trace(document: bytes) -> bytes:
    """torch.profiler's trace of one thread with the same events in the same order, at times that are made up.

    An operator takes ``OPERATOR_US``, a `pause` its own time, and from one beginning or end to the next it is
    ``STEP_US``.
    """
    trace = json.loads(document)
    timed = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    now = 0.0
    for event, begins, leaf in _walk(timed):
        now += STEP_US
        if begins:
            event["ts"] = now
            continue
        if event["name"].startswith(_ASLEEP):
            now += 1e3 * float(event["name"].removeprefix(_ASLEEP))
        elif leaf and event["cat"] == "cpu_op":
            now += OPERATOR_US
        event["dur"] = now - event["ts"]
    return json.dumps(trace).encode()


def _walk(events: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], bool, bool]]:
    """Each event when it begins and when it ends, in order, and whether there is another inside it."""
    assert len({event["tid"] for event in events if event["cat"] == "cpu_op"}) == 1, "of one thread"
    stack: list[list[Any]] = []  # event, its end, whether it is a leaf

    def close() -> tuple[dict[str, Any], bool, bool]:
        event, _, leaf = stack.pop()
        return event, False, leaf

    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while stack and stack[-1][1] <= event["ts"]:
            yield close()
        if stack:
            stack[-1][2] = False
        stack.append([event, event["ts"] + event["dur"], True])
        yield event, True, False
    while stack:
        yield close()
