"""`strobe evaluate`."""

from __future__ import annotations

from strobe.core.slices import PROVE, Command, Kind, Slice

SLICE = Slice(
    commands=(
        Command(
            "evaluate",
            PROVE,
            "success against latency in a simulator, over denoising steps and recipes, in paired episodes",
            "strobe.evaluate.command",
        ),
    ),
    kinds={
        "evaluate": Kind(
            "strobe.evaluate.results:EvaluateResult",
            "strobe.evaluate.page",
            ("strobe.evaluate.findings:OF_EVALUATIONS", "strobe.core.findings.trust:stand_ins"),
        ),
        "evaluate results": Kind("strobe.evaluate.results:Judged", "strobe.evaluate.page_judged"),
    },
)
