"""docs/assistants.md and llms.txt name every command, its exit codes as in its help, and fields that an answer has."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.core.slices import commands, load

reference = load_script("reference")
PAGE = ROOT / "docs" / "assistants.md"
LIST = ROOT / "docs" / "llms.txt"
ALWAYS = {0, 2, 130}  # the end, wrong input, Ctrl-C: of `main` for every command


def stated_codes(command: str) -> set[int]:
    """A command's exit codes as its help states them: in the paragraphs that have the words."""
    paragraphs = (load(commands()[command].module).__doc__ or "").split("\n\n")
    told = " ".join(each[each.index("xit code") :] for each in paragraphs if "xit code" in each)
    return ALWAYS | {int(number) for number in re.findall(r"\b(0|1|2|3|130)\b(?! %)", told)}


def codes(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", text)}


def rows() -> dict[str, tuple[str, set[int]]]:
    """Command → the cell with its JSON fields, and its exit codes."""
    found = re.findall(r"^\| `strobe (\w+)` \| [^|]+ \| ([^|]+) \| ([\d, ]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {command: (fields, codes(numbers)) for command, fields, numbers in found}


def test_every_command_stands_on_the_page_with_the_exit_codes_of_its_help():
    assert {command: row[1] for command, row in rows().items()} == {name: stated_codes(name) for name in commands()}
    found = re.findall(r"^- `strobe (\w+)`: [^.]+\. Exit codes: ([\d, ]+)$", LIST.read_text(), re.MULTILINE)
    assert {name: codes(numbers) for name, numbers in found} == {name: stated_codes(name) for name in commands()}
    assert stated_codes("verify") == {0, 1, 2, 3, 130}


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
