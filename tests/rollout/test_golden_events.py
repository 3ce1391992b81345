"""Events of rollouts as an earlier version wrote them: they are read, and replayed, with the figures they had then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.checks.approval import APPROVED, approve
from support.checks.golden import TESTS

from strobe.core.cli.main import main
from strobe.core.runs import store

EVENTS = TESTS / "golden" / "events"


def round_numbers(value: Any) -> Any:
    """The same with four digits of every number, which no rounding on another machine moves, and no None."""
    if isinstance(value, dict):
        return {name: round_numbers(inside) for name, inside in value.items() if inside is not None}
    if isinstance(value, list):
        return [round_numbers(inside) for inside in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def answer(folder: Path, *argv: str, ends_with: int = 0) -> dict[str, Any]:
    assert main([*argv, f"--output_dir={folder}", "--quiet"]) == ends_with
    (file,) = folder.glob(f"*/{store.RESULT}")
    return round_numbers(json.loads(file.read_bytes()))


@pytest.mark.parametrize("name", ["rtc", "sync", "remote"])
def test_kept_events_are_read_as_approved(name: str, tmp_path: Path):
    rollout = answer(tmp_path, "rollout", f"--events={EVENTS / name}.jsonl.gz", ends_with=1)["rollout"]
    del rollout["overhead_ms"]  # measured again
    rollout["series"] = {key: len(points) for key, points in rollout["series"].items()}
    if remote := rollout.get("remote"):
        remote["steps"] = {f"{step['name']} ({step['side']})": step["ms"]["median"] for step in remote["steps"]}
    approve(json.dumps(rollout, indent=1, ensure_ascii=False), APPROVED / "events" / f"{name}.json")


@pytest.mark.parametrize("name", ["rtc", "sync"])
def test_kept_events_are_replayed_as_approved(name: str, tmp_path: Path):
    replay = answer(tmp_path, "replay", f"{EVENTS / name}.jsonl.gz", "--draws=2", "--latency=x0.5")
    shown = {key: replay.get(key) for key in ("verdict", "checks", "least_threshold", "delay")}
    for column in replay["columns"]:
        figures = column["figures"].items()
        shown[column["name"]] = {
            name: f"{one.get('value')} [{one.get('low')}, {one.get('high')}]" for name, one in figures
        }
    approve(json.dumps(shown, indent=1, ensure_ascii=False), APPROVED / "events" / f"replay-{name}.json")
