"""What a section costs, on and off, beside torch.profiler.record_function and beside no section at all.

Bars: on, at most 1/5 of record_function; off, at most 1/40. All five are timed in turn, in small blocks, in one run;
each figure is the median over the blocks, less what the same loop costs with nothing in it.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable

from common.shared import finish
from rich.console import Console
from rich.table import Table
from torch.profiler import record_function

from strobe.core.timeline import Timeline, section

ON, OFF = 1 / 5, 1 / 40


class Bare:
    """The least that a context manager written in Python can do."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


def loop_empty(count: int) -> None:
    for _ in range(count):
        pass


def loop_section(count: int) -> None:
    for _ in range(count):
        with section("x"):
            pass


def loop_record_function(count: int) -> None:
    for _ in range(count):
        with record_function("x"):
            pass


def loop_bare(count: int) -> None:
    for _ in range(count):
        with Bare():
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer blocks: a few seconds")
    arguments = parser.parse_args()
    blocks, count = (40, 5_000) if arguments.quick else (200, 10_000)
    timeline = Timeline()

    def time_loop(loop: Callable[[int], None], context: contextlib.AbstractContextManager[object]) -> float:
        with context:
            start = time.perf_counter_ns()
            loop(count)
            took = time.perf_counter_ns() - start
        timeline.clear()
        return took / count / 1e3

    ways: dict[str, Callable[[], float]] = {
        "nothing": lambda: time_loop(loop_empty, contextlib.nullcontext()),
        "section, on": lambda: time_loop(loop_section, timeline),
        "section, off": lambda: time_loop(loop_section, contextlib.nullcontext()),
        "record_function": lambda: time_loop(loop_record_function, contextlib.nullcontext()),
        "bare Python context manager": lambda: time_loop(loop_bare, contextlib.nullcontext()),
    }
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(blocks):
        for name, way in ways.items():
            samples[name].append(way())
    empty = statistics.median(samples["nothing"])
    cost = {name: statistics.median(values) - empty for name, values in samples.items() if name != "nothing"}
    theirs = cost["record_function"]
    table = Table("", "µs a section", "of record_function", "bar")
    bars = {"section, on": ON, "section, off": OFF}
    for name, value in cost.items():
        bar = f"≤ 1/{1 / bars[name]:.0f}" if name in bars else ""
        table.add_row(name, f"{value:.3f}", f"1/{theirs / value:.1f}", bar)
    Console().print(table)
    on, off = cost["section, on"] / theirs, cost["section, off"] / theirs
    figures = {
        "section_on_us": cost["section, on"],
        "section_off_us": cost["section, off"],
        "record_function_us": theirs,
        "bare_context_manager_us": cost["bare Python context manager"],
        "on_ratio": on,
        "off_ratio": off,
        "blocks": blocks,
    }
    finish(figures, on <= ON and off <= OFF)


if __name__ == "__main__":
    main()
