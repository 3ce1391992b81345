"""docs/assistants.md and llms.txt name every command, its exit codes as in the code, and fields that an answer has."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Any

import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.core.cli.runner import EXIT_CODES
from strobe.core.slices import commands, load

reference = load_script("reference")
SOURCES = ROOT / "src" / "strobe"
PAGE = ROOT / "docs" / "assistants.md"
LIST = ROOT / "docs" / "llms.txt"
ALWAYS = {0, 2, 130}  # the end, wrong input, Ctrl-C: of `main` for every command
HELPERS = {"strobe.history.gates", "strobe.rollout.command"}  # modules of cli/ in which a command's exit code is set
# Where a study marks its answer 'failed', for which the exit code is 1.
STUDIES = {"rehearse": "rollout", "optimize": "ladder"}


def parse_module(module: str) -> ast.Module:
    return ast.parse((SOURCES.parent / f"{module.replace('.', '/')}.py").read_text())


def find_set_codes(tree: ast.AST) -> set[int]:
    """The exit codes that a module sets: by EXIT_CODES, as ``code=``, or by an answer that has failed."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "EXIT_CODES":
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            found |= {EXIT_CODES[key]} if key in EXIT_CODES else set(EXIT_CODES.values())  # type: ignore[index]
        elif isinstance(node, ast.keyword) and node.arg == "code":
            numbers = {part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
            found |= {number for number in numbers if type(number) is int}
            truths = [part for part in ast.walk(node.value) if isinstance(part, ast.Call)]
            if any(isinstance(call.func, ast.Name) and call.func.id == "int" for call in truths):
                found |= {0, 1}
        elif isinstance(node, ast.keyword) and node.arg == "status" and holds(node.value, "failed"):
            found.add(1)
        elif isinstance(node, ast.Assign) and holds(node.value, "failed"):
            targets = [ast.unparse(target) for target in node.targets]
            if any(target.endswith("result.status") for target in targets):
                found.add(1)
    return found


def holds(node: ast.AST, text: str) -> bool:
    return any(isinstance(part, ast.Constant) and part.value == text for part in ast.walk(node))


@cache
def exit_codes(command: str) -> frozenset[int]:
    """A command's exit codes as its code has them."""
    tree = parse_module(commands()[command].module)
    found = ALWAYS | find_set_codes(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in HELPERS:
            found |= find_set_codes(parse_module(node.module))
    for path in sorted((SOURCES / STUDIES.get(command, command)).glob("*.py")):
        if not path.stem.endswith(("command", "flags")):
            found |= find_set_codes(ast.parse(path.read_text()))
    return frozenset(found)


def codes(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", text)}


def rows() -> dict[str, tuple[str, set[int]]]:
    """Command → the cell with its JSON fields, and its exit codes."""
    found = re.findall(r"^\| `strobe (\w+)` \| [^|]+ \| ([^|]+) \| ([\d, ]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {command: (fields, codes(numbers)) for command, fields, numbers in found}


def test_every_command_stands_on_the_page_with_the_exit_codes_of_the_code():
    assert {command: row[1] for command, row in rows().items()} == {name: set(exit_codes(name)) for name in commands()}


def test_every_command_stands_in_the_list_with_the_exit_codes_of_the_code():
    found = re.findall(r"^- `strobe (\w+)`: [^.]+\. Exit codes: ([\d, ]+)$", LIST.read_text(), re.MULTILINE)
    assert {name: codes(numbers) for name, numbers in found} == {name: set(exit_codes(name)) for name in commands()}


def test_the_exit_codes_of_the_code_are_those_that_help_states():
    for name in commands():
        doc = load(commands()[name].module).__doc__ or ""
        _, told, text = doc.partition("Exit code: ")
        if told:
            stated = {int(number) for number in re.findall(r"\b(0|1|2|3|130)\b(?! %)", text.partition("\n\n")[0])}
            assert stated <= exit_codes(name), name
            assert (3 in stated) == (3 in exit_codes(name)), name
            assert (1 in stated) == (1 in exit_codes(name)), name


@pytest.mark.parametrize("command", ["verify", "diff", "history", "train", "doctor", "preflight"])
def test_the_codes_are_read_from_the_code(command: str):
    assert exit_codes(command) > ALWAYS


def test_every_field_is_one_of_an_answer():
    schema = reference.schema()
    studies = {"batch": "sweep", "rehearse": "rollout"}
    looked = 0
    for command, (cell, _) in rows().items():
        study = studies.get(command, command)
        if study in schema["discriminator"]["mapping"]:
            for path in re.findall(r"`([a-z_.\[\]]+)`", cell):
                resolve(schema, schema["discriminator"]["mapping"][study], path)
                looked += 1
    assert looked > 40
    text = PAGE.read_text().partition("## What every answer holds")[2].partition("Times are")[0]
    for path in re.findall(r"`([a-z_.\[\]]+)`(?=[^|]*\| [^|]+\|$)", text, re.MULTILINE):
        resolve(schema, schema["discriminator"]["mapping"]["breakdown"], path)


def test_a_field_that_no_answer_has_is_seen():
    schema = reference.schema()
    with pytest.raises(AssertionError, match="verdicts"):
        resolve(schema, schema["discriminator"]["mapping"]["compare"], "comparisons[].verdicts.kind")


def resolve(schema: dict[str, Any], reference: str, path: str) -> None:
    """Raises AssertionError where the answer has no field at ``path``."""
    places = [resolve_objects(schema, {"$ref": reference})]
    for name in path.replace("[]", "").split("."):
        fields = [
            place["properties"][name] for options in places for place in options if name in place.get("properties", {})
        ]
        assert fields, f"no field {name} in {path}"
        places = [resolve_objects(schema, field) for field in fields]


def resolve_objects(schema: dict[str, Any], field: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that a field leads to, through references, options and lists."""
    if "$ref" in field:
        return resolve_objects(schema, schema["$defs"][field["$ref"].rpartition("/")[2]])
    inner = [*field.get("anyOf", []), *([field["items"]] if isinstance(field.get("items"), dict) else [])]
    return [field, *(place for part in inner for place in resolve_objects(schema, part))]
