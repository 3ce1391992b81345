"""How far does rounding move a backbone's features, channel by channel and token by token?

V-JEPA 2 with random weights on one clip: its features in other number formats, and with all sums reordered, against
its own in float32. Bars: what only rounds keeps to the usual guard of features, and reordered sums move each channel by
less than a thousandth of its limit. --quick takes the tiny architecture.
"""

from __future__ import annotations

import argparse
from typing import Any

from common.shared import finish, need
from rich.console import Console
from rich.table import Table

from strobe.core.measure.agreement import agree_features
from strobe.core.measure.guard import OF_FEATURES, Guard
from strobe.core.results.agreement import Agreement
from strobe.core.sameness.reordered import ReorderedSums
from strobe.core.treatments import catalogue
from strobe.lerobot.policies.options import ModelOptions
from strobe.vision.model_subject import load_model

SPECS: list[dict[str, Any]] = [{"precision": "bf16"}, {"precision": "fp16"}, {"int8": "dynamic"}]


def main() -> None:
    """Print the figures of each format, and whether they keep to the guard."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the tiny architecture instead of ViT-L")
    arguments = parser.parse_args()
    need("pi", "quantise")
    subject = load_model(ModelOptions(type="vjepa2", size="tiny" if arguments.quick else "large"))
    call = subject.call("inference", 1)
    baseline = call(0).float().clone()
    found: dict[str, Agreement] = {}
    with ReorderedSums(0):
        found["reordered sums"] = agree_features([baseline], [call(0).float().clone()])
    for spec in SPECS:
        undo = catalogue.make(spec).apply(subject)
        try:
            found[catalogue.format_spec(spec)] = agree_features([baseline], [call(0).float().clone()])
        finally:
            undo()
    guard = Guard.parse(OF_FEATURES)
    limit = guard.limits["rms"]
    table = Table("features of", "RMS (σ)", "worst token (σ)", "worst (σ)", "cosine", str(guard))
    for name, one in found.items():
        figures = [f"{value:.2g}" for value in (one.rms, one.token, one.worst)]
        table.add_row(name, *figures, f"{one.cosine:.6f}", guard.judge(one).outcome)
    console = Console(width=150)
    console.print(table)
    console.print(f"{tuple(baseline.shape)} features of {subject.info.name}")
    sums = found["reordered sums"].rms
    held = all(guard.judge(one).outcome == "held" for one in found.values())
    figures = {name: {"rms": one.rms, "token": one.token, "cosine": one.cosine} for name, one in found.items()}
    finish(figures, holds=held and sums is not None and sums < limit / 1000)


if __name__ == "__main__":
    main()
