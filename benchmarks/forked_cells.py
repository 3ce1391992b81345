"""Show that a sweep's cell measures the same whether its process is forked from the server or started afresh.

Bar: the 99 % interval of the ratio of times, forked over fresh, lies within 0.95 to 1.05, and so does memory's ratio.

Cells run in pairs, in turn forked, fresh, fresh, forked …, so that neither a drift nor who comes first favours one. A
cell is judged by the median of its iterations after warm-up. What could tell the two apart stands beside it: iterations
left out as warm-up, the first third of the others over the last, page faults, time in the kernel, threads.

Run it on a machine that does nothing else. A cell measures for some seconds, and other load comes and goes meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from common.shared import finish
from rich.console import Console
from rich.table import Table

from strobe.core.measure.verdicts import paired_verdict
from strobe.core.processes.command import CommandLimits
from strobe.core.processes.fork_server import Server
from strobe.core.runs import store
from strobe.sweep.execute import Job, execute

SAME = 0.05
Figures = dict[str, float]


def cell(folder: Path, flags: tuple[str, ...], server: Server | None) -> Figures:
    """Run one cell, forked where there is a server. Return its figures."""
    job = Job(folder.name, 1, "breakdown", flags, folder.name, folder, CommandLimits(600, 2**40))
    outcome = execute(job, server=server)
    assert outcome.status == "done", outcome.reason
    result = store.load(folder)
    (one,) = result.measurements
    values = one.samples.values
    third = len(values) // 3
    assert one.memory is not None
    return {
        "median of its iterations (ms)": statistics.median(values),
        "fastest iteration (ms)": min(values),
        "iterations left out as warm-up": len(one.samples.warmup),
        "first third over last third": statistics.median(values[:third]) / statistics.median(values[-third:]),
        "page faults an iteration": one.memory.page_faults or 0,
        "time in the kernel (ms)": one.memory.kernel_ms or 0.0,
        "peak memory of the process (MiB)": (one.memory.peak_process or 0) / 2**20,
        "threads": result.machine.threads,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12, help="of cells; 8 or more for a 99 %% interval")
    parser.add_argument("--iterations", type=int, default=300, help="of a cell")
    parser.add_argument("--quick", action="store_true", help="2 pairs of short cells, without a verdict")
    asked = parser.parse_args()
    pairs, iterations = (2, 20) if asked.quick else (asked.pairs, asked.iterations)
    flags = ("--policy.type=act", "--policy.size=tiny", f"--iterations={iterations}", "--phases=[inference]")
    found: dict[bool, list[Figures]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as temporary, Server() as server:
        for number in range(2 * pairs):
            forked = number % 4 in (0, 3)
            found[forked].append(cell(Path(temporary) / f"cell-{number}", flags, server if forked else None))
        assert not server.unfit, server.unfit
    table = Table(f"medians of {pairs} pairs", "forked", "fresh")
    for name in found[True][0]:
        table.add_row(name, *(f"{statistics.median(one[name] for one in found[way]):.4g}" for way in (True, False)))
    Console().print(table)
    figures: dict[str, object] = {"pairs": pairs}
    holds = True
    for name, key in (("median of its iterations (ms)", "time"), ("peak memory of the process (MiB)", "memory")):
        fresh, forked_ones = ([one[name] for one in found[way]] for way in (False, True))
        verdict = paired_verdict(fresh, forked_ones, baseline_name="fresh", candidate_name="forked")
        print(f"{key}: {verdict.text}")
        low, high = verdict.interval.low, verdict.interval.high
        figures[key] = {"ratio": verdict.ratio, "interval": [low, high], "level": verdict.interval.level,
                        "of_pairs": [b / a for a, b in zip(fresh, forked_ones, strict=True)]}  # fmt: skip
        holds &= low >= 1 - SAME and high <= 1 + SAME
    finish(figures, holds or asked.quick)


if __name__ == "__main__":
    main()
