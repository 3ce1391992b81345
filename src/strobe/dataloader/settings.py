"""The settings to search among: workers, prefetch and video backend, in a sensible range for this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strobe.dataloader.results import LoaderSettings

PREFETCH = (2, 4, 8)
MOST_PER_CORE = 2  # workers; beyond, those that compute only wait for one another's core
MOST_WAITING = 16  # workers for each core, where more are faster: those wait for something else


@dataclass(frozen=True)
class SearchOptions:
    """Which settings to search, and for how long a candidate is measured.

    ``needed``: samples per second that the step takes; None to measure it, infinity for the fastest loader.
    ``workers``, ``prefetch``: values to try; empty for a choice by this machine's cores.
    ``first_s``, ``last_s``: seconds for which a candidate is measured in the first rung, and at most.
    """

    needed: float | None = None
    batch_sizes: Sequence[int] = ()
    workers: Sequence[int] = ()
    prefetch: Sequence[int] = ()
    first_s: float = 0.75
    last_s: float = 12.0
    start_ups: bool = True
    what_ifs: bool = True


def candidates(
    own: LoaderSettings, backends: Sequence[str], cores: int, options: SearchOptions
) -> list[LoaderSettings]:
    """The settings to choose from, the user's own first among them; start method and persistence are not searched.

    Workers are started by fork where the machine has it: the steady state is the same, and it is there in no time.
    """
    workers = sorted({*_doubling(MOST_PER_CORE * cores), cores, own.num_workers})
    if options.workers:
        workers = sorted({*options.workers, own.num_workers})
    prefetch = sorted({*(options.prefetch or PREFETCH), own.prefetch_factor})
    searched = [own]
    for backend in dict.fromkeys([own.video_backend, *backends]):
        for count in workers:
            for ahead in prefetch if count else [own.prefetch_factor]:
                update = {"num_workers": count, "prefetch_factor": ahead, "video_backend": backend}
                searched.append(own.model_copy(update=update))
    return list(dict.fromkeys(searched))


def started_by_fork(own: LoaderSettings) -> LoaderSettings:
    """The user's settings as the search starts them: by fork, where the machine has it."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return own
    return own.model_copy(update={"start_method": "fork"})


def cost(settings: LoaderSettings) -> tuple[int, int]:
    """Order by what a loader holds on to: fewer workers first, then fewer batches ahead."""
    return settings.num_workers, settings.prefetch_factor


def label(settings: LoaderSettings) -> str:
    """The settings in a few words: '2 workers, prefetch 4, pyav'."""
    workers = f"{settings.num_workers} worker{'' if settings.num_workers == 1 else 's'}"
    ahead = f", prefetch {settings.prefetch_factor}" if settings.num_workers else ""
    return f"{workers}{ahead}, {settings.video_backend}"


def loader_flags(settings: LoaderSettings) -> list[str]:
    """lerobot-train's flags for these settings."""
    flags = [f"--num_workers={settings.num_workers}"]
    if settings.num_workers:
        flags.append(f"--prefetch_factor={settings.prefetch_factor}")
    return [*flags, f"--batch_size={settings.batch_size}", f"--dataset.video_backend={settings.video_backend}"]


def _doubling(most: int) -> Iterator[int]:
    yield 0
    count = 1
    while count <= most:
        yield count
        count *= 2
