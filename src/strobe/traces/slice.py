"""Traces of torch.profiler, behind `strobe report`, and profilers behind other commands."""

from __future__ import annotations

from strobe.core.slices import Kind, Slice

SLICE = Slice(
    kinds={
        "trace": Kind(
            "strobe.traces.results.trace:TraceAnswer",
            "strobe.traces.pages.trace",
            ("strobe.traces.findings.trace:RULES",),
        ),
    },
    records={
        "operators": "strobe.traces.results.profiles:OperatorProfile",
        "python": "strobe.traces.results.profiles:PythonProfile",
    },
    rules={
        "breakdown": ("strobe.traces.findings.profiles:RULES",),
        "compare": ("strobe.traces.findings.profiles:RULES",),
    },
    shows={"breakdown": ("strobe.traces.pages.profiles",), "compare": ("strobe.traces.pages.profiles",)},
    offers={"trace": "strobe.traces.run:trace", "trace files": "strobe.traces.trace_file"},
)
