"""Does the policy in the box succeed, does it fail when it is disturbed, and is each damage named?

The demo (`--policy.path=demo`) presses MetaWorld's button from STARTS starts that it was not trained on. Copies of its
checkpoint have a planted damage, and play the same starts until `strobe evaluate` has its verdict, PAIRS at most:

- half the normalisation: of the two inputs the state has lost its statistics, as where a file was saved without them;
- swapped joints: the actions of x and y have changed places, as on an arm that is wired otherwise;
- noise on the weights: each has a normal number added, as large as the spread of its tensor;
- 8 bits: all weights rounded to 8 bits with one scale for each tensor. It does not hurt: no false alarm may be raised.

Bars: the demo's success is shown to be 90 % or more (lower end of Clopper and Pearson's interval). The first three
are shown to be worse, by the interval that holds at any number of pairs; 8 bits are not. `strobe preflight`, on
recorded episodes, ends with 0 for the demo and for 8 bits. It ends with 1 for half the normalisation and for swapped
joints, by a rule of NAMED. What it says of noise, which is no wiring, is shown and has no bar.

    python benchmarks/demo.py [--quick] [--starts=N]

The last line is JSON with every figure. `--quick` plays 30 starts of the demo and 12 of each damage.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common.shared import finish, need
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file, save_file

from strobe.core.cli.main import main as strobe
from strobe.core.demo import CHECKPOINT
from strobe.core.runs import store
from strobe.evaluate.measure.success_rates import decide, success_rate
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.simulators.metaworld_state import StateArm, record_states
from strobe.simulators.simulator import Simulator

STARTS, PAIRS, LEAST = 200, 50, 0.9
QUICK = (30, 12)
WEIGHTS = "model.safetensors"
SEED = 20_000  # of the recorded episodes; the demo was trained on those from 10,000 on
Weights = dict[str, torch.Tensor]
# Damage → the rule by which preflight finds it.
NAMED = {"half the normalisation": "statistics-absent", "swapped joints": "wired-otherwise-action-order"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few starts: about a minute on one core")
    parser.add_argument("--starts", type=int, default=STARTS, help="of the demo")
    arguments = parser.parse_args()
    starts, pairs = QUICK if arguments.quick else (arguments.starts, PAIRS)
    need("metaworld")
    torch.set_num_threads(1)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        data = record_states(Path(work) / "data", 20, 80, seed=SEED)
        folders = {"baseline": CHECKPOINT} | {
            name: damage_copy(Path(work) / name.replace(" ", "-"), change) for name, change in DAMAGES.items()
        }
        played: dict[str, list[bool]] = {"baseline": play(CHECKPOINT, starts)}
        figures = {"baseline": summarize_outcomes(played["baseline"], None)}
        for name in DAMAGES:
            played[name] = play(folders[name], pairs, played["baseline"])
            figures[name] = summarize_outcomes(played[name], played["baseline"])
        for name, folder in folders.items():
            figures[name] |= preflight(folder, data, Path(work) / "runs")
    show(figures)
    seconds = round(time.perf_counter() - began)
    finish({"starts": starts, "seconds": seconds, "policies": figures}, holds(figures, arguments.quick))


def holds(figures: dict[str, Any], quick: bool) -> bool:
    own, harmless = figures["baseline"], figures["8 bits"]
    return (
        own["low"] >= (0.8 if quick else LEAST)
        and own["exit code"] == harmless["exit code"] == 0
        and not harmless["shown worse"]
        and all(figures[name]["shown worse"] for name in DAMAGES if name != "8 bits")
        and all(figures[name]["exit code"] == 1 and rule in figures[name]["rules"] for name, rule in NAMED.items())
    )


def play(folder: Path, starts: int, beside: list[bool] | None = None) -> list[bool]:
    """Return the success from each start; beside those of the undamaged policy only until a verdict."""
    env = StateArm()
    subject = load_subject(PolicyOptions(path=str(folder)), InputOptions(env=env))
    simulator = Simulator(env, subject)
    (task,) = simulator.tasks
    outcomes: list[bool] = []
    for seed in range(starts):
        outcomes.append(simulator.play(task, seed).episode.success)
        if beside is not None and worse(outcomes, beside):
            break
    simulator.close()
    return outcomes


def worse(outcomes: list[bool], first: list[bool]) -> bool:
    """Whether the differences of the pairs so far show a loss."""
    differences = [int(one) - int(other) for one, other in zip(outcomes, first, strict=False)]
    return decide(differences).kind == "worse"


def summarize_outcomes(outcomes: list[bool], first: list[bool] | None) -> dict[str, Any]:
    rate = success_rate(outcomes)
    found: dict[str, Any] = {"episodes": rate.episodes, "successes": rate.successes}
    found |= {"rate": rate.rate, "low": rate.interval.low, "high": rate.interval.high}
    return found | ({"shown worse": worse(outcomes, first)} if first is not None else {})


def preflight(folder: Path, data: Path, runs: Path) -> dict[str, Any]:
    """Return the exit code of `strobe preflight`, and the rules of what it found."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = strobe(["preflight", f"--policy.path={folder}", f"--dataset.root={data}", f"--output_dir={runs}"])
    (made,) = runs.iterdir()
    rules = [finding.rule for finding in store.load_answer(made).findings]
    shutil.rmtree(runs)
    return {"exit code": code, "rules": rules}


