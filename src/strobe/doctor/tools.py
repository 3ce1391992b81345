"""Needs of loaders (shared memory, open files, decoders), and tools: simulators, a browser, a compiler, extras."""

from __future__ import annotations

import shutil
import sys
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

from strobe.core.errors import UserError
from strobe.core.measure.memory import SHARED, shared_free
from strobe.core.processes import isolate
from strobe.dataloader.train_loader import VIDEO_BACKENDS
from strobe.doctor import trials, versions
from strobe.doctor.results import SelfCheck
from strobe.lerobot.envs import environments
from strobe.lerobot.envs.environments import NO_OPENGL

FEW_SHARED = 1 << 30  # bytes; four workers with two batches each of two cameras take more at once
FEW_FILES = 4096  # open files; workers pass tensors as files, one for each
LARGER = "docker run --shm-size=8g (or --ipc=host); on Kubernetes an emptyDir of medium Memory at /dev/shm"


def examine_loaders(run: isolate.Runner = isolate.run, shared: Path = SHARED) -> Iterator[SelfCheck]:
    """Look at what a data loader needs, and try it with two workers and with each decoder."""
    yield from _shared_memory(run, shared)
    yield from _open_files()
    for backend in VIDEO_BACKENDS:
        yield _decoder(backend, run)


def _shared_memory(run: isolate.Runner, shared: Path) -> Iterator[SelfCheck]:
    free = shared_free(shared)
    room = f"{free / 2**20:,.0f} MiB free in {shared}; " if free is not None else ""
    name = "shared memory of loader workers"
    batches = f"{trials.BATCHES} batches of {trials.BATCH_BYTES / 2**20:.0f} MiB from {trials.WORKERS} workers"
    rate, why = _measure_in_process(run, trials.batches)
    if rate is None:
        means = "Training with workers stops with a bus error, or hangs."
        do = LARGER if free is not None else "num_workers=0 loads in the training's own process"
        yield SelfCheck.judge("loaders", name, False, f"{room}{batches}: {why}", means, do, bad="fails")
        return
    yield SelfCheck.judge(
        "loaders",
        name,
        free is None or free >= FEW_SHARED,
        f"{room}{batches} at {rate:,.0f} MB/s",
        "Larger batches or more workers will not fit.",
        LARGER,
    )


def _open_files() -> Iterator[SelfCheck]:
    if sys.platform == "win32":
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield SelfCheck.judge(
        "loaders",
        "open files",
        not 0 <= limit < FEW_FILES,
        f"up to {limit:,}" if 0 <= limit < 1 << 40 else "no limit",
        "Workers pass tensors as open files: many workers end in 'too many open files'.",
        "ulimit -n 65536",
    )


def _decoder(backend: str, run: isolate.Runner) -> SelfCheck:
    ms, why = _measure_in_process(run, trials.time_decoding, backend)
    ways = {
        "torchcodec": "pip install torchcodec (it needs FFmpeg's libraries: apt-get install ffmpeg), or "
        "--dataset.video_backend=pyav",
        "pyav": "pip install av",
    }
    return SelfCheck.judge(
        "loaders",
        f"video decoder {backend}",
        ms is not None,
        why if ms is None else f"{ms:.2f} ms a frame of {trials.SIDE}×{trials.SIDE}, in order and with their content",
        "If you choose this decoder, LeRobot takes the other one, or stops.",
        ways.get(backend, ""),
        bad="missing",
    )


def _measure_in_process(run: isolate.Runner, call: Callable[..., float], *arguments: str) -> tuple[float | None, str]:
    """Return what ``call`` measures in a process of its own; None where it measures nothing, and why."""
    try:
        return run(call, *arguments), ""
    except (isolate.IsolatedCallError, UserError) as error:
        return None, str(error)


SIMULATORS = ("pusht", "metaworld", "libero")
BROWSERS = ("chromium", "google-chrome", "chrome", "firefox", "xdg-open", "open")
COMPILERS = ("g++", "clang++", "c++", "cl")


def examine_tools(
    run: isolate.Runner = isolate.run, which: Callable[[str], str | None] = shutil.which
) -> Iterator[SelfCheck]:
    """Look for each tool, and start each simulator."""
    yield from versions.extras()
    for kind in SIMULATORS:
        yield _simulator(kind, run)
    yield _check_tool(
        "browser",
        BROWSERS,
        which,
        "Reports are one file each: copy report.html to a machine with a browser, or read it here with "
        "`strobe report RUN`.",
        "apt-get install chromium (Debian, Ubuntu)",
    )
    yield _check_tool(
        "C++ compiler",
        COMPILERS,
        which,
        "torch.compile cannot compile for the CPU.",
        "apt-get install g++ (Debian, Ubuntu); xcode-select --install (macOS)",
    )


def _simulator(kind: str, run: isolate.Runner) -> SelfCheck:
    name = f"simulator {kind}"
    ms, why = _measure_in_process(run, trials.time_rendering, kind)
    reason, _, way = why.partition(": ")
    if "not installed" in reason:  # else it is there, and what is said is a reason and no command
        means = "It gives no observations and no episodes: name another with --env.type, or a recording with --dataset."
        return SelfCheck.judge("tools", name, False, reason, means, way, bad="missing")
    return SelfCheck.judge(
        "tools",
        name,
        ms is not None,
        why if ms is None else f"starts and renders; {ms:.0f} ms a reset",
        "It is installed, but does not run.",
        NO_OPENGL.partition(": ")[2] if kind in environments.MUJOCO else f"pip install 'lerobot[{kind}]'",
        bad="fails",
    )


def _check_tool(
    name: str, names: tuple[str, ...], which: Callable[[str], str | None], means: str, do: str
) -> SelfCheck:
    tool = next((candidate for candidate in names if which(candidate)), None)
    if tool is None and name == "browser":
        try:
            tool = webbrowser.get().name
        except webbrowser.Error:
            tool = None
    return SelfCheck.judge("tools", name, tool is not None, tool or "none found", means, do, bad="missing")
