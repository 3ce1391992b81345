"""docs/accusations.md lists the rules that name a culprit, and a finding names none while another one is planted."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from rollout.test_robot_causes import TICKS, make_bus_result, make_motorless_result, read
from support.suite.places import ROOT
from train.test_findings_training import HOST, STORED, ranks, starved_result

from strobe.core.kinds import advise

CULPRITS = re.compile(r"\b(networks?|cameras?|loaders?|disks?|servers?|ranks?|other programs|motors?|host)\b", re.I)
ROWS = re.findall(r"^\| `.*?` \|", (ROOT / "docs" / "accusations.md").read_text(), re.MULTILINE)
LISTED = set(re.findall(r"`([^`]+)`", " ".join(ROWS)))
TREES = [ast.parse(text) for path in (ROOT / "src").rglob("*.py") if "rule=" in (text := path.read_text())]


def texts(node: ast.AST) -> list[str]:
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def titles(tree: ast.AST) -> list[tuple[str, str]]:
    """Each rule, of an f-string its beginning, and the words of its title; of a name those that are assigned to it."""
    named, found = dict[str, str](), list[Any]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for name in (each.id for each in ast.walk(node.targets[0]) if isinstance(each, ast.Name)):
                named[name] = " ".join([named.get(name, ""), *texts(node.value)])
        elif isinstance(node, ast.Dict):  # of rules and their titles
            found += [(key, title) for key, title in zip(node.keys, node.values, strict=True)
                      if key is not None and "-" in "".join(texts(key))]  # fmt: skip
        elif isinstance(node, ast.Call) and {"rule", "title"} <= (by := {e.arg: e.value for e in node.keywords}).keys():
            found.append((by["rule"], by["title"]))
    return [(ids[0], " ".join([*texts(title), named.get(getattr(title, "id", ""), "")]))
            for rule, title in found if (ids := texts(rule))]  # fmt: skip


def test_the_page_lists_the_rules_that_name_a_culprit_and_no_unknown_ones() -> None:
    named = [pair for tree in TREES for pair in titles(tree)]
    begun = tuple(rule for rule, _ in named if rule.endswith("-"))
    assert [one for one in LISTED - {text for tree in TREES for text in texts(tree)} if not one.startswith(begun)] == []
    accusing = {rule for rule, words in named if CULPRITS.search(words)}
    assert len(accusing) > 30
    assert sorted(accusing - LISTED) == []


UNPLUGGED, STRAGGLING = make_motorless_result(), ranks(60, 99)
UNPLUGGED.rollout.error, STRAGGLING.training.shares = "SerialException: device reports readiness to read", HOST


@pytest.mark.parametrize(("answer", "innocent"), [
    (make_bus_result(*[read(tick, 12.0, cpu=0.2, waiting=-1) for tick in TICKS]), "threads"),  # a bus without a port
    (UNPLUGGED, "motors stopped"),
    (STRAGGLING, "outside the policy|Averaging"),
    (starved_result(*STORED, machine_cpu=0.95), "storage"),  # other programs
])  # fmt: skip
def test_a_planted_other_culprit_is_not_accused(answer: Any, innocent: str) -> None:
    assert not [each.title for each in advise(answer) if re.search(innocent, each.title)]
