"""openpi's PyTorch pi0.5: are its parts right, and does LeRobot's pi0.5 compute the same?

Needs an interpreter with openpi in an environment of its own (how to install one: docs/coming-from/openpi.md):

    python benchmarks/openpi.py --openpi-python=/path/to/openpi/bin/python

Without that it ends with one line. openpi needs transformers 4.53.2 with files of its own, LeRobot 0.6.1 needs
transformers 5: two processes, which take turns. A tiny pi0.5 of random weights (`--full`: a full one in bfloat16).

- Each part of openpi's with 5 % of the time or more agrees with torch.profiler's range of `record_function` within 5 %,
  in the same call (the median of several).
- Every weight of LeRobot's policy has a place in openpi's model under the same name without `model.`, and the reverse.
- With the same weights, observation and noise the actions differ by 1e-4 of their size or less, in float32. The
  distance of each stage is shown, and so is the first stage with a larger one.
- `strobe.compare` judges the two, with at least 8 pairs. openpi's calls go over a pipe. The pipe's time is in theirs,
  and shown.
- Images of 480 x 640 as each makes them smaller, and the prompt's text as each writes it: shown, not judged.
- A tiny pi0.5 and pi0 that openpi saves, with statistics, become LeRobot's by the code of docs/coming-from/openpi.md.
  What LeRobot loads from that folder gives openpi's actions within 1e-4, in the model's numbers and in the robot's
  units, in float32. `--only=checkpoint` looks at that alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from multiprocessing import Pipe
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from common.shared import could_not_run, finish, keep_memory, need
from rich.console import Console
from rich.table import Table
from with_openpi.stages import stages

import strobe
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions

AGREE, BIG, SAME, PAIRS = 0.05, 0.05, 1e-4, 8  # the bars
OBSERVATIONS = 4
TASK = "pick up the red_block"


class Remote:
    """The worker in openpi's environment: `remote("sample", 0)` calls its method `sample` and waits."""

    def __init__(self, python: str) -> None:
        here = Path(__file__).resolve().parent
        self.pipe, theirs = Pipe()
        paths = [str(here.parent / "src"), os.environ.get("PYTHONPATH", "")]
        command = [python, str(here / "with_openpi" / "worker.py"), str(theirs.fileno())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self.inside_s = 0.0

    def __call__(self, method: str, *given: Any) -> Any:
        try:
            self.pipe.send((method, given))
            well, answer, self.inside_s = self.pipe.recv()
        except (EOFError, OSError):
            could_not_run(f"openpi's process ended with {self.process.wait()}; its last lines are above")
        if not well:
            self.close()
            could_not_run(f"openpi's process cannot do '{method}': {answer}")
        return answer

    def close(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.wait()


class Ours:
    """LeRobot's pi0.5 with observations, their noise, and its sizes."""

    def __init__(self, full: bool, dtype: str) -> None:
        self.side = 224 if full else 28
        options = PolicyOptions(
            type="pi05", size="full" if full else "tiny", overrides=["--device=cpu", f"--dtype={dtype}"]
        )
        source = InputOptions(cameras=3, image_size=(self.side, self.side))
        self.subject = load_subject(options, source)
        self.policy: Any = self.subject.policy
        self.actions = self.policy.config.output_features["action"].shape[0]
        self.batches = [self.subject.prepare(self.subject.observation(index)) for index in range(OBSERVATIONS)]
        made = torch.Generator().manual_seed(0)
        self.noises = [torch.randn(1, 50, 32, generator=made) for _ in self.batches]

    def chunk(self, index: int) -> torch.Tensor:
        """Return the chunk of observation ``index``, (1, 50, action dim)."""
        return self.policy.predict_action_chunk(self.batches[index], noise=self.noises[index])

    def stages(self, index: int) -> dict[str, np.ndarray]:
        """Return what is computed on the way to it."""
        return stages(self.policy.model, lambda: self.chunk(index))

    def sizes(self) -> dict[str, Any]:
        """Return the sizes that openpi's model is built with."""
        joint = self.policy.model.paligemma_with_expert
        config = joint.paligemma.config
        names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size")
        vision = {name: getattr(config.vision_config, name) for name in (*names, "projection_dim")}
        transformers = {"gemma_2b": config.text_config, "gemma_300m": joint.gemma_expert.config}
        return {
            "vocabulary": config.text_config.vocab_size,
            "vision": vision,
            **{name: _gemma(of) for name, of in transformers.items()},
        }

    def save(self, folder: str) -> str:
        """Write the weights to a file, and return its path.

        openpi has one tensor for the table of words and the unread language head, LeRobot two, which are equal in a
        checkpoint. Random ones are made equal here.
        """
        from safetensors.torch import save_model

        path = str(Path(folder) / "weights.safetensors")
        paligemma = self.policy.model.paligemma_with_expert.paligemma
        with torch.no_grad():
            paligemma.lm_head.weight.copy_(paligemma.model.language_model.embed_tokens.weight)
        save_model(self.policy, path)
        return path

    def show(self, remote: Remote) -> None:
        """Give the observations to openpi's process, as the model gets them here."""
        for batch, noise in zip(self.batches, self.noises, strict=True):
            images, _ = self.policy._preprocess_images(batch)
            tokens, mask = batch["observation.language.tokens"], batch["observation.language.attention_mask"]
            shown = [image.contiguous().numpy() for image in images]
            remote("observe", shown, tokens.numpy(), mask.bool().numpy(), noise.numpy())


def _gemma(config: Any) -> dict[str, int]:
    return {
        "width": config.hidden_size,
        "depth": config.num_hidden_layers,
        "mlp_dim": config.intermediate_size,
        "num_heads": config.num_attention_heads,
        "num_kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
    }


def attribution(remote: Remote, count: int, console: Console) -> tuple[float, bool]:
    """Show openpi's parts against torch.profiler's ranges.

    Returns:
        The largest difference as a share, and whether any part was judged.
    """
    rows = remote("profiled", count)
    table = Table("part", "% of whole", "ours, ms", "profiler's, ms", "difference", title="openpi's parts")
    worst = 0.0
    big = [name for name in rows[0] if median(row[name][2] for row in rows) >= BIG]
    for name in big:
        ours, theirs, shares = zip(*(row[name] for row in rows), strict=True)
        difference = median(a / b - 1 for a, b in zip(ours, theirs, strict=True))
        worst = max(worst, abs(difference))
        took = f"{median(ours):.2f}", f"{median(theirs):.2f}"
        table.add_row(name, f"{median(shares):.1%}", *took, f"{difference:+.1%}")
    console.print(table)
    return worst, bool(big)


def distances(ours: Ours, remote: Remote, dtype: str, console: Console) -> dict[str, float]:
    """Show the distance of each stage, as a share of its size. Return the largest of all observations."""
    far: dict[str, float] = {}
    table = Table("stage", "distance / size", "largest difference", title=f"same weights, {dtype}")
    for index in range(OBSERVATIONS):
        mine, theirs = ours.stages(index), remote("stages", index)
        theirs["actions"] = theirs["actions"][:, :, : ours.actions]
        for name, array in mine.items():
            gap = np.linalg.norm(array - theirs[name]) / max(np.linalg.norm(array), 1e-30)
            far[name] = max(far.get(name, 0.0), float(gap))
            if index == 0:
                table.add_row(name, f"{gap:.1e}", f"{np.abs(array - theirs[name]).max():.1e}")
    console.print(table)
    first, second = ours.chunk(0), ours.policy.predict_action_chunk(ours.batches[1], noise=ours.noises[0])
    console.print(f"  another observation with the same noise: {float((first - second).norm() / first.norm()):.1e}")
    return far


def compare_alternately(ours: Ours, remote: Remote, seconds: float, console: Console) -> dict[str, Any]:
    """Judge both in alternation, then show the time of each by part."""
    piped: list[float] = []

    def openpis(index: int) -> np.ndarray:
        import time

        began = time.perf_counter()
        actions = remote("sample", index)
        piped.append(time.perf_counter() - began - remote.inside_s)
        return actions[:, :, : ours.actions]

    answer = strobe.compare({"LeRobot": ours.chunk, "openpi": openpis}, list(range(OBSERVATIONS)), seconds=seconds)
    for line in str(answer).splitlines():
        console.print(f"  {line}")
    console.print(f"  of openpi's time the pipe took {1e3 * median(piped):.2f} ms a call")
    (judged,) = answer.comparisons
    broken = strobe.breakdown(ours.policy, ours.batches, seconds=seconds / 2, count=False).measurements[0]
    mine = {" > ".join(part.path): part.summary.median for part in broken.components}
    mine[""] = broken.samples.summary.median
    theirs = remote("parts", seconds / 2)
    table = Table("part", "LeRobot, ms", "openpi, ms", title="time by part, one after the other")
    for name in dict.fromkeys([*mine, *theirs]):
        table.add_row(name or "a chunk", *(f"{of[name]:.2f}" if name in of else "–" for of in (mine, theirs)))
    console.print(table)
    verdict = judged.verdict
    return {
        "verdict": verdict.kind,
        "openpi_over_lerobot": verdict.ratio,
        "interval": [verdict.interval.low, verdict.interval.high],
        "pairs": verdict.pairs,
        "parts_lerobot_ms": mine,
        "parts_openpi_ms": theirs,
    }


def compare_preprocessing(ours: Ours, remote: Remote, console: Console) -> dict[str, Any]:
    """Show how each makes images smaller, and which text each writes for the tokenizer."""
    made = np.random.default_rng(0)
    coarse = made.integers(0, 256, (60, 80, 3)).repeat(8, 0).repeat(8, 1)
    image = np.clip(coarse + made.integers(-40, 41, coarse.shape), 0, 255).astype(np.uint8)
    side = ours.side
    batch = {name: torch.from_numpy(image).permute(2, 0, 1)[None] / 255 for name in ours.policy.config.image_features}
    mine = ours.policy._preprocess_images(batch)[0][0][0].permute(1, 2, 0).numpy()
    theirs = remote("resized", image, side)
    gap = float(np.abs(mine - theirs).mean())
    state = np.linspace(-1, 1, 8, dtype=np.float32)
    texts = prompt(state), remote("prompt", TASK, state)
    console.print(f"  an image of 480 x 640 made {side} x {side}: {gap:.3f} difference on average, of a range of 2")
    same = texts[0] == texts[1]
    console.print(f"  prompt: {'the same text' if same else f'{texts[0]!r} against {texts[1]!r}'}")
    return {"resize_mean_difference": gap, "same_prompt": same}


def prompt(state: np.ndarray) -> str:
    """Return the text that LeRobot gives its tokenizer for pi0.5."""
    from lerobot.policies.pi05.processor_pi05 import Pi05PrepareStateTokenizerProcessorStep
    from lerobot.processor import TransitionKey

    given: Any = {
        TransitionKey.OBSERVATION: {"observation.state": torch.from_numpy(state)[None]},
        TransitionKey.COMPLEMENTARY_DATA: {"task": [TASK]},
    }
    return Pi05PrepareStateTokenizerProcessorStep()(given)[TransitionKey.COMPLEMENTARY_DATA]["task"][0]


def checkpoints(remote: Remote, console: Console) -> tuple[dict[str, Any], bool]:
    """Return how far converted policies are from openpi's, and whether the bar holds in float32."""
    from with_openpi.checkpoint import CASES, measure_conversion_error

    figures: dict[str, Any] = {}
    for kind, dtype in CASES:
        with tempfile.TemporaryDirectory(prefix="strobe-openpi-") as folder:
            figures[f"{kind} in {dtype}"] = measure_conversion_error(remote, kind, dtype, Path(folder))
        console.print(f"converted {kind} in {dtype}: {figures[f'{kind} in {dtype}']}")
    exact = [found for case, found in figures.items() if case.endswith("float32")]
    return {"converted": figures}, all(found[which] <= SAME for found in exact for which in ("actions", "in units"))


def study(remote: Remote, quick: bool, full: bool, console: Console) -> tuple[dict[str, Any], bool]:
    """Return the figures, and whether the bars hold."""
    figures: dict[str, Any] = {"openpi": remote("versions")}
    holds = True
    dtypes = ("bfloat16",) if full else ("float32",) if quick else ("float32", "bfloat16")
    for dtype in dtypes:
        ours = Ours(full, dtype)
        with tempfile.TemporaryDirectory(prefix="strobe-openpi-") as folder:
            sizes = {} if full else ours.sizes()
            missing, unexpected = remote("build", sizes, dtype, ours.side, ours.save(folder))
        console.print(f"{dtype}: {len(missing)} names without weights, {len(unexpected)} weights without names")
        for name in [*missing, *unexpected][:8]:
            console.print(f"  {name}")
        ours.show(remote)
        far = distances(ours, remote, dtype, console)
        different = next((name for name, gap in far.items() if gap > SAME), "")
        if different:
            console.print(f"  first stage that differs by more than {SAME:g}: {different} ({far[different]:.1e})")
        figures[dtype] = {"distances": far, "first_difference": different, "missing": missing, "unexpected": unexpected}
        holds = holds and not missing and not unexpected
        if dtype == "float32":
            holds = holds and far["actions"] <= SAME
        if dtype == dtypes[0]:
            worst, judged = attribution(remote, 5 if quick else 15, console)
            figures["profiler_difference"] = worst
            figures |= compare_alternately(ours, remote, 8 if quick else 40, console) | compare_preprocessing(
                ours, remote, console
            )
            holds = holds and judged and worst <= AGREE and figures["pairs"] >= PAIRS
    return figures, holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only float32, and fewer calls")
    parser.add_argument("--full", action="store_true", help="a full-size pi0.5 in bfloat16: two of 7 GB")
    parser.add_argument("--only", choices=("checkpoint",), help="look at converted checkpoints alone")
    parser.add_argument("--openpi-python", default="", help="the interpreter of openpi's environment")
    arguments = parser.parse_args()
    if not arguments.openpi_python:
        could_not_run("no openpi: give --openpi-python=PYTHON (docs/coming-from/openpi.md says how to install it)")
    if not Path(arguments.openpi_python).is_file():
        could_not_run(f"there is no interpreter {arguments.openpi_python}")
    need("pi", memory_gib=26 if arguments.full else 0)
    keep_memory(KINETO_LOG_LEVEL="5")
    remote = Remote(arguments.openpi_python)
    try:
        figures, holds = ({}, True) if arguments.only else study(remote, arguments.quick, arguments.full, Console())
        if not arguments.full:
            more, converts = checkpoints(remote, Console())
            figures, holds = figures | more, holds and converts
    finally:
        remote.close()
    finish(figures, holds)


if __name__ == "__main__":
    main()
