"""Sections and sentences that slices add to the pages of the core's answers.

Each is a module with ``sections(answer)`` and, if it says something in a sentence, ``answers(answer)``.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from strobe.core import slices
from strobe.core.report.document import Section
from strobe.core.results.answer import Answer


def sections(answer: Answer) -> list[Section]:
    """Return the sections that slices add to the page of ``answer``."""
    return [section for module in _modules(answer) for section in module.sections(answer)]


def answers(answer: Answer) -> list[str]:
    """Return the sentences that slices add to those of ``answer``."""
    say: list[Any] = [getattr(module, "answers", None) for module in _modules(answer)]
    return [sentence for sentences in say if sentences is not None for sentence in sentences(answer)]


def _modules(answer: Answer) -> list[ModuleType]:
    return [slices.load(name) for each in slices.slices().values() for name in each.shows.get(answer.study, ())]
