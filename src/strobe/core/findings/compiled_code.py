"""Rules on code that torch.compile made: graph breaks, recompilations, CUDA graphs that were not captured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.answer import Result
from strobe.core.results.compilation import Compilation, Recompilation
from strobe.core.results.measurement import Measurement

FEW = 3  # places that a text names
PROBES = "strobe/core/timeline/"  # the files that stand around a timed part


@finding("graph-breaks", "warning")
def graph_breaks(result: Result, _: Thresholds) -> Found:
    """The compiled code of '{name}' stops at {breaks} line{breaks:plural}.

    Seen: {shown}.
    Why: At each, Python runs and starts the next graph. Nothing is fused across it, and a device may wait there.
    Do: {do}TORCH_LOGS=graph_breaks prints the calls that lead there. A part without such lines can be compiled alone:
        --variant 'part: compile=default, compile.part=PATH'.
    """
    for measurement, seen in _compiled(result):
        if seen.breaks:
            reasons = {cut.shown: cut.reason.rstrip(".") for cut in reversed(seen.breaks)}
            name, shown = measurement.name, _named([f"{at} ({reasons[at]})" for at in seen.places])
            items = any("item()" in cut.reason for cut in seen.breaks)
            do = "Keep values on the device: `.item()` reads one. " if items else ""
            yield {"breaks": len(seen.places), "graphs": seen.graphs}, locals()


@finding("recompiles", "warning")
def recompiles(result: Result, _: Thresholds) -> Found:
    """Code of '{name}' is compiled again {head}.

    Seen: {shown}.
    Why: {why}
    Do: {do} TORCH_LOGS=recompiles prints each guard that fails.
    """
    for measurement, seen in _compiled(result):
        if hit := [again for again in seen.recompiled if again.late or again.limit]:
            name, late = measurement.name, sum(again.late for again in hit)
            limits = ", ".join(dict.fromkeys(again.limit for again in hit if again.limit))
            head = f"until {limits} is reached" if limits else "after the warm-up"
            why = "Each compilation stops the calls, for seconds or minutes."
            why = "From the limit on, what is not yet compiled runs as it is, at its eager speed." if limits else why
            do = "Give these inputs one shape, such as prompts of one length, or compile with dynamic=True."
            if all(again.file.startswith(PROBES) for again in hit):
                do = "These are Strobe's probes, on parts between graph breaks: a smaller --depth has fewer."
            shown = _named([_again(again) for again in hit])
            yield {"late": late, "limit": limits}, locals()


@finding("cuda-graph-skipped", "warning")
def skipped_graphs(result: Result, _: Thresholds) -> Found:
    """Compiled code of '{name}' was not captured in a CUDA graph.

    Seen: {shown}.
    Why: Without the graph the host launches each kernel by itself, which is what the mode was chosen to spare.
    Do: Mend the reason, or compile in the default mode. On a policy, `strobe optimize` also tries Strobe's own graphs.
    """
    for measurement, seen in _compiled(result):
        if seen.skipped:
            name, shown = measurement.name, _named([f"{skip.reason} at {skip.shown}" for skip in seen.skipped])
            yield {"skipped": sum(skip.times for skip in seen.skipped)}, locals()


def _compiled(result: Result) -> Iterator[tuple[Measurement, Compilation]]:
    return ((m, m.compilation) for m in result.measurements if m.compilation is not None)


def _named(places: Sequence[str]) -> str:
    more = f"; and {len(places) - FEW} more" if len(places) > FEW else ""
    return "; ".join(places[:FEW]) + more


def _again(again: Recompilation) -> str:
    guard = f" ({again.guards[0]})" if again.guards else ""
    return f"{again.shown} {again.times} times, {again.late} of them in measured calls{guard}"


RULES = (graph_breaks, recompiles, skipped_graphs)
