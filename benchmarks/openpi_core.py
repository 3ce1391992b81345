"""Strobe's core in openpi's own environment, without LeRobot: is its pi0.5 broken down, compared and verified there?

Run it with openpi's interpreter, in which Strobe is installed without an extra, and packages/strobe_openpi
(docs/coming-from/openpi.md):

    openpi-env/bin/python benchmarks/openpi_core.py

It makes a tiny `PI0Pytorch` of random weights. `strobe.breakdown` names its parts, `strobe.compare` judges 10 denoising
steps against 5, `strobe.verify` compares the policy with itself and refuses the 5 steps, the report of a run and the
difference of two are written, and nothing of LeRobot was imported.

Each exact treatment, and all of them together, leave all bits of the actions of pi0 and pi0.5 as they are: with other
observations and noise, over 10 and 3 denoising steps, after they were reverted, in a deep copy, and in a `Policy` with
a compiled model. A graph is played on the CPU. `--only=exact` looks at these alone.
"""

from __future__ import annotations

import argparse
import copy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.shared import could_not_run, finish

import strobe_openpi
from strobe_openpi import EXACT

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


ALL = ", ".join(EXACT)
STEPS = (10, 3)


def exact() -> dict[str, bool]:
    """Return model and treatments → whether all bits of the actions are those of openpi's own, on and reverted."""
    found: dict[str, bool] = {}
    for name, pi05, dtype in (
        ("pi0", False, "float32"),
        ("pi0.5", True, "float32"),
        ("pi0.5 in bfloat16", True, "bfloat16"),
    ):
        worker = make_tiny_worker(pi05, dtype)
        for steps in STEPS:
            plain = chunks(worker.observations, worker.model, steps)
            for treatments in (*EXACT, ALL) if steps == STEPS[0] else (ALL,):
                played, on = apply_treatments(worker.model, treatments, steps)
                same = np.array_equal(plain, chunks(worker.observations, worker.model, steps))
                on.revert()
                same = same and np.array_equal(plain, chunks(worker.observations, worker.model, steps))
                found[f"{name}, {steps} steps, {treatments}"] = same and played.recorded == ("graph" in treatments)
                print(list(found.items())[-1], file=sys.stderr, flush=True)
        found[f"{name}, a copy of the treated model"] = is_copy_untreated(worker)
        found[f"{name}, a compiled Policy"] = is_compiled_equal(worker)
    return found | {"nothing of LeRobot was imported": is_lerobot_unimported()}


def make_tiny_worker(pi05: bool, dtype: str) -> Any:
    """Return a worker with a tiny model: observations that differ in all inputs, a camera masked in one; new noise."""
    from with_openpi.worker import IMAGES, Worker

    worker, drawn = Worker(), np.random.default_rng(0)
    worker.build(SIZES, dtype, SIDE, "", pi05)
    for weight in worker.model.parameters():  # so that the gates of pi0.5's norms let the expert's layers through
        weight.add_(0.05 * torch.randn_like(weight))
    for padding in (0, 4):
        images = [drawn.uniform(-1, 1, (1, 3, SIDE, SIDE)).astype(np.float32) for _ in IMAGES]
        tokens, noise = drawn.integers(0, 500, (1, TOKENS)), drawn.normal(size=(1, 50, 32)).astype(np.float32)
        mask, state = np.arange(TOKENS)[None] < TOKENS - padding, drawn.normal(size=(1, 32)).astype(np.float32)
        worker.observe(images, tokens, mask, noise, state, cameras=2 if padding else 3)
    worker.observations.append((worker.observations[0][0], -worker.observations[0][1]))
    return worker


def chunks(observations: Sequence[tuple[Any, Any]], model: Any, steps: int) -> Any:
    """Return the chunks of all observations, and of the first one again: (observations + 1, 1, horizon, dim)."""
    given = [*observations, observations[0]]
    return np.stack([model.sample_actions("cpu", seen, noise=noise, num_steps=steps).numpy() for seen, noise in given])


