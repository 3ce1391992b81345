"""Does what Strobe does on a GPU give the same numbers?

On an emulated device (`tests/support/devices/emulated_device.py`), as far as an emulation goes: there is no GPU in it.
Four parts, each with a table.

1. CUDA graphs: for each policy that can have one, every exact treatment, every pair of them, and all together, with
   fused attention and fused projections too, under every graph, put on once and around each call, over prompts of
   different length that come again; Real-Time Chunking in closed form likewise. Bar: every bit is that of the same
   treatments without the graph.
2. Ways of many prompts under the largest graph: six lengths in random order, with fewer graphs than lengths, with all
   exact treatments, with Real-Time Chunking in closed form, two policies in turn. Bar: every bit as without the graph,
   and no capture in each call.
3. The training step with every lever but those that compile, and with activation checkpoints. Bar: loss, gradient and
   the optimizer's moments have the bits of the same on the plain CPU; what torch refuses is refused in the same words.
4. Faults that were fixed. Bar: with its fix undone each is seen, with it it is not.

Ctrl-C keeps what was done: the tables are shown, and the answer is that it does not hold.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE / "tests"))

import torch  # noqa: E402
from common.shared import finish, need  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import Progress  # noqa: E402
from rich.table import Table  # noqa: E402
from support.devices.graph_matrix import Case, Names, Verdict, exact, judge, kinds, possible_graphs, rounding, together  # noqa: E402
from support.devices.graph_walks import Walk, Walked, walk, walks  # noqa: E402
from support.devices.training_pair import Trained, all_levers, has_checkpoints, train_both_ways  # noqa: E402

from strobe.core.families.registry import list_types_having  # noqa: E402
from strobe.lerobot.sampling import Flow  # noqa: E402

KEEPING = ("prefix_cache=static", "masks=once")  # they keep values from step to step, where most faults were
UNTRAINED = ("groot",)  # its training step is not judged here
TWINS = {"pi0": "pi05"}  # share their code, so the quick run looks at less of the first
FEW = (*TWINS, "groot")  # the quick run looks at less of them


@dataclass(frozen=True)
class Fault:
    """A fault as it shows with its fix undone, and with it."""

    name: str
    before: str
    after: str

    @property
    def holds(self) -> bool:
        """Whether the fault was there and is gone."""
        return bool(self.before) and not self.after


Found = Verdict | Walked | Trained | Fault


@dataclass
class Done:
    """All that was judged so far."""

    graphs: list[Verdict] = field(default_factory=list)
    ways: list[Walked] = field(default_factory=list)
    training: list[Trained] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def add(self, found: Sequence[Found]) -> None:
        """Put each answer to its like."""
        for one in found:
            if isinstance(one, Verdict):
                self.graphs.append(one)
            elif isinstance(one, Walked):
                self.ways.append(one)
            elif isinstance(one, Trained):
                self.training.append(one)
            else:
                self.faults.append(one)


def graph_work(quick: bool, only: Sequence[str]) -> Iterator[list[Case]]:
    """Yield the cases of each kind of policy and treatments together, which share what they are compared with."""
    for kind in only:
        every, more = exact(kind), rounding(kind)
        whole = [(), every, (*every, *more)]
        flow = kind in list_types_having(Flow)
        telling = whole if kind in FEW else [*whole, *((one,) for one in (*every, *more)), KEEPING[: 2 * flow]]
        for names in dict.fromkeys(telling) if quick else together(kind):
            both = not quick or len(names) > 1
            yield [
                Case(kind, names, graphs, once)
                for graphs in possible_graphs(kind)
                for once in (True, False)[: 1 + both]
            ]
        if flow:
            for names in dict.fromkeys([(), every] if quick else [*whole, *((one,) for one in (*every, *more))]):
                yield [Case(kind, names, graphs, True, guided=True) for graphs in possible_graphs(kind)]


def way_work(quick: bool, only: Sequence[str]) -> Iterator[Walk]:
    """Yield the ways of each kind of policy; in a quick run all of one flow policy, and one of each other."""
    for kind in only:
        yield from walks(kind) if not quick or kind == "smolvla" else walks(kind)[1:2]


def training_work(quick: bool, only: Sequence[str]) -> Iterator[tuple[str, list[str], bool]]:
    """Yield kind of policy, levers, activation checkpoints."""
    levers = all_levers(half=not quick)
    for kind in only:
        if kind in UNTRAINED:
            continue
        for checkpoints in (False, True)[: 1 + has_checkpoints(kind)]:
            if quick and (kind == "diffusion" or kind in TWINS):
                yield kind, levers[-1:], checkpoints
            else:
                yield from ((kind, levers[start::3], checkpoints) for start in range(3))


def judge_graphs(cases: list[Case]) -> list[Found]:
    """Judge ``cases``, on a device of their own."""
    from support.devices.emulated_device import EmulatedDevice

    with EmulatedDevice() as device:
        return list(judge(device, cases))


def judge_way(way: Walk) -> list[Found]:
    """Go ``way``, on a device of its own."""
    from support.devices.emulated_device import EmulatedDevice

    with EmulatedDevice() as device:
        return [walk(device, way)]


def judge_training(kind: str, levers: list[str], checkpoints: bool) -> list[Found]:
    """Judge steps of training."""
    return [train_both_ways(kind, lever, checkpoints) for lever in levers]


def judge_fault(number: int) -> list[Found]:
    """Look at a fault, with its fix undone and with it."""
    from planted.device_faults import faults

    fault = faults()[number]
    with fault.undone():
        before = fault.seen()
    return [Fault(fault.name, before, fault.seen())]


def begin() -> None:
    """Set up a worker: Ctrl-C is for the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  libraries' remarks, once a worker


