"""The kinds of answers: what each one's report says and shows, and which rules it is given. Slices bring them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from strobe.core import slices
from strobe.core.findings import rules, view
from strobe.core.findings.rules import Rule
from strobe.core.findings.thresholds import DEFAULTS, Thresholds
from strobe.core.report import html
from strobe.core.report.document import Document
from strobe.core.report.frame import Page, Plots
from strobe.core.results.answer import Answer, Result
from strobe.core.results.finding import Finding


def document(answer: Answer, depth: int | None = None) -> Document:
    """Return the words and tables of a report on ``answer``; ``depth`` limits the levels of its trees."""
    return _page(answer.study).outline(answer, depth)


def headline(answer: Answer) -> str:
    """Return the first sentence of a report on ``answer``; its title if there is none."""
    return next(iter(_page(answer.study).answers(answer)), answer.title)


def figures(answer: Answer, depth: int | None = None) -> Plots:
    """Return the plots of each section of the document, by the section's key."""
    return _page(answer.study).plots(answer, depth)


def page(answer: Answer, depth: int | None = None, folder: Path | None = None) -> str:
    """Return the whole report as one HTML page; ``folder`` is the run's, whose videos it shows."""
    return html.render(document(answer, depth), figures(answer, depth), folder)


def advise(answer: Answer, thresholds: Thresholds = DEFAULTS) -> list[Finding]:
    """Return the findings on ``answer``: warnings first, then by the share that they could save."""
    seen = answer
    if isinstance(answer, Result) and slices.kinds()[answer.study].plausible:
        seen = view.plausible(answer)
    return rules.run(study_rules(answer.study), seen, thresholds)


def _page(study: str) -> Page[Any]:
    return slices.load(slices.kinds()[study].page)


@cache
def study_rules(study: str) -> tuple[Rule[Any], ...]:
    """Return the rules on the answers of ``study``: those of its kind, then those that other slices bring."""
    names = [*slices.kinds()[study].rules]
    names += [name for each in slices.slices().values() for name in each.rules.get(study, ())]
    found: list[Rule[Any]] = []
    for name in names:
        rule = slices.load(name)
        found += rule if isinstance(rule, tuple) else [rule]
    return tuple(found)
