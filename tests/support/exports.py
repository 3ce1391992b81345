"""Exports of tiny policies by the command, and the answer of their check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from strobe.exports.carried.policy import MANIFEST, digest_of
from strobe.results.answer import VerifyResult
from strobe.runs import store

TINY = ("--policy.size=tiny", "--device=cpu", "--observations=4", "--passes=1")


@dataclass(frozen=True)
class Export:
    """The folder of an export, the answer of its check, and the exit code.

    ``errors``: what the command printed on stderr, where it had a process of its own.
    """

    folder: Path
    answer: VerifyResult
    code: int
    errors: str = ""


Exports = Callable[..., Export]


def seal(folder: Path) -> None:
    """Write the digests of the folder's files anew, as somebody who changed one on purpose would."""
    about = json.loads((folder / MANIFEST).read_text())
    digests = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in about["files"] if name != MANIFEST
    }
    about["files"] = {MANIFEST: digest_of(about)} | digests
    (folder / MANIFEST).write_text(json.dumps(about))


def answer_of(runs: Path) -> VerifyResult:
    """Return the answer of the one run in ``runs``."""
    (written,) = runs.glob("*/result.json")
    answer = store.load(written.parent)
    assert isinstance(answer, VerifyResult)
    return answer
