"""Memory: this process at its highest, what the machine has left, and what the kernel does to hand it out."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from strobe.core.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

try:
    import resource
except ImportError:  # Windows
    resource = None

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_SAMPLED_S = 0.01


@dataclass(eq=False)
class Peak:
    """Filled when the block ends: the highest resident set of the process, in bytes."""

    bytes: int = 0


_OPEN: list[Peak] = []  # the blocks that the process is in


@contextlib.contextmanager
def peak_process() -> Iterator[Peak]:
    """The process's highest resident set inside the block.

    On Linux the kernel keeps it: writing 5 to ``/proc/self/clear_refs`` starts its high-water mark again (proc(5)).
    Where that is not to be had, the resident set is sampled every 10 ms, and a shorter peak may be missed. One block
    may be inside another.
    """
    peak = Peak()
    try:
        before = _high_water() if _OPEN else 0  # of the blocks around this one, whose mark is lost now
        _CLEAR.write_text("5")
    except OSError:
        with _sample_memory(peak):
            yield peak
        return
    for outer in _OPEN:
        outer.bytes = max(outer.bytes, before)
    _OPEN.append(peak)
    try:
        yield peak
    finally:
        _OPEN.remove(peak)
        peak.bytes = max(peak.bytes, _high_water())


def _high_water() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def available_bytes(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that can be had without swapping, in bytes: the machine's, or what a container or a job may still take.

    Args:
        group: the control group's folder (Linux, version 2), as seen from inside it.
    """
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError, StopIteration):  # no such group, or no limit ('max')
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        stat = (group / "memory.stat").read_text().splitlines()
        cache = next(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))
        free = min(free, max(limit - used + cache, 0))  # cached files give way
    return free


@contextlib.contextmanager
def _sample_memory(peak: Peak) -> Iterator[None]:
    process, stop = psutil.Process(), threading.Event()

    def look() -> None:
        while True:
            peak.bytes = max(peak.bytes, process.memory_info().rss)
            if stop.wait(_SAMPLED_S):
                return

    thread = threading.Thread(target=look, name="strobe memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class KernelUse(NamedTuple):
    """Kernel time over all threads (milliseconds) and page faults that needed no disk."""

    ms: float
    faults: int

    def __sub__(self, earlier: KernelUse) -> KernelUse:
        return KernelUse(self.ms - earlier.ms, self.faults - earlier.faults)


def kernel_use() -> KernelUse:
    """Return the use so far, of the whole process; zeros where the system does not say."""
    if resource is None:
        return KernelUse(0.0, 0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return KernelUse(used.ru_stime * 1e3, used.ru_minflt)


def median_use(uses: Sequence[KernelUse]) -> KernelUse | None:
    """Return the medians over several iterations; None if none of them had a page fault."""
    if not any(use.faults for use in uses):
        return None
    return KernelUse(median(use.ms for use in uses), round(median(use.faults for use in uses)))


SHARED = Path("/dev/shm")  # place of torch's shared batches on Linux


def shared_free(where: Path = SHARED) -> int | None:
    """Free bytes of shared memory; None if batches go another way."""
    return shutil.disk_usage(where).free if where.is_dir() else None


def batch_bytes(dataset: Any, batch_size: int) -> int:
    """Bytes of one batch of a LeRobotDataset as its workers hand it over, from the shapes of its features."""
    deltas = dataset.reader.delta_indices or {}
    sample = 0
    for name, feature in dataset.meta.features.items():
        numbers = 1
        for length in feature["shape"]:
            numbers *= int(length)
        width = 1 if feature["dtype"] == "video" else 4  # videos come as bytes, images and numbers as float32
        sample += numbers * width * len(deltas.get(name, (0,)))
    return sample * batch_size


def require_shared_memory(dataset: object, batch_size: int, workers: int, prefetch: int, where: Path = SHARED) -> None:
    """Raises UserError where the batches that workers prefetch do not fit into shared memory, or there is none."""
    each, free = batch_bytes(dataset, batch_size), shared_free(where)
    needed = workers * prefetch * each
    if workers and free is None and sys.platform == "linux":
        raise UserError(f"there is no {where}, by which workers hand over their batches: use --num_workers=0")
    if free is not None and needed > free:
        raise UserError(
            f"{workers} workers × {prefetch} batches of {each / 2**20:,.0f} MiB need {needed / 2**30:,.1f} GiB of "
            f"shared memory, and {where} has {free / 2**30:,.1f} GiB: lower --num_workers, --prefetch_factor or "
            "--batch_size, or give the container more (docker run --shm-size)"
        )


def weight_bytes(*modules: nn.Module) -> int:
    """Parameters and buffers below ``modules``, as they are now; shared ones count once."""
    tensors = {id(tensor): tensor for module in modules for tensor in chain(module.parameters(), module.buffers())}
    return sum(map(_weight_bytes, tensors.values()))


def _weight_bytes(tensor: Tensor) -> int:
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    # Quantised weights say that they are of the dtype they stand for; what they hold is inside.
    if is_traceable_wrapper_subclass(tensor):
        return sum(_weight_bytes(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
    return tensor.numel() * tensor.element_size()
