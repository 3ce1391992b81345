"""Small results for the rules to read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from strobe.core.findings import Thresholds
from strobe.core.kinds import advise
from strobe.core.results.answer import BreakdownResult, Result
from strobe.core.results.comparison import Comparison, Verdict
from strobe.core.results.data import Interval, Samples, Summary
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Component, Measurement
from strobe.core.results.subject import Ceiling, SubjectInfo
from strobe.core.results.traits import Traits, TreatmentTraits, Value
from support.checks.approval import approve_cases
from support.examples.runs import MACHINE, SUBJECT

N = 20
# Ids of findings that matter, as a pattern → name of a case → the ids expected, in order, the answer, and its limits.
Cases = Mapping[str, Mapping[str, tuple[str, Any] | tuple[str, Any, Thresholds]]]


def summary(ms: float, n: int = N) -> Summary:
    interval = Interval(low=ms, high=ms) if n >= 6 else None
    return Summary(n=n, median=ms, interval=interval, mean=ms, std=0.0, min=ms, max=ms, p95=ms)


def make_measurement(parts: dict[str, float], *, name: str = "inference", phase: Any = "inference",
                     whole: float = 100.0,
             n: int = N, more: dict[str, dict[str, Any]] | None = None, notes: list[str] | None = None,
             **fields: Any) -> Measurement:  # fmt: skip
    """A measurement of ``whole`` ms, with parts such as {"policy": 95, "policy/backbone": 50, "other": 1}."""
    components = [
        Component(path=path.split("/"), other=path.split("/")[-1] == "other", calls=1, values=[ms] * n,
                  summary=summary(ms, n), share=ms / whole, **(more or {}).get(path, {}))
        for path, ms in parts.items()
    ]  # fmt: skip
    samples = Samples(values=[whole] * n, summary=summary(whole, n), notes=notes or [])
    return Measurement(name=name, phase=phase, samples=samples, components=components, **fields)


def make_treated_traits(*treatments: TreatmentTraits, **fields: Any) -> Traits:
    return Traits(treatments=list(treatments), **fields)


def make_applied_treatment(key: str, value: Value = True, **fields: Any) -> TreatmentTraits:
    return TreatmentTraits(key=key, value=value, **fields)


def result(
    *measurements: Measurement, of: type[Any] = BreakdownResult, device: str = "cpu", kind: str = "act", **fields: Any
) -> Any:
    """A result of the class ``of``; ``fields`` are its own, its subject's, or its machine's ``gflops``."""
    of_subject = {name: fields.pop(name) for name in SubjectInfo.model_fields if name in fields}
    own = {"name": kind, "kind": kind, "anatomy": kind, "parameters": 52_000_000, "weight_bytes": 208_000_000}
    ceiling = Ceiling(gflops=fields.pop("gflops", {}))
    update = {"device": device, "device_name": "a device", "ceiling": ceiling, "versions": {}, "power": {}}
    return of(
        strobe_version="0.1.0", title="a result", subject=SUBJECT.model_copy(update=own | of_subject),
        machine=MACHINE.model_copy(update=update), measurements=list(measurements), **fields,
    )  # fmt: skip


def make_comparison(kind: Any, *, candidate: str = "with RTC", baseline: str = "without RTC") -> Comparison:
    verdict = Verdict(
        kind=kind, ratio=1.2, interval=Interval(low=1.1, high=1.3), pairs=N, sentence="1.2 times as long [1.1, 1.3]"
    )
    return Comparison(baseline=baseline, candidate=candidate, verdict=verdict, difference_ms=20.0)


def rules(result: Result, thresholds: Thresholds | None = None) -> dict[str, Finding]:
    """Rule id → its last finding."""
    return {finding.rule: finding for finding in advise(result, thresholds or Thresholds())}


def approve_findings(name: str, cases: Cases, names: Mapping[str, str] | None = None) -> None:
    """Fail where the findings of an answer have other ids than its case says, or say other words than were approved.

    ``names`` are what changes from test to test, such as folders, and what is written in its place.
    """
    wrong, texts = {}, {}
    for ids, group in cases.items():
        for case, (expected, answer, *limits) in group.items():
            findings = [each for each in advise(answer, *limits) if re.fullmatch(f"rule-failed|{ids}", each.rule)]
            if (seen := " ".join(each.rule for each in findings)) != expected:
                wrong[case] = f"{seen or 'nothing'}, not {expected or 'nothing'}"
            if findings:
                assert case not in texts, f"two cases are called {case!r}"
                texts[case] = "\n".join(map(words, findings))
                for found, written in (names or {}).items():
                    texts[case] = texts[case].replace(found, written)
    assert not wrong, "\n".join(f"{case}: {why}" for case, why in wrong.items())
    approve_cases(f"findings-{name}", texts)


def words(finding: Finding) -> str:
    """All that a finding says, its figures to six digits."""
    said = [f"{name}: {getattr(finding, name)}" for name in ("found", "why", "do", "gain") if getattr(finding, name)]
    figures = [
        f"{name}={figure:.6g}" if isinstance(figure, float) else f"{name}={figure}"
        for name, figure in finding.evidence.items()
    ]
    said += [f"evidence: {', '.join(figures)}"] if figures else []
    return "\n  ".join([f"[{finding.level}] {finding.rule}: {finding.title}", *said])
