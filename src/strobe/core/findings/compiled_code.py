"""Rules on code that torch.compile made: graph breaks, recompilations, CUDA graphs that were not captured."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results import units
from strobe.core.results.answer import Result
from strobe.core.results.finding import Finding, warning
from strobe.core.results.measurement import Compilation, CompiledPlace

FEW = 3  # places that a text names
PROBES = "strobe/core/timeline/"  # the files that stand around a timed part


def graph_breaks(result: Result, _: Thresholds) -> Iterator[Finding]:
    for name, seen in _compilations(result):
        if cuts := list({place.where: place for place in seen.select_places("graph break", "not compiled")}.values()):
            reading = any("item()" in reason for cut in cuts for reason in cut.reasons)
            do = "Keep values on the device: `.item()` reads one. " if reading else ""
            yield warning(
                rule="graph-breaks",
                title=f"The compiled code of {units.quote(name)} stops at {len(cuts)} line{units.plural(len(cuts))}",
                found=f"{_list_places(cuts)}.",
                why="At each of these lines Python runs and starts the next graph. Nothing is fused across it, and a "
                "device may wait.",
                do=f"{do}TORCH_LOGS=graph_breaks prints the calls that lead there. To compile a part without such "
                "lines alone, add compile.part=PATH to compile=default.",
            )


def recompiles(result: Result, _: Thresholds) -> Iterator[Finding]:
    for name, seen in _compilations(result):
        if hit := [place for place in seen.select_places("recompiled") if place.late or place.limit]:
            late, limit = sum(place.late for place in hit), next((place.limit for place in hit if place.limit), "")
            do = "Give these inputs one shape, such as prompts of one length, or compile with dynamic=True."
            if all(place.where.startswith(PROBES) for place in hit):
                do = "These are Strobe's probes, on parts between graph breaks. A smaller --depth has fewer."
            when = f"until {limit} is reached" if limit else "after the warm-up"
            yield warning(
                rule="recompiles",
                title=f"Code of {units.quote(name)} is compiled again {when}",
                found=f"{_list_places(hit)}; {late} of these in measured calls.",
                why="Each compilation stops a call for seconds or minutes. Past the limit, code without a compilation "
                "runs eagerly.",
                do=f"{do} TORCH_LOGS=recompiles prints each guard that fails.",
            )


def skipped_graphs(result: Result, _: Thresholds) -> Iterator[Finding]:
    for name, seen in _compilations(result):
        if skipped := seen.select_places("no CUDA graph"):
            yield warning(
                rule="cuda-graph-skipped",
                title=f"Compiled code of {units.quote(name)} was not captured in a CUDA graph",
                found=f"{_list_places(skipped)}.",
                why="Without the graph the host launches each kernel by itself. The mode was chosen to avoid that.",
                do="Fix the reason, or compile in the default mode. On a policy, `strobe optimize` also tries "
                "Strobe's own graphs.",
            )


def _compilations(result: Result) -> Iterator[tuple[str, Compilation]]:
    return ((m.name, m.compilation) for m in result.measurements if m.compilation is not None)


def _list_places(places: list[CompiledPlace]) -> str:
    named = [f"{place.where} ({'; '.join(place.reasons[:1]).rstrip('.')})" for place in places[:FEW]]
    return "; ".join(named) + (f"; and {len(places) - FEW} more" if len(places) > FEW else "")


RULES = (graph_breaks, recompiles, skipped_graphs)