def damage_copy(folder: Path, change: Callable[[Path], None]) -> Path:
    """Return a copy of the demo's checkpoint in ``folder`` with a damage."""
    shutil.copytree(CHECKPOINT, folder)
    change(folder)
    return folder


def half_normalised(folder: Path) -> None:
    (file,) = folder.glob("policy_preprocessor_step_*")
    statistics = load_file(file)
    save_file({name: each for name, each in statistics.items() if not name.startswith("observation.state.")}, file)


def swap_actions(folder: Path) -> None:
    order = torch.tensor([1, 0, 2, 3])
    _change(folder, lambda name, weight: weight[order] if name.startswith("model.action_head") else weight)
    (file,) = folder.glob("policy_postprocessor_step_*")
    statistics = load_file(file)
    of_actions = {
        name: each[order].contiguous()
        for name, each in statistics.items()
        if name.startswith("action.") and len(each) == 4
    }
    save_file(statistics | of_actions, file)


def noisy(folder: Path) -> None:
    generator = torch.Generator().manual_seed(0)

    def change(_: str, weight: torch.Tensor) -> torch.Tensor:
        if weight.numel() < 2:
            return weight
        return weight + weight.std() * torch.randn(weight.shape, generator=generator)

    _change(folder, change)


def round_weights(folder: Path) -> None:
    def change(_: str, weight: torch.Tensor) -> torch.Tensor:
        step = weight.abs().max() / 127
        return (weight / step).round() * step if step else weight

    _change(folder, change)


def _change(folder: Path, change: Callable[[str, torch.Tensor], torch.Tensor]) -> None:
    weights = load_file(folder / WEIGHTS)
    save_file({name: change(name, weight).contiguous() for name, weight in weights.items()}, folder / WEIGHTS)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "half the normalisation": half_normalised,
    "swapped joints": swap_actions,
    "noise on the weights": noisy,
    "8 bits": round_weights,
}


def show(figures: dict[str, Any]) -> None:
    table = Table("policy", "success", "95 % interval", "shown worse", "preflight")
    for name, one in figures.items():
        called = f"{one['exit code']}: {', '.join(one['rules']) or 'nothing'}"
        interval = f"[{one['low']:.0%}, {one['high']:.0%}]"
        shown = "" if name == "baseline" else "yes" if one["shown worse"] else "no"
        table.add_row(name, f"{one['successes']} of {one['episodes']}", interval, shown, called)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