def run(quick: bool, only: Sequence[str], workers: int) -> tuple[Done, bool]:
    """Do all the work. Returns what was done, and whether it was all."""
    from planted.device_faults import faults

    done = Done()
    with ProcessPoolExecutor(workers, get_context("spawn"), begin) as pool, Progress(transient=True) as progress:
        try:
            work: list[Future[list[Found]]] = [pool.submit(judge_graphs, cases) for cases in graph_work(quick, only)]
            work += [pool.submit(judge_way, way) for way in way_work(quick, only)]
            work += [pool.submit(judge_training, *given) for given in training_work(quick, only)]
            work += [pool.submit(judge_fault, number) for number in range(len(faults()))]
            shown = progress.add_task("the matrix", total=len(work))
            for one in as_completed(work):
                done.add(one.result())
                progress.advance(shown)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            return done, False
    return done, True


def show(done: Done, console: Console) -> None:
    """Print the four tables, and whatever does not hold."""
    for kind in sorted({one.case.kind for one in done.graphs}):
        mine = [one for one in done.graphs if one.case.kind == kind]
        columns = [(graphs, once) for graphs in possible_graphs(kind) for once in (True, False)]
        heads = [f"{'+'.join(graphs)}{'' if once else ', each call'}" for graphs, once in columns]
        table = Table("treatments", *heads, title=f"{kind}: graph=", title_justify="left")
        found = {(one.case.guided, one.case.names, one.case.graphs, one.case.once): one for one in mine}
        for guided, names in dict.fromkeys((one.case.guided, one.case.names) for one in sorted(mine, key=_order)):
            cells = [found.get((guided, names, *column)) for column in columns]
            marks = ["" if one is None else "equal" if one.holds else "FAILS" for one in cells]
            table.add_row(_name_treatments(kind, names, guided), *marks)
        console.print(table)
    table = Table("way", "chunks equal", "captures", title="six prompts in random order", title_justify="left")
    for one in sorted(done.ways, key=lambda one: str(one.walk)):
        table.add_row(str(one.walk), one.error[:90] or f"{sum(one.equal)} of {len(one.equal)}", str(one.captures))
    console.print(table)
    trained_kinds = sorted({one.kind for one in done.training})
    table = Table("training step", *trained_kinds, title="training", title_justify="left")
    by_kind = {(one.kind, one.lever_text): one for one in done.training}
    for what in dict.fromkeys(
        one.lever_text for one in sorted(done.training, key=lambda one: (one.checkpoints, one.lever))
    ):
        cells = [by_kind.get((kind, what)) for kind in trained_kinds]
        table.add_row(what, *("" if one is None else _describe_training(one) for one in cells))
    console.print(table)
    table = Table("fault", "fix undone", "now", title="faults", title_justify="left")
    for fault in sorted(done.faults, key=lambda fault: int(fault.name.split(".")[0])):
        table.add_row(fault.name, fault.before[:90] or "NOT SEEN", fault.after[:90] or "gone")
    console.print(table)
    for wrong in (one for one in (*done.graphs, *done.ways, *done.training, *done.faults) if not one.holds):
        console.print(f"does not hold: {wrong}", markup=False)
    for one in done.training:
        if one.refused:
            console.print(f"refused by torch on the CPU too: {one.kind}, {one.lever_text}: {one.refused}", markup=False)


def _order(one: Verdict) -> tuple[bool, int, str]:
    return one.case.guided, len(one.case.names), str(one.case)


def _name_treatments(kind: str, names: Names, guided: bool) -> str:
    every = exact(kind)
    keys = [name.partition("=")[0] for name in names]
    if every and names[: len(every)] == every:
        keys = ["all exact", *keys[len(every) :]]
    return " + ".join([*(["RTC"] if guided else []), *keys]) or "untouched"


def _describe_training(one: Trained) -> str:
    return "refused" if one.refused else "equal" if one.holds else "FAILS"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the most telling cases, under 3 minutes on 2 cores")
    parser.add_argument("--only", nargs="+", choices=kinds(), default=kinds(), help="these policies")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    arguments = parser.parse_args()
    need("diffusion", "pi", "quantise")
    started = time.monotonic()
    done, complete = run(arguments.quick, arguments.only, arguments.workers)
    show(done, Console(width=200))
    holding = [all(one.holds for one in part) for part in (done.graphs, done.ways, done.training, done.faults)]
    figures: dict[str, Any] = {
        "quick": arguments.quick,
        "complete": complete,
        "policies": list(arguments.only),
        "graph_cases": len(done.graphs),
        "graph_cases_equal": sum(one.holds for one in done.graphs),
        "chunks_compared": sum(len(one.equal) for one in done.graphs),
        "captures": sum(one.captures for one in done.graphs),
        "ways": len(done.ways),
        "ways_equal": sum(one.holds for one in done.ways),
        "way_chunks": sum(len(one.equal) for one in done.ways),
        "way_captures": sum(one.captures for one in done.ways),
        "training_cases": len(done.training),
        "training_cases_equal": sum(one.holds and not one.refused for one in done.training),
        "training_cases_refused": sum(bool(one.refused) for one in done.training),
        "faults": len(done.faults),
        "faults_seen_and_gone": sum(one.holds for one in done.faults),
        "seconds": round(time.monotonic() - started),
    }
    finish(figures, complete and all(holding))


if __name__ == "__main__":
    main()
