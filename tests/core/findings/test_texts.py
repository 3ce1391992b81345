"""The texts of all findings: whole, in their order, with ids that the reference lists and commands that exist."""

from __future__ import annotations

import ast
import importlib
import re

import pytest
from support.checks.literals import literals
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.core import slices
from strobe.core.kinds import study_rules
from strobe.core.results.finding import Finding

reference = load_script("reference")
FIELDS = tuple(Finding.model_fields)
NO_RULE_MAKES = {"rule-failed"}
# A command with the flags right behind it.
COMMAND = re.compile(r"\bstrobe ([a-z]+)((?: (?:--[\w.]+(?:=(?:'[^']*'|[^\s`);]+))?|[A-Z…]+))*)")

TREES = {str(path.relative_to(ROOT / "src")): ast.parse(path.read_text()) for path in sorted(ROOT.glob("src/**/*.py"))}
# Where a finding is made → the names in its function, and its arguments.
FINDINGS = {
    f"{path}:{node.lineno}": (reference.Scope(function, functions, module), node)
    for path, tree in TREES.items()
    for functions in [{each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}]
    for function in functions.values()
    for node in ast.walk(function)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in reference.FINDINGS
    for module in [importlib.import_module(path[:-3].replace("/", "."))]
}


def last_letter(value: ast.expr) -> str:
    """The last letter of a text that is written out; … where it is filled in."""
    return next(literals(value))[-1:] if isinstance(value, ast.Constant | ast.JoinedStr) else "…"


@pytest.mark.parametrize("call", [call for _, call in FINDINGS.values()], ids=list(FINDINGS))
def test_a_finding_says_in_sentences_what_was_seen_and_why_it_matters(call: ast.Call):
    names = [str(keyword.arg) for keyword in call.keywords]
    assert names == [name for name in FIELDS if name in names], "in the order in which they are read"
    level = {"level"} if ast.unparse(call.func) == "Finding" else set()
    assert {"rule", "title", "found", "why"} | level <= set(names)
    ends = {str(keyword.arg): last_letter(keyword.value) for keyword in call.keywords}
    assert ends["title"] != ".", "a title is a headline"
    wrong = [name for name in ("found", "why", "do") if ends.get(name) not in (None, ".", ")", "…", "`")]
    assert not wrong, "no sentence"


def test_the_reference_lists_each_id():
    rules = {rule for study in slices.kinds() for rule in study_rules(study)}
    listed = {name for rule in rules for name in reference.find_rule_outputs(rule)[0]}
    made = {
        name
        for scope, call in FINDINGS.values()
        for keyword in call.keywords
        for name in (scope.spell(keyword.value) if keyword.arg == "rule" else ())
    }
    assert made - listed - NO_RULE_MAKES <= {"…"}


def test_advice_names_commands_and_flags_that_exist():
    """Flags with a dot are LeRobot's, which a policy or a robot has."""
    texts = [text for path in {where.partition(":")[0] for where in FINDINGS} for text in literals(TREES[path])]
    wrong = []
    for command, behind in (found for text in texts for found in COMMAND.findall(text)):
        help_text = reference.command_help(command) if command in slices.commands() else ""
        flags = [flag.replace("-", "_") for flag in re.findall(r" --([\w-]+)(?![\w.-])", behind.partition(" -- ")[0])]
        if not help_text or any(f"--{flag}" not in help_text for flag in flags):
            wrong.append(f"strobe {command}{behind}")
    assert not wrong
