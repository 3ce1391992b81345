"""A finding is a condition and its texts: the condition yields figures, and its docstring has what is said of them.

::

    @finding("chunk-late", "warning")
    def late(measurement: Measurement, limit: float) -> Found:
        \"\"\"A chunk takes {took:ms}.

        Found: '{measurement.name}' may take {limit:ms}.
        Why: The robot waits for it.
        Do: Take fewer denoising steps.
        \"\"\"
        took = whole_ms(measurement)
        if took > limit:
            yield {"took_ms": took}, locals()
"""

from __future__ import annotations

import ast
import inspect
import re
import string
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import ParamSpec

from strobe.core.findings.view import gib, ms, percent, sigma
from strobe.core.results import units
from strobe.core.results.finding import Finding
from strobe.core.results.numerals import significant

P = ParamSpec("P")
Evidence = Mapping[str, float | str | None]
Words = Mapping[str, object]
Found = Iterator[Evidence | tuple[Evidence, Words]]

# What may stand behind the colon of a field, besides Python's own formats.
FORMS: dict[str, Callable[..., str]] = {
    "ms": ms,
    "percent": percent,
    "whole percent": lambda share: f"{100 * share:.0f} %",
    "gib": gib,
    "sigma": sigma,
    "figures": significant,
    "more": lambda ratio: percent(ratio - 1),
    "list": ", ".join,
    "plural": lambda count: "" if count == 1 else "s",
    "capital": units.capital,
    "name": units.quote,
}
LABELS = ("title", "found", "why", "do", "gain")
_LABEL = re.compile(rf"^({'|'.join(LABELS)}): ", re.MULTILINE | re.IGNORECASE)


class _Fields(string.Formatter):
    def format_field(self, value: object, format_spec: str) -> str:
        return FORMS[format_spec](value) if format_spec in FORMS else super().format_field(value, format_spec)


_FIELDS = _Fields()


@dataclass(frozen=True)
class Texts:
    """The texts of a condition's findings, with fields in braces.

    Args:
        rule: the finding's id, and ``level`` its level; both may have fields.
        ids: all ids that it may have, … for a part that is known only then.
    """

    rule: str
    level: str
    condition: Callable[..., Found]
    ids: tuple[str, ...] = ()

    @cached_property
    def texts(self) -> dict[str, str]:
        """Label → text, each in one line. The docstring's first sentence is the title, unless it has another."""
        words = inspect.cleandoc(self.condition.__doc__ or _docstring(self.condition))
        first, *parts = (" ".join(part.split()) for part in _LABEL.split(words))
        labelled = {label.lower(): text for label, text in zip(parts[::2], parts[1::2], strict=True)}
        return {"title": first.removesuffix(".")} | labelled

    @cached_property
    def constants(self) -> Words:
        """The constants of the condition's module, such as its limits."""
        return {name: value for name, value in self.condition.__globals__.items() if name.isupper()}

    def finding(self, evidence: Evidence, fields: Words) -> Finding:
        """Return the finding whose texts have ``fields`` in their braces."""
        fields = {**self.constants, **fields}
        filled = {label: _FIELDS.vformat(text, (), fields) for label, text in self.texts.items()}
        rule, level = (_FIELDS.vformat(text, (), fields) for text in (self.rule, self.level))
        return Finding.model_validate({"rule": rule, "level": level, **filled, "evidence": evidence})


DECLARED: list[Texts] = []


def finding(
    rule: str, level: str, ids: Iterable[str] = ()
) -> Callable[[Callable[P, Found]], Callable[P, Iterator[Finding]]]:
    """Make findings of what a condition yields: the evidence, or a pair of the evidence and further fields.

    Its docstring has their texts: a sentence that is the title, an empty line, then lines that begin with "Found:",
    "Why:", "Do:" and "Gain:". Fields in braces are the condition's arguments, the evidence, the further fields, where
    ``locals()`` has all names of the condition, and its module's constants. `FORMS` says how numbers are written.

    Args:
        rule: the findings' id, such as 'host-bound'. It may have fields, as ``level`` may: 'warning', 'info' or 'good'.
        ids: the ids that a field as a whole stands for.
    """

    def declare(condition: Callable[P, Found]) -> Callable[P, Iterator[Finding]]:
        texts = Texts(rule, level, condition, tuple(ids) or (blank_fields(rule),))
        DECLARED.append(texts)
        names = inspect.signature(condition).parameters

        @wraps(condition)
        def findings(*args: P.args, **options: P.kwargs) -> Iterator[Finding]:
            arguments = {**dict(zip(names, args, strict=False)), **options}
            for found in condition(*args, **options):
                evidence, words = found if isinstance(found, tuple) else (found, {})
                yield texts.finding(evidence, {**arguments, **words, **evidence})

        return findings

    return declare


def blank_fields(text: str) -> str:
    """Return ``text`` with … for its fields."""
    return re.sub(r"\{[^{}]*\}", "…", text.replace("{{", "").replace("}}", ""))


def _docstring(condition: Callable[..., object]) -> str:
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(condition))).body
    return ast.get_docstring(function) or ""  # type: ignore[arg-type]
