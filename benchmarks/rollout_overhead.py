"""Measure the price of the probes of `strobe rollout` in a tick of LeRobot's control loop.

Bars: at most 0.05 ms at the median and 0.5 ms at the 99th percentile. Ticks of LeRobot's own functions run with the
probes and without, in turn, in blocks, at 30 Hz; the policy is asked in none of them. The difference
is that of the medians, and that of the 99th percentiles, over all ticks of each kind.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from common.shared import finish
from rich.console import Console
from rich.table import Table

MEDIAN_MS, P99_MS = 0.05, 0.5
TESTS = Path(__file__).parent.parent / "tests"
BLOCK, FIRST = 40, 10  # ticks counted of a block, and those before them


def build_rollout(folder: Path) -> tuple[Any, Any]:
    """LeRobot's context and strategy for the dummy robot and a small ACT whose chunk outlasts a run."""
    sys.path[:0] = [str(TESTS), str(TESTS / "support" / "robot")]
    from support.builders.checkpoints import tiny_checkpoint  # type: ignore[import-not-found]

    from strobe.lerobot.flags.lerobot_flags import patched_arguments
    from strobe.loops import rollout
    from strobe.loops.rollout import rollout_config

    tiny_checkpoint("act", folder / "act", "--chunk_size=100", "--n_action_steps=100")
    given = ["--robot.type=dummy", "--robot.id=test", f"--robot.calibration_dir={folder}", "--device=cpu"]
    given += [f"--policy.path={folder / 'act'}", "--task=push", "--play_sounds=false"]
    config = rollout_config(given)
    with patched_arguments(given, "lerobot-rollout"):
        context = rollout.loop.build_rollout_context(config, Event())
    strategy = rollout.loop.create_strategy(config.strategy)
    strategy.setup(context)
    return context, strategy


def tick(context: Any, strategy: Any) -> None:
    """One turn of the base strategy's loop, without its sleep; its functions are looked up as the loop does."""
    from lerobot.rollout.strategies import base

    observed = context.hardware.robot_wrapper.get_observation()
    processed = strategy._process_observation_and_notify(context.processors, observed)
    action = base.send_next_action(processed, observed, context, strategy._interpolator)
    strategy._log_telemetry(processed, action, context.runtime)


def least_cost(took: dict[bool, list[float]], percentile: float) -> float:
    """Return the least that the probes cost at ``percentile``, as far as these blocks show it.

    It is the lower end of the 95 % interval of the difference, by drawing whole blocks anew (bootstrap): ticks of one
    block are not independent, and the 99th percentile of 560 ticks is the sixth longest of them.
    """
    blocks = {on: np.reshape(ticks, (-1, BLOCK)) for on, ticks in took.items()}
    random = np.random.default_rng(0)
    drawn = random.integers(0, len(blocks[True]), size=(2000, len(blocks[True])))
    with_probes, without = (np.percentile(blocks[on][drawn].reshape(len(drawn), -1), percentile, axis=1)
                            for on in (True, False))  # fmt: skip
    return float(np.percentile(with_probes - without, 2.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer ticks, a minute: fails where they contradict the bar"
    )
    arguments = parser.parse_args()
    blocks = 14 if arguments.quick else 80
    logging.disable(logging.WARNING)
    from lerobot.utils.robot_utils import precise_sleep

    from strobe.loops.event_log import Log
    from strobe.loops.header import make_header
    from strobe.loops.rollout import RolloutWatch

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        context, strategy = build_rollout(folder)
        policy = context.policy.policy
        log = Log(folder / "run.events")
        log.start(make_header(context))
        took: dict[bool, list[float]] = {True: [], False: []}
        for block in range(2 * blocks):
            on = block % 2 == (block // 2) % 2  # off on, on off, …
            watch = RolloutWatch(log)
            if on:
                watch.attach(context)
            for number in range(FIRST + BLOCK):
                if not policy._action_queue:
                    tick(context, strategy)  # asks the policy
                start = time.perf_counter()
                tick(context, strategy)
                spent = time.perf_counter() - start
                if number >= FIRST:  # the interpreter has to see changed functions a few times first
                    took[on].append(spent * 1e3)
                precise_sleep(1 / 30 - spent)
            watch.let_go()
        log.stop()
        strategy.teardown(context)
    figures = {f"{name}_{part}_ms": float(np.percentile(took[on], at))
               for on, name in ((False, "without"), (True, "with"))
               for part, at in (("median", 50), ("p99", 99))}  # fmt: skip
    cost = {part: figures[f"with_{part}_ms"] - figures[f"without_{part}_ms"] for part in ("median", "p99")}
    table = Table("milliseconds of a tick", "median", "99 %")
    for name in ("without", "with"):
        table.add_row(name, *(f"{figures[f'{name}_{part}_ms']:.4f}" for part in cost))
    table.add_row("probes cost", *(f"{value:.4f}" for value in cost.values()))
    Console().print(table)
    judged = {"median": least_cost(took, 50), "p99": least_cost(took, 99)} if arguments.quick else cost
    good = judged["median"] <= MEDIAN_MS and judged["p99"] <= P99_MS
    found = {**figures, "cost_median_ms": cost["median"], "cost_p99_ms": cost["p99"], "ticks": len(took[True])}
    finish({"quick": arguments.quick, **found}, good)


if __name__ == "__main__":
    main()