def apply_treatments(given: Any, treatments: str, steps: int | None = None) -> tuple[Any, Any]:
    """Return the capture that plays a CUDA graph on the CPU, and what takes the treatments off."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from support.devices.replayed_graph import Replayed

    from strobe.treatments.graphs.graph import CudaGraph

    played = Replayed()
    return played, strobe_openpi.apply_treatments(
        given, treatments, steps=steps, replacing={"graph": CudaGraph("chunk", played)}
    )


def is_copy_untreated(worker: Any) -> bool:
    """Return whether a deep copy of a treated model is untouched, and both have the bits of openpi's own."""
    plain = chunks(worker.observations, worker.model, STEPS[0])
    _, on = apply_treatments(worker.model, ALL)
    chunks(worker.observations, worker.model, STEPS[0])
    twin = copy.deepcopy(worker.model)
    both = [chunks(worker.observations, model, STEPS[0]) for model in (twin, worker.model)]
    on.revert()
    return "sample_actions" not in vars(twin) and all(np.array_equal(plain, each) for each in both)


def is_compiled_equal(worker: Any) -> bool:
    """Return whether a `Policy` with a compiled model has the same bits with treatments, and is compiled afterwards."""
    from openpi.policies.policy import Policy  # pyright: ignore[reportMissingImports]

    model = worker.model
    model.sample_actions = torch.compile(model.sample_actions, backend="eager")  # no rounding of inductor's
    policy = Policy(model, is_pytorch=True, pytorch_device="cpu")
    given = [(_raw(seen), noise.numpy()[0]) for seen, noise in worker.observations]
    plain = [policy.infer(seen, noise=noise)["actions"] for seen, noise in given]
    played, on = apply_treatments(policy, ALL)
    treated = [policy.infer(seen, noise=noise)["actions"] for seen, noise in given]
    on.revert()
    again = [policy.infer(seen, noise=noise)["actions"] for seen, noise in given]
    restored = policy._sample_actions is model.sample_actions
    del model.sample_actions
    return played.recorded == 1 and restored and np.array_equal(plain, treated) and np.array_equal(plain, again)


def _raw(seen: Any) -> dict[str, Any]:
    """Return an observation as `Policy.infer` takes it: NumPy, without the batch's dimension."""
    return {
        "image": {name: image[0].numpy() for name, image in seen.images.items()},
        "image_mask": {name: mask[0].numpy() for name, mask in seen.image_masks.items()},
        "state": seen.state[0].numpy(),
        "tokenized_prompt": seen.tokenized_prompt[0].numpy(),
        "tokenized_prompt_mask": seen.tokenized_prompt_mask[0].numpy(),
    }


def make_model_inputs() -> tuple[Any, Any, Any]:
    """Return the model, an observation and its noise."""
    from with_openpi.worker import IMAGES, Worker

    worker, drawn = Worker(), np.random.default_rng(0)
    worker.build(SIZES, "float32", SIDE, "")
    images = [drawn.uniform(-1, 1, (1, 3, SIDE, SIDE)).astype(np.float32) for _ in IMAGES]
    tokens, noise = np.arange(TOKENS)[None], drawn.normal(size=(1, 50, 32)).astype(np.float32)
    worker.observe(images, tokens, np.ones((1, TOKENS), bool), noise)
    return worker.model, *worker.observations[0]


def check_all(seconds: float) -> dict[str, bool]:
    """Return each thing that was looked at, and whether it is so."""
    import strobe

    model, observation, noise = make_model_inputs()
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
        "the policy passes against itself": strobe.verify(ten, lambda *each: ten(*each), given, guard=GUARD).has_passed,
        "5 steps are refused": not strobe.verify(ten, five, given, guard=GUARD).has_passed,
        "a run is reported": reported.returncode == 0,
        "two runs are compared": differed.returncode == 0,
        "nothing of LeRobot was imported": is_lerobot_unimported(),
    }


def is_lerobot_unimported() -> bool:
    """Return whether LeRobot was not imported so far."""
    return not [name for name in sys.modules if name.partition(".")[0] == "lerobot"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_S:g} s for each answer in place of {SECONDS:g}")
    parser.add_argument("--only", choices=("exact",), help="look at the exact treatments alone")
    arguments = parser.parse_args()
    sys.path.append(sys.path.pop(0))  # this folder has a file called openpi.py
    if find_spec("openpi") is None or find_spec("lerobot") is not None:
        could_not_run("this needs the interpreter of an environment with openpi and without LeRobot")
    torch.set_num_threads(1)
    found = {} if arguments.only else check_all(QUICK_S if arguments.quick else SECONDS)
    found |= exact()
    versions = {name: version(name) for name in ("torch", "transformers", "numpy")}
    finish({**found, "python": sys.version.split()[0], **versions}, all(found.values()))


if __name__ == "__main__":
    main()
