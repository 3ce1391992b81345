"""The cost of watching a training, and whether watching changes it.

Bars: the named parts of a step add up to its wall time within 2 %, a step with Strobe takes at most 1.01 times one
without, and the losses have the same bits.

Real lerobot-train of ACT and Diffusion Policy at full size (random weights), on a dataset recorded here: MetaWorld,
two cameras, 480x640, video. Within one training the probes are applied for every other step, so that steps with and
without alternate; another training without Strobe gives the losses.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.shared import finish, keep_memory, need

BAR, OTHER_BAR = 1.01, 0.02
LOSSES = 8  # compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("act", "diffusion"), help="one policy")
    parser.add_argument("--pairs", type=int, default=40, help="of steps with and without")
    parser.add_argument("--data", type=Path, help="a LeRobotDataset to train on, instead of one recorded now")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="PushT at 96x96, eight pairs, about two minutes")
    arguments = parser.parse_args()
    if arguments.data is not None:
        need("diffusion")
    else:
        need("diffusion", "pusht" if arguments.quick else "metaworld", opengl=not arguments.quick)
    keep_memory()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or record(Path(folder) / "data", quick=arguments.quick)
        pairs = 8 if arguments.quick else arguments.pairs
        figures = {}
        for policy in [arguments.only] if arguments.only else ["act", "diffusion"]:
            given = training(policy, data, arguments.device, quick=arguments.quick)
            figures[policy] = measure_overhead(policy, given, pairs, Path(folder))
    # A quick run has too few pairs for the ratio: it judges what does not depend on time.
    held = [
        f["losses_equal"] and (arguments.quick or (f["other"] <= OTHER_BAR and f["ratio"] <= BAR))
        for f in figures.values()
    ]
    finish({"quick": arguments.quick, "device": arguments.device, **figures}, all(held))


def record(folder: Path, *, quick: bool) -> Path:
    """A dataset with video, as LeRobot writes it."""
    from strobe.simulators.record_command import RecordConfig
    from strobe.simulators.record_command import record as write

    if quick:
        return write(RecordConfig(root=folder, episodes=4, frames=60, image="96"))
    return write(RecordConfig(root=folder, env="metaworld", episodes=4, frames=80, image="480x640"))


def training(policy: str, data: Path, device: str, *, quick: bool) -> list[str]:
    """lerobot-train's arguments, without its steps and its folder."""
    shared = [f"--dataset.repo_id=local/{data.name}", f"--dataset.root={data}", f"--policy.type={policy}"]
    shared += [f"--policy.device={device}", "--policy.push_to_hub=false", "--save_checkpoint=false", "--num_workers=2"]
    shared += ["--policy.pretrained_backbone_weights=null", "--log_freq=10", "--seed=1000"]
    shared += ["--dataloader_multiprocessing_context=fork", f"--batch_size={4 if quick else 2}"]
    return shared


def measure_overhead(policy: str, given: Sequence[str], pairs: int, folder: Path) -> dict[str, Any]:
    """The figures of one policy."""
    from strobe.core.measure.components import iterations
    from strobe.core.measure.statistics import find_warmup
    from strobe.core.measure.verdicts import paired_verdict
    from strobe.core.subjects.subject import ITERATION
    from strobe.train import figures as measure

    steps = 2 * pairs + 4
    watch = alternating()
    print(f"{policy}: {steps} steps, every other one with Strobe", flush=True)
    with watch:
        run([*given, f"--steps={steps}", f"--output_dir={folder / f'{policy}-watched'}"])
    assert watch.timeline is not None
    watch.timeline.stop()
    print(f"{policy}: {LOSSES} steps without Strobe", flush=True)
    bare = losses([*given, f"--steps={steps}", f"--output_dir={folder / f'{policy}-bare'}"])
    on, off = watch.took[True][1:], watch.took[False][1:]
    both = min(len(on), len(off))
    cut = find_warmup(off[:both])
    verdict = paired_verdict(off[cut:both], on[cut:both], baseline_name="without", candidate_name="with Strobe")
    seen = iterations(watch.timeline.sections(), ITERATION)[1 + cut :]
    whole = sum(step.ms for step in seen)
    named = sum(part.ms for step in seen for part in step.parts if len(part.path) == 2)
    print(f"{policy}: {verdict.text}")
    return {
        "ratio": verdict.ratio,
        "interval": [verdict.interval.low, verdict.interval.high],
        "pairs": verdict.pairs,
        "step_ms": whole / len(seen),
        "other": 1 - named / whole,
        "waits": sum(measure.part_ms(seen, "data")) / whole,
        "losses_equal": watch.every_loss[:LOSSES] == bare and len(bare) == LOSSES,
    }


def alternating() -> Any:
    """A watch whose probes are on for every other step."""
    from strobe.train.watch import TrainingWatch

    class Alternating(TrainingWatch):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.took: dict[bool, list[float]] = {True: [], False: []}
            self.every_loss: list[float] = []
            self.on, self.began = True, 0.0

        def _make_optimizer(self, inner: Any, config: Any, policy: Any) -> Any:
            found = super()._make_optimizer(inner, config, policy)
            self._note_losses()
            return found

        def _note_losses(self) -> None:
            def noting(inner: Any, *args: Any, **kwargs: Any) -> Any:
                found = inner(*args, **kwargs)
                self.every_loss.append(found[0].metrics["loss"].val)
                return found

            self._wrap(loop(), "update_policy", noting, self._probes)

        def _next_step(self) -> None:
            self._end_step()
            if self.began:
                self.took[self.on].append((time.perf_counter() - self.began) * 1e3)
                self.on = not self.on
                self._probes.close()
                if self.on:
                    self.attach_probes()
                self._note_losses()
            if self.on:
                self._step, self._used = self._mark(), self.used()
            self.began = time.perf_counter()

    return Alternating()


def loop() -> Any:
    from lerobot.scripts import lerobot_train

    return lerobot_train


def run(arguments: Sequence[str]) -> None:
    from strobe.lerobot.flags.lerobot_flags import patched_arguments

    with patched_arguments(arguments), open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        loop().main()


class Enough(BaseException):
    """Ends a training when its first losses are known; not an error, and no handler of errors may catch it."""


def losses(arguments: Sequence[str]) -> list[float]:
    """The first losses of a training without Strobe; its other steps are spared."""
    found: list[float] = []
    original = loop().update_policy

    def noting(*args: Any, **kwargs: Any) -> Any:
        done = original(*args, **kwargs)
        found.append(done[0].metrics["loss"].val)
        if len(found) == LOSSES:
            raise Enough
        return done

    loop().update_policy = noting
    try:
        run(arguments)
    except Enough:
        pass
    finally:
        loop().update_policy = original
    return found


if __name__ == "__main__":
    main()
