"""A card for the Hub: its metadata as the Hub's own library reads it, and what was there before is kept."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_hub import ModelCard
from support.places import ROOT

from strobe.core.cli.main import main

EXAMPLES = ROOT / "docs" / "examples"
OWN = """---
license: mit
model-index:
- name: my act
  results:
  - task:
      type: robotics
    dataset:
      name: bench
      type: bench
    metrics:
    - type: success_rate
      value: 0.5
---
# My policy

By hand.
"""


def card(capsys, example: str) -> Any:
    assert main(["report", str(EXAMPLES / example), "--format=model-card"]) == 0
    return ModelCard(capsys.readouterr().out)


def test_a_ladder_gives_both_latencies_and_the_line_that_loads_its_recipe(capsys):
    made = card(capsys, "optimize-act")
    assert made.data.library_name == "lerobot"
    assert [(one.metric_type, one.metric_value) for one in made.data.eval_results] == [
        ("latency", 150.9), ("latency", 41.74),
    ]  # fmt: skip
    assert "| with recipe.yaml | 41.7 |" in made.text
    assert "Random weights: the times are those of trained weights, the actions are not." in made.text
    assert 'strobe.load_policy("FOLDER_OR_HUB_ID", "recipe.yaml")' in made.text


def test_an_evaluation_gives_success_beside_latency(capsys):
    made = card(capsys, "evaluate-button")
    rates = [one for one in made.data.eval_results if one.metric_type == "success_rate"]
    assert [one.metric_value for one in rates] == [1.0] * 6
    assert "48 of 48: 100.0 % [92.6, 100.0]" in made.text
    assert "random" not in made.text


def test_a_card_that_is_there_keeps_its_own_and_a_second_time_changes_nothing(tmp_path, capsys):
    there = tmp_path / "README.md"
    there.write_text(OWN)
    write = ["report", str(EXAMPLES / "pi05-breakdown"), "--format=model-card", f"--output={there}"]
    assert main(write) == 0
    assert "its other text stays" in capsys.readouterr().out
    once = there.read_text()
    made: Any = ModelCard(once)
    assert (made.data.license, made.data.model_name) == ("mit", "my act")
    assert "By hand." in made.text
    assert [one.metric_type for one in made.data.eval_results] == ["success_rate", "latency"]
    assert main(write) == 0
    assert there.read_text() == once


@pytest.mark.parametrize("example", ["train-act", "act-variations"])
def test_what_has_no_chunks_is_refused_in_a_line(example, capsys):
    assert main(["report", str(EXAMPLES / example), "--format=model-card"]) == 2
    assert "a model card shows a policy's latency and success" in capsys.readouterr().err


def test_a_broken_card_is_left_alone(tmp_path, capsys):
    there = tmp_path / "README.md"
    there.write_text("---\nlicense: [\n---\n")
    assert main(["report", str(EXAMPLES / "optimize-act"), "--format=model-card", f"--output={there}"]) == 2
    assert "the existing card cannot be read" in capsys.readouterr().err
    assert there.read_text() == "---\nlicense: [\n---\n"
