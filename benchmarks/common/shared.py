"""What benchmarks share: how some begin, and how all end."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

ENOUGH = 100  # tries, from which on a rate is compared with its bar itself
COULD_NOT_RUN = 77  # the exit code by which test suites know a test that was skipped
# Extra of Strobe → the modules that a benchmark imports of it.
EXTRAS = {
    "diffusion": ["diffusers"], "metaworld": ["metaworld"], "onnx": ["onnxruntime"], "openvino": ["openvino"],
    "pi": ["transformers"], "pusht": ["gym_pusht"], "quantise": ["torchao"],
    "remote": ["grpc", "msgpack", "websockets", "zmq"], "robot": ["dynamixel_sdk", "scservo_sdk"],
    "smolvla": ["transformers"],
}  # fmt: skip

# glibc's allocator, told to give nothing back to the kernel: as a GPU's allocator does.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36), "MALLOC_TOP_PAD_": str(2**28)}


def need(*extras: str, opengl: bool = False, cores: int = 1, memory_gib: float = 0.0, file: Path | None = None) -> None:
    """End with one line if this machine lacks something. Called before any work.

    Args:
        extras: of Strobe, whose packages are imported.
        opengl: MuJoCo renders. Chooses OSMesa or EGL for this process and those that it starts.
        memory_gib: free memory.
        file: a file or folder that does not come with the repository.
    """
    lacking = [
        f"{module} is not installed: pip install 'strobe-lab[{extra}]'"
        for extra in extras
        for module in EXTRAS[extra]
        if importlib.util.find_spec(module) is None
    ]
    if opengl:
        from strobe.core.errors import UserError
        from strobe.lerobot.envs.environments import choose_opengl

        try:
            choose_opengl()
        except UserError as error:
            lacking.append(str(error))
    if (here := len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1) < cores:
        lacking.append(f"{cores} cores are needed, and there are {here}")
    if memory_gib:
        import psutil

        if (free := psutil.virtual_memory().available / 2**30) < memory_gib:
            lacking.append(f"{memory_gib:g} GiB of free memory are needed, and there are {free:.1f}")
    if file is not None and not file.exists():
        lacking.append(f"there is no {file.name}")
    if lacking:
        could_not_run("; ".join(lacking))


def could_not_run(why: str) -> NoReturn:
    """End with one line: nothing was looked at, so nothing holds, nor does it not."""
    print(f"could not run: {why}")
    sys.exit(COULD_NOT_RUN)


def keep_memory(**more: str) -> None:
    """On Linux, start this script again with an allocator that keeps its memory; ``more`` goes to its environment."""
    if sys.platform == "linux" and not KEEP_MEMORY.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY, **more})


def finish_rates(figures: dict[str, Any], count: int, false: tuple[int, float], found: tuple[int, float]) -> NoReturn:
    """Finish with the judgement of two rates: of ``count`` tries at most a share may be false, at least one be found.

    Args:
        false, found: how many there were, and the bar.
    """
    finish(figures, meets_upper_bar(count, *false) and meets_lower_bar(count, *found))


def meets_upper_bar(count: int, seen: int, bar: float) -> bool:
    """Return whether a rate of ``seen`` in ``count`` tries keeps to its bar; few tries, does not contradict it."""
    return seen / count <= bar if count >= ENOUGH else not _contradicts(count, seen, bar, "greater")


def meets_lower_bar(count: int, seen: int, bar: float) -> bool:
    """Return whether a rate of ``seen`` in ``count`` tries reaches its bar; few tries, does not contradict it."""
    return seen / count >= bar if count >= ENOUGH else not _contradicts(count, seen, bar, "less")


def _contradicts(count: int, seen: int, bar: float, side: str) -> bool:
    from scipy import stats

    return bool(stats.binomtest(seen, count, bar, side).pvalue < 0.05)


def finish(figures: dict[str, Any], holds: bool) -> NoReturn:
    """Print the figures with the judgement as one JSON line, the last one; exit with 0 if it holds, else 1."""
    print(json.dumps({**figures, "holds": holds}, default=lambda number: number.item()))
    sys.exit(0 if holds else 1)
