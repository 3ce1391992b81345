"""Samples of a rollout over time, as viewers of robots' recordings take them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """A value of a channel such as ``queue/actions left``, at nanoseconds from the first tick."""

    at_ns: int
    channel: str
    value: float


@dataclass(frozen=True)
class Picture:
    """A camera's frame, coded: ``media`` is image/jpeg or image/png."""

    at_ns: int
    channel: str
    data: bytes
    media: str


Sample = Number | Picture
