"""Rules on a rollout's cameras: frames that are repeated, old, or all the same."""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.findings.motor_bus import waits_for_cpu, waits_for_interpreter
from strobe.findings.thresholds import Thresholds
from strobe.results.finding import Finding
from strobe.results.rollout import Camera, Pace, Rollout, RolloutResult

# Where --fps is called otherwise.
FPS_FLAGS = {"lerobot-record": "--dataset.fps"}
MIN_FRESH = 0.9  # different frames per second over the rate of the loop: under it frames are repeated
FROZEN_PERIODS = 5.0  # of the rate asked for, with new frames of the same picture
FEW_FRAMES = 4  # below, pictures that are equal say little


def cameras(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """The one thing that is wrong with each camera."""
    rollout, pace = result.rollout, result.rollout.pace
    if pace is None or rollout.command == "lerobot-teleoperate":  # which only shows its frames, or not even that
        return
    wanted = min(rollout.fps, pace.held_hz)
    late = waits_for_interpreter(rollout, thresholds) or waits_for_cpu(rollout, thresholds)
    for camera in rollout.cameras:
        if camera.frozen_frames >= FEW_FRAMES and camera.frozen_ms >= FROZEN_PERIODS * 1e3 / rollout.fps:
            yield _frozen(camera)
        elif late:
            continue  # a camera's own thread waits as the loop does
        elif camera.fresh_hz < MIN_FRESH * wanted:
            yield _repeated(camera, rollout, pace)
        elif camera.longest_ms >= thresholds.camera_stall * 1e3 / wanted:
            yield _stalled(camera)
        elif camera.age is not None and camera.age.median >= thresholds.frame_age_ms:
            yield _old(camera, rollout)


def _repeated(camera: Camera, rollout: Rollout, pace: Pace) -> Finding:
    hz = math.floor(camera.fresh_hz)
    acts = rollout.engine != "none"
    sees = "the policy sees the past again, unnoticed" if acts else "the data set shows the past again, unmarked"
    flag = FPS_FLAGS.get(rollout.command, "--fps")
    aged = f" Frames were up to {camera.age.p95:,.0f} ms old (95 %)." if camera.age is not None else ""
    return Finding(
        rule="repeated-frames",
        level="warning",
        title=f"Camera {camera.name} is slower than the loop",
        seen=f"{camera.fresh_hz:.1f} different frames per second; the loop reads it at {pace.held_hz:.1f} Hz.{aged}",
        why=f"The robot takes the latest frame and never waits: {sees}.",
        do="A higher fps of this camera in --robot.cameras, fewer pixels, or more light (long exposures halve the "
        f"rate){f'; or {flag}={hz}' if hz >= 1 else ''}.",
        evidence={"fresh_hz": camera.fresh_hz, "camera": camera.name},
    )


def _stalled(camera: Camera) -> Finding:
    return Finding(
        rule="camera-stall",
        level="warning",
        title=f"Camera {camera.name} stood still for {camera.longest_ms:,.0f} ms",
        seen=f"From {camera.longest_from_s:.1f} s on the loop saw one frame for {camera.longest_ms:,.0f} ms; over the "
        f"whole run it saw {camera.fresh_hz:.1f} different frames per second.",
        why="The robot takes the latest frame, however old; past 500 ms the run ends. LeRobot says nothing before.",
        do="A USB port and a controller of its own for this camera, a shorter cable; look at `dmesg` for that moment.",
        evidence={"longest_ms": camera.longest_ms, "camera": camera.name},
    )


def _frozen(camera: Camera) -> Finding:
    return Finding(
        rule="camera-frozen",
        level="warning",
        title=f"Camera {camera.name} gave new frames with the same picture for {camera.frozen_ms:,.0f} ms",
        seen=f"From {camera.frozen_from_s:.1f} s on, {camera.frozen_frames:,} frames that followed one another were "
        f"equal in every pixel compared, for {camera.frozen_ms:,.0f} ms. Their times were new.",
        why="A sensor's noise makes any two pictures differ, so the camera or its driver repeats one. LeRobot looks at "
        "a frame's time alone: it cannot see this, and the policy acts on a scene that stands still.",
        do="Plug the camera in again, and into a port of its own; look at `dmesg` for that moment, and for a newer "
        "firmware or driver. Frames of a simulator or of a video may rightly be equal.",
        evidence={"frozen_ms": camera.frozen_ms, "camera": camera.name},
    )


def _old(camera: Camera, rollout: Rollout) -> Finding:
    assert camera.age is not None
    flag = FPS_FLAGS.get(rollout.command, "--fps")
    return Finding(
        rule="old-frames",
        level="warning",
        title=f"Frames of camera {camera.name} are old when they are read",
        seen=f"{camera.age.median:,.0f} ms (median; 95 % within {camera.age.p95:,.0f}), though {camera.fresh_hz:.1f} "
        f"different frames came per second.",
        why="The policy acts on what was, before its own call adds to that, and was trained on pictures that were as "
        "old as those of its recordings.",
        do="A camera that buffers less: a USB port of its own, fourcc: MJPG or fewer pixels in --robot.cameras, no "
        f"network between. Or record with the same camera and the same {flag}, so that training saw the same age.",
        evidence={"age_ms": camera.age.median, "camera": camera.name},
    )


RULES = (cameras,)
