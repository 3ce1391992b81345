"""Write the events of a made-up rollout, for `scale.py`: Real-Time Chunking at 30 Hz, two cameras, six joints.

No robot and no policy run: the times are drawn. They are written as the probes of a watched loop write them.

    python benchmarks/common/made_rollout.py FILE SECONDS
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from strobe.core.results.subject import SubjectInfo
from strobe.loops.header import Header

MS = 1_000_000
FPS, CHUNK, THRESHOLD = 30.0, 50, 30
MAIN, INFERENCE = 1, 2
CAMERAS = ("front", "wrist")
JOINTS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
BATCH = 16  # events in a line


def header() -> Header:
    """Return the header of the made-up rollout."""
    subject = SubjectInfo(
        name="smolvla", kind="smolvla", source="made up", parameters=450_000_000, weight_bytes=900_000_000, inputs=""
    )
    return Header(
        subject=subject, robot="so101_follower", strategy="base", engine="rtc", fps=FPS, threshold=THRESHOLD,
        horizon=10, guided=True, can_rtc=True, joints=JOINTS, main=MAIN,
    )  # fmt: skip


def write(file: Path, seconds: float) -> int:
    """Write the events of a rollout of ``seconds``. Return how many they are."""
    count, batch = 0, []
    with file.open("w", encoding="utf-8") as out:
        out.write(f"{json.dumps(header().to_json())}\n")
        for event in events(seconds):
            batch.append(event)
            if len(batch) == BATCH:
                out.write(f"{json.dumps(batch)}\n")
                count, batch = count + BATCH, []
        out.write(f"{json.dumps(batch)}\n")
    return count + len(batch)


def events(seconds: float) -> Iterator[tuple[Any, ...]]:
    random = np.random.default_rng(0)
    period, now, tick = round(1e9 / FPS), 0, 0
    queue, chunk, position = 0, 0, 0  # actions left, number of the chunk, place in it
    ends: int | None = None  # of the call that goes on
    began, seen, assumed = 0, 0, 0
    yield "run", 0
    while now < seconds * 1e9:
        if ends is not None and ends <= now:
            delay = min(math.ceil((ends - began) / period), CHUNK)
            executed = tick - seen
            yield "s", "denoise step", began + (ends - began) // 4, ends, INFERENCE
            yield "call", began, ends, assumed, None, CHUNK
            yield "merge", ends, delay, queue, executed, CHUNK, CHUNK - delay
            queue, position, chunk, assumed, ends = CHUNK - delay, delay, chunk + 1, delay, None
        if ends is None and queue <= THRESHOLD and tick:
            began, seen = now, tick - 1
            yield "taken", now, seen
            ends = now + round(MS * (250 + 20 * random.standard_exponential()))
        late = 25.0 * (random.random() < 0.002)  # now and then a tick is late
        yield from _looks(now, tick, MS * (2 + random.random()), late)
        at = now + round(MS * (8 + random.random() + late))
        yield "get", at, at + MS // 10, int(queue > 0), queue, chunk, position
        if queue:
            values = [30 * math.sin(tick / 15 + joint) for joint in range(len(JOINTS))]
            yield "values", at, values
            yield "pick", at, 1
            yield "s", "action", at, at + 2 * MS, MAIN
            yield "sent", values
            queue, position = queue - 1, position + 1
        else:
            yield "pick", at, 0
        worked = at + 2 * MS
        if worked < now + period:
            yield "s", "sleep", worked, now + period, MAIN
        now, tick = max(worked, now + period), tick + 1
    yield "end", now


def _looks(now: int, tick: int, camera_ns: float, late_ms: float) -> Iterator[tuple[Any, ...]]:
    """Yield a tick's look at the robot: its motors and cameras."""
    yield "tick", now
    yield "bus", now, now + 3 * MS, 0, 0, 0, MS, 0, ""
    at = now + 3 * MS
    for camera in CAMERAS:
        end = at + round(camera_ns + MS * late_ms / len(CAMERAS))
        yield "s", f"camera {camera}", at, end, MAIN
        yield "camera", end, camera, int(tick % 20 != 0), 12 * MS
        at = end
    yield "s", "observation", now, at, MAIN
    yield "at", [30 * math.sin((tick - 2) / 15 + joint) for joint in range(len(JOINTS))]
    yield "seen", at, tick


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]), float(sys.argv[2])):,} events")
