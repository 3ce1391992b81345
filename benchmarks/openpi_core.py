"""Strobe's core in openpi's own environment, without LeRobot: is its pi0.5 broken down, compared and verified there?

Run it with openpi's interpreter, in which Strobe is installed without an extra (docs/coming-from/openpi.md):

    openpi-env/bin/python benchmarks/openpi_core.py

It makes a tiny `PI0Pytorch` of random weights. `strobe.breakdown` names its parts, `strobe.compare` judges 10 denoising
steps against 5, `strobe.verify` holds the policy against itself and refuses the 5 steps, the report of a run and the
difference of two are written, and nothing of LeRobot was imported.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from _shared import could_not_run, finish

SECONDS, QUICK_S = 10.0, 3.0
SIDE, TOKENS = 28, 12
GUARD = "largest_error<=1e-5"
PARTS = {"vision tower", "prefix KV cache", "denoise step", "action expert"}
GEMMA = {"depth": 2, "num_heads": 8, "num_kv_heads": 1, "head_dim": 8}
SIZES: dict[str, Any] = {
    "vocabulary": 512,
    "vision": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": SIDE,
        "projection_dim": 64,
    },
    "gemma_2b": {"width": 64, "mlp_dim": 128, **GEMMA},
    "gemma_300m": {"width": 32, "mlp_dim": 64, **GEMMA},
}


def made() -> tuple[Any, Any, Any]:
    """Return the model, an observation and its noise."""
    import numpy as np
    from _openpi_worker import IMAGES, Worker

    worker, drawn = Worker(), np.random.default_rng(0)
    worker.build(SIZES, "float32", SIDE, "")
    images = [drawn.uniform(-1, 1, (1, 3, SIDE, SIDE)).astype(np.float32) for _ in IMAGES]
    tokens, noise = np.arange(TOKENS)[None], drawn.normal(size=(1, 50, 32)).astype(np.float32)
    worker.observe(images, tokens, np.ones((1, TOKENS), bool), noise)
    return worker.model, *worker.observations[0]


def held(seconds: float) -> dict[str, bool]:
    """Return each thing that was looked at, and whether it is so."""
    import strobe

    model, observation, noise = made()
    steps = {
        f"{count} steps": lambda seen, drawn, count=count: model.sample_actions(
            "cpu", seen, noise=drawn, num_steps=count
        )
        for count in (10, 5)
    }
    ten, five = steps.values()
    given = (observation, noise)
    judged = strobe.compare(steps, given, seconds=seconds)
    answer = strobe.breakdown(model, [("cpu", observation)], seconds=seconds)
    parts = {name for part in answer.measurements[0].components for name in part.path}
    print(judged, answer, sorted(parts), sep="\n", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        first = answer.save(folder)
        second = strobe.breakdown(model, [("cpu", observation)], seconds=seconds).save(folder)
        command = [sys.executable, "-m", "strobe"]
        reported = subprocess.run([*command, "report", str(first)], capture_output=True, text=True, check=False)
        differed = subprocess.run(
            [*command, "diff", str(first), str(second)], capture_output=True, text=True, check=False
        )
    (comparison,) = judged.comparisons
    return {
        "its parts are named": parts >= PARTS,
        "5 steps are judged against 10": comparison.verdict.pairs > 1 and comparison.verdict.kind == "faster",
        "the policy passes against itself": strobe.verify(ten, lambda *each: ten(*each), given, guard=GUARD).passed,
        "5 steps are refused": not strobe.verify(ten, five, given, guard=GUARD).passed,
        "a run is reported": reported.returncode == 0,
        "two runs are compared": differed.returncode == 0,
        "nothing of LeRobot was imported": not [name for name in sys.modules if name.partition(".")[0] == "lerobot"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_S:g} s for each answer in place of {SECONDS:g}")
    quick = parser.parse_args().quick
    sys.path.append(sys.path.pop(0))  # this folder has a file called openpi.py
    if find_spec("openpi") is None or find_spec("lerobot") is not None:
        could_not_run("this needs the interpreter of an environment with openpi and without LeRobot")
    found = held(QUICK_S if quick else SECONDS)
    versions = {name: version(name) for name in ("torch", "transformers", "numpy")}
    finish({**found, "python": sys.version.split()[0], **versions}, all(found.values()))


if __name__ == "__main__":
    main()
