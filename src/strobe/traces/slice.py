"""Traces of torch.profiler, behind `strobe report`, and profilers behind other commands."""

from __future__ import annotations

from strobe.core.slices import Kind, Slice

SLICE = Slice(
    kinds={
        "trace": Kind(
            "strobe.traces.results:TraceAnswer",
            "strobe.traces.page",
            ("strobe.traces.findings.trace:RULES",),
        ),
    },
    records={"operators": "strobe.traces.results:OperatorProfile", "python": "strobe.traces.results:PythonProfile"},
    rules=dict.fromkeys(("breakdown", "compare"), ("strobe.traces.findings.profiles:RULES",)),
    shows=dict.fromkeys(("breakdown", "compare"), ("strobe.traces.profiles_page",)),
    offers={"trace": "strobe.traces.run:trace", "trace files": "strobe.traces.trace_file"},
)
