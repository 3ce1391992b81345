"""The texts of all findings: whole, in plain words, and with fields that are there."""

from __future__ import annotations

import ast
import functools
import inspect
import string
import textwrap
import typing
from collections.abc import Iterator
from types import UnionType
from typing import Any

import pytest

from strobe.core import slices
from strobe.core.findings.texts import DECLARED, FORMS, LABELS, Found, Texts, finding
from strobe.core.kinds import study_rules

assert [study_rules(study) for study in slices.kinds()]  # loading them declares them
EACH = pytest.mark.parametrize("texts", tuple(DECLARED), ids=lambda texts: texts.ids[0])


def fields(*texts: str) -> Iterator[tuple[str, str]]:
    """The fields of texts, such as 'camera.fresh_hz', and their forms."""
    for _, name, form, _ in (part for text in texts for part in string.Formatter().parse(text)):
        if name is not None:
            yield name, form or ""


def find_written_keys(condition: Any) -> set[str]:
    """The keys of dictionaries that a condition and what it calls write out; its own names, if it hands them on."""
    named = {node.id for node in ast.walk(parse_function(condition)) if isinstance(node, ast.Name)}
    called = [each for name in named if inspect.isfunction(each := condition.__globals__.get(name))]
    dictionaries = [
        node for each in (condition, *called) for node in ast.walk(parse_function(each)) if isinstance(node, ast.Dict)
    ]
    keys = {str(key.value) for node in dictionaries for key in node.keys if isinstance(key, ast.Constant)}
    names = (*condition.__code__.co_varnames, *condition.__code__.co_cellvars)
    return keys | set(names if "locals" in named else ())


def parse_function(function: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def member(kind: Any, name: str) -> Any:
    """The type of an attribute of a type, Any where that is not known, None where there is no such attribute."""
    for each in () if kind is None else typing.get_args(kind) if isinstance(kind, UnionType) else (kind,):
        hints = {} if each is Any else typing.get_type_hints(each)
        attribute = inspect.getattr_static(each, name, None)
        if isinstance(attribute, property):
            return typing.get_type_hints(attribute.fget)["return"]
        if each is Any or name in hints or attribute is not None:
            return hints.get(name, Any)
    return None


def unknown(texts: Texts) -> list[str]:
    """The fields that neither an argument, nor the evidence, nor the words have, nor a constant is."""
    arguments, keys = (
        typing.get_type_hints(texts.condition),
        find_written_keys(texts.condition) | texts.constants.keys(),
    )
    wrong = []
    for name, form in fields(texts.rule, texts.level, *texts.texts.values()):
        first, *path = name.split(".")
        kind = functools.reduce(member, path, arguments.get(first, Any if first in keys else None))
        plain = form in FORMS or not any(letter.isalpha() for letter in form.rstrip("efg"))
        if kind is None or not plain:
            wrong.append(f"{name}:{form}")
    return wrong


@EACH
def test_a_finding_says_what_was_seen_and_why_it_matters_with_fields_that_are_there(texts: Texts):
    assert {"title", "found", "why"} <= texts.texts.keys() <= set(LABELS)
    assert list(texts.texts) == [label for label in LABELS if label in texts.texts], "in their order"
    assert all(texts.texts.values())
    assert texts.level in ("warning", "info", "good") or texts.level.startswith("{")
    assert not unknown(texts)


HIGHEST = 7


@finding("slow-{speed}", "info")
def slow(speed: str, limit: complex) -> Found:
    """A call takes {took:ms}.

    Found: {limit.real:g} of
        {share:whole percent} ({HIGHEST}).
    Why: {why}
    """
    yield {"took": 2.0}, {"share": 0.5, "why": "Text from outside stays {as it is}\nDo: nothing"}


def test_fields_are_filled_with_arguments_evidence_words_and_constants():
    (found,) = slow("call", limit=1 + 2j)
    assert found.model_dump() == {
        "rule": "slow-call", "level": "info", "title": "A call takes 2 ms", "found": "1 of 50 % (7).",
        "why": "Text from outside stays {as it is}\nDo: nothing", "do": "", "gain": "", "evidence": {"took": 2.0},
    }  # fmt: skip


def test_a_field_that_nothing_has_is_seen():
    @finding("wrong", "info")
    def wrong(limit: complex) -> Found:
        """{took:ms} of {limit.imaginary:g}, {limit.imag:ps}."""
        yield {}

    texts = DECLARED.pop()
    assert unknown(texts) == ["took:ms", "limit.imaginary:g", "limit.imag:ps"]
    with pytest.raises(KeyError, match="took"):
        list(wrong(1j))
