"""LeRobot's own training log, compared with Strobe's parts of the same steps, and what neither of its clocks contains.

Bars: `data_s`, `prep_s` (from LeRobot 0.6.2 on) and `updt_s` agree with Strobe's parts of the same steps within 1 ms
and 10 %; the time between two steps that the log's time stamps show in addition is Strobe's checkpoints, logging and
the rest within 10 % of a step. Each in five runs, of which four have a pause of 300 ms in a place of LeRobot's code.

Real lerobot-train of a small ACT on one thread, on PushT at 96x96 recorded here.
With LeRobot's main, PYTHONPATH names the folder that its wheel was unpacked to.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from common.shared import finish, keep_memory, need

PAUSE_S = 0.3
EVERY = 5  # steps from line to line
MS, SHARE, BETWEEN = 1.0, 0.1, 0.1  # a log's line has whole milliseconds
PLACES = ("nowhere", "data", "preprocessing", "update", "checkpoint")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="15 steps: a log too short for its time stamps")
    arguments = parser.parse_args()
    need("pusht")
    keep_memory()
    import lerobot
    import torch

    torch.set_num_threads(1)

    from strobe.simulators.scripted import record_pusht

    with tempfile.TemporaryDirectory() as folder:
        data = record_pusht(Path(folder) / "pusht", episodes=4, frames=60, image=96)
        steps = 15 if arguments.quick else arguments.steps
        rows = {place: compare(place, data, Path(folder) / place, steps) for place in PLACES}
    for place, row in rows.items():
        print(f"{place}: " + ", ".join(f"{name} {log} ms, Strobe {own} ms" for name, (log, own) in row.items()))
    held = [agrees(row) for row in rows.values()]
    finish({"quick": arguments.quick, "lerobot": lerobot.__version__, "steps": steps, **rows}, all(held))


def compare(place: str, data: Path, output: Path, steps: int) -> dict[str, tuple[float, float]]:
    """Train with a pause in ``place``; return figure → milliseconds of a step by the log, and by Strobe."""
    from strobe.core.measure.components import iterations
    from strobe.core.subjects.subject import ITERATION
    from strobe.open_loop.training_log import read_log
    from strobe.train import figures
    from strobe.train.run import WatchOptions, train

    given = [f"--dataset.repo_id=local/{data.name}", f"--dataset.root={data}", "--policy.type=act", "--batch_size=4"]
    given += ["--policy.device=cpu", "--policy.push_to_hub=false", "--policy.pretrained_backbone_weights=null"]
    given += ["--policy.chunk_size=4", "--policy.n_action_steps=4", "--policy.n_encoder_layers=1"]
    given += ["--policy.dim_model=32", "--policy.n_heads=2", "--policy.dim_feedforward=32", "--num_workers=0"]
    given += [f"--steps={steps}", f"--log_freq={EVERY}", "--save_freq=5", f"--output_dir={output}"]
    given += [f"--save_checkpoint={'true' if place == 'checkpoint' else 'false'}"]
    file = output.with_suffix(".log")
    with file.open("w") as log, contextlib.redirect_stderr(log), plant_pause(place):
        watched = train(given, WatchOptions(most_steps=steps))
    log = read_log(file, EVERY)
    later = iterations(watched.sections, ITERATION)[EVERY:]  # as `read_log` leaves the first line out

    def mean(*names: str) -> float:
        return sum(sum(figures.part_ms(later, name)) for name in names) / len(later)

    own = {"data_s": mean(figures.DATA), "prep_s": mean(figures.FLOATS, figures.PREPROCESSING)}
    own["updt_s"] = mean(*figures.COMPUTE)
    if "prep_s" not in log.seconds:  # LeRobot 0.6.1
        own["data_s"] += own.pop("prep_s")
    row = {name: (1e3 * log.seconds[name], ms) for name, ms in own.items()}
    if log.wall_s is not None:
        whole = sum(step.ms for step in later) / len(later)
        row["between"] = 1e3 * (log.wall_s - sum(log.seconds.values())), whole - sum(own.values())
    return {name: (round(by_log, 1), round(ms, 1)) for name, (by_log, ms) in row.items()}


@contextlib.contextmanager
def plant_pause(place: str) -> Iterator[None]:
    """Pause `PAUSE_S` in each step, in LeRobot's own code at ``place``; of a checkpoint in each of them."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.processor.pipeline import DataProcessorPipeline
    from lerobot.scripts import lerobot_train

    where: dict[str, tuple[Any, str, float]] = {
        "data": (LeRobotDataset, "__getitem__", PAUSE_S / 4),  # a batch has four
        "preprocessing": (DataProcessorPipeline, "__call__", PAUSE_S),
        "update": (ACTPolicy, "forward", PAUSE_S),
        "checkpoint": (lerobot_train, "save_checkpoint", 5 * PAUSE_S),  # every fifth step
    }
    if place not in where:
        yield
        return
    owner, name, seconds = where[place]
    with mock.patch.object(owner, name, sleep_before(getattr(owner, name), seconds)):
        yield


def sleep_before(inner: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        time.sleep(seconds)
        return inner(*args, **kwargs)

    return call


def agrees(row: dict[str, tuple[float, float]]) -> bool:
    whole = sum(ms for _, ms in row.values())
    return all(
        abs(log - ms) <= (BETWEEN * whole if name == "between" else MS + SHARE * ms) for name, (log, ms) in row.items()
    )


if __name__ == "__main__":
    main()
