"""The cache of built engines: a file per engine, named after all that it depends on."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

from strobe.runs.cache import cache_folder
from strobe.treatments.engines.backends import Engine
from strobe.treatments.engines.recorded import Call, Results

MOST_BYTES = 16 * 2**30  # of all files; the engine of a language model has 4 bytes for each of its weights


def folder() -> Path:
    """The engines' folder, below STROBE_CACHE, else in the user's cache directory. It may be deleted at any time."""
    return cache_folder() / "engines"


def trim() -> None:
    """Remove the files that were not used for longest, until those that stay have `MOST_BYTES` or less."""
    left = MOST_BYTES
    with suppress(OSError):
        for file in sorted(folder().iterdir(), key=lambda file: file.stat().st_mtime, reverse=True):
            left -= file.stat().st_size
            if left < 0:
                file.unlink(missing_ok=True)


def used(file: Path) -> None:
    """Remember that ``file`` was used now."""
    with suppress(OSError):
        file.touch()


def file_of(
    part: nn.Module,
    call: Call,
    results: Results,
    name: str,
    engine: Engine,
    precision: str,
    device: torch.device,
) -> Path:
    """Return the file of the engine ``name``, whether it exists or not.

    It depends on weights, shapes, versions, ``device`` and ``precision``.
    """
    digest = hashlib.blake2b(digest_size=16)
    keys = [name, precision, engine.versions(device, precision), _package(part), str(getattr(part, "config", ""))]
    keys += [repr(part), repr(call.key), repr(call.dtypes), repr([tuple(t.shape) for t in results.tensors])]
    digest.update("\0".join(keys).encode())
    for path, weight in [*part.named_parameters(), *part.named_buffers()]:
        digest.update(f"{path} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return folder() / f"{digest.hexdigest()}{engine.suffix}"


def _package(part: nn.Module) -> str:
    from importlib.metadata import PackageNotFoundError, version

    kind = type(part)
    package = kind.__module__.split(".")[0]
    try:
        return f"{kind.__module__}.{kind.__qualname__} {version(package)}"
    except PackageNotFoundError:
        return f"{kind.__module__}.{kind.__qualname__}"
