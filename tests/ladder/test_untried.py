"""Features that have not run on a GPU yet are marked in help texts, from one place, and steers nothing."""

from __future__ import annotations

from typing import get_args

import pytest

from strobe.commands import compare
from strobe.core.devices import untried
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Entry
from strobe.ladder import command as optimize


def block(shown: str, head: str) -> str:
    """The lines of a help text below the one that begins with ``head``, up to the next of its kind."""
    lines = shown.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(head))
    end = next((i for i, line in enumerate(lines[start + 1 :], start + 1) if not line.startswith("      ")), None)
    return "\n".join(lines[start:end])


@pytest.mark.parametrize("command", [compare, optimize])
def test_help_marks_what_has_not_run_on_a_gpu(capsys, monkeypatch, command):
    monkeypatch.setattr(untried, "NOT_YET", frozenset(get_args(untried.Feature)))
    assert (command.run(["--help=all"]), command.run(["--help=treatments"])) == (0, 0)
    shown = capsys.readouterr().out
    for key in ("graph", "tf32", "precision", "int8", "fp8", "engine", "compile"):
        assert "has not run on a GPU yet" in block(shown, f"  {key} ("), key
    for flag in ["--device", *(["--memory_snapshot"] if command is compare else [])]:
        assert "has not run on a GPU yet" in block(shown, f"  {flag}"), flag
    assert "has not run" not in block(shown, "  channels_last (")
    monkeypatch.setattr(untried, "NOT_YET", untried.NOT_YET - {"CUDA graphs", "memory snapshots"})
    command.run(["--help=all"])
    command.run(["--help=treatments"])
    again = capsys.readouterr().out
    assert "has not run" not in block(again, "  graph (")
    if command is compare:
        assert "has not run" not in block(again, "  --memory_snapshot")
    assert "has not run" in block(again, "  fp8 (")


def test_every_feature_is_shown_somewhere():
    from dataclasses import fields

    of_flags = {one for item in fields(compare.CompareConfig) for one in item.metadata.get(untried.KEY, ())}
    of_treatments = {one for entry in catalogue.own_entries() for one in entry.untried}
    assert of_flags | of_treatments == set(get_args(untried.Feature))
    assert Entry.__dataclass_fields__["untried"].default == ()
