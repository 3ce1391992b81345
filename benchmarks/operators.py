"""Where does the time go that a policy takes beyond what this machine could do? By kind of operator, with a floor each.

A call of pi0.5 (bfloat16) and one of V-JEPA 2 (float32) run under torch.profiler, at full size with random weights,
unchanged or with a recipe, after four without it. Each operator's own time stands next to the least that it could take:
its arithmetic at the rate of a large product in its type, or its bytes at the rate of a stream. Both rates are measured
in this run. What lies between the operators is Python's and the profiler's own; so the call is timed without it too.
What runs inside an engine is one operator.

There is no bar on the times. It holds if no time is counted twice: the kinds together take no longer than the call.

    python benchmarks/operators.py                                            half an hour, 24 GiB
    python benchmarks/operators.py --only=pi05 --recipe=pi05=RECIPE.yaml      with a recipe
    python benchmarks/operators.py --quick                                    tiny ones
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from common.shared import finish, need
from policies.peer_case import Case, load_case
from rich.console import Console
from rich.table import Table

CASES = (Case("pi05", 0.0, ("dtype=bfloat16",)), Case("vjepa2", 0.0))
BYTES = {"float": 4, "c10::BFloat16": 2, "c10::Half": 2, "double": 8, "long int": 8, "int": 4, "bool": 1}
TYPES = {"float": "float32", "c10::BFloat16": "bfloat16"}
SMALL_ROWS = 64  # a product with fewer rows than this is bound by its weights' way from memory
CONVERSIONS = {"aten::copy_", "aten::clone", "aten::cat", "aten::index_select", "aten::index", "aten::fill_"}
APART = 0.02


class Product(NamedTuple):
    """A matrix product of (rows, inner) by (inner, columns), ``many`` times."""

    rows: int
    inner: int
    columns: int
    many: int = 1

    @property
    def flop(self) -> float:
        return 2.0 * self.many * self.rows * self.inner * self.columns


@dataclass
class Operator:
    """One operator of the profile: its name, its own time, the shapes and types of its inputs."""

    name: str
    own_us: float
    shapes: Sequence[Sequence[int]]
    types: Sequence[str]

    @property
    def product(self) -> Product | None:
        """The operator as a matrix product; None if it is none whose sizes are known."""
        sizes = [shape for shape in self.shapes if len(shape) >= 2]
        short = self.name.removeprefix("aten::")
        if (short in ("mm", "addmm") or "linear" in short) and len(sizes) >= 2:
            one, two = sizes[-2:] if short == "addmm" else sizes[:2]
            columns = two[0] if "linear" in short else two[-1]
            return Product(math.prod(one[:-1]), one[-1], columns)
        if short in ("bmm", "baddbmm") and len(sizes) >= 2:
            one, two = sizes[-2:]
            return Product(one[1], one[2], two[2], one[0])
        if "scaled_dot_product" in short and len(sizes) >= 2 and len(sizes[0]) == 4:
            query, key = sizes[:2]
            return Product(query[2], query[3], 2 * key[2], query[0] * query[1])
        return None

    @property
    def kind(self) -> str:
        product = self.product
        if product is not None:
            if "dot_product" in self.name:
                return "attention"
            return f"products of under {SMALL_ROWS} rows" if product.rows < SMALL_ROWS else "products"
        if self.name in CONVERSIONS or "_to_copy" in self.name:
            return "copies and conversions"
        if "conv" in self.name:
            return "convolutions"
        return "elementwise, norms, softmax" if any(self.shapes) else "without a tensor"

    def least_us(self, gflops: dict[str, float], gbps: float) -> float:
        """Return the least microseconds: of its arithmetic, or of its inputs read once and its output written once."""
        sizes = [
            math.prod(shape) * BYTES.get(kind, 0) for shape, kind in zip(self.shapes, self.types, strict=False) if shape
        ]
        moved = sum(sizes) + (0 if self.product is not None else max(sizes, default=0))
        rate = gflops.get(TYPES.get(next((each for each in self.types if each in TYPES), ""), ""), 0.0)
        computed = self.product.flop / rate / 1e3 if self.product is not None and rate else 0.0
        return min(max(computed, moved / gbps / 1e3), self.own_us)


def read_operators(trace: dict[str, Any]) -> Iterator[Operator]:
    """Yield the operators of a profile, each with the time in which none of its own operators ran."""
    events = [each for each in trace["traceEvents"] if each.get("cat") == "cpu_op"]
    by_thread = defaultdict(list)
    for each in events:
        by_thread[each["tid"]].append(each)
    for own in by_thread.values():
        open_ones: list[tuple[dict[str, Any], list[float]]] = []
        inner: list[tuple[dict[str, Any], list[float]]] = []
        for each in sorted(own, key=lambda event: (event["ts"], -event["dur"])):
            while open_ones and open_ones[-1][0]["ts"] + open_ones[-1][0]["dur"] <= each["ts"]:
                open_ones.pop()
            if open_ones:
                open_ones[-1][1].append(each["dur"])
            open_ones.append((each, []))
            inner.append(open_ones[-1])
        for each, inside in inner:
            given = each.get("args", {})
            sizes = [[int(side) for side in shape] if _is_shape(shape) else [] for shape in given.get("Input Dims", ())]
            yield Operator(each["name"], max(0.0, each["dur"] - sum(inside)), sizes, given.get("Input type", ()))


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(isinstance(side, int) for side in shape)


def profile(case: Case, quick: bool) -> dict[str, Any]:
    """Return of each kind of operator its calls, milliseconds and least ones; and the call without the profiler."""
    import torch

    from strobe.core.measure import ceiling
    from strobe.core.treatments.recipe import load_rungs
    from strobe.core.treatments.treatment import Variant

    subject = load_case(case, quick)
    if case.recipe is not None:
        Variant("recipe", tuple(load_rungs(subject, case.recipe))).apply(subject)
    call, times = subject.call("inference", 1), []
    for number in range(4):
        began = time.perf_counter()
        call(number)
        times.append(1e3 * (time.perf_counter() - began))
    limits = ceiling.measure(torch.device("cpu"), ("float32", "bfloat16"))
    began = time.perf_counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        inside = time.perf_counter()
        call(0)
        whole_ms = 1e3 * (time.perf_counter() - inside)
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/trace.json")
        operators = list(read_operators(json.loads(Path(folder, "trace.json").read_text())))
    kinds: dict[str, Any] = defaultdict(Counter)
    for each in operators:
        kinds[each.kind].update(
            calls=1, us=each.own_us, least_us=each.least_us(limits.gflops, limits.memory_gbps or 1.0)
        )
    rows = {
        kind: {"calls": found["calls"], "ms": found["us"] / 1e3, "least_ms": found["least_us"] / 1e3}
        for kind, found in sorted(kinds.items(), key=lambda item: -item[1]["us"])
    }
    between = whole_ms - sum(row["ms"] for row in rows.values())
    rows["between operators: Python, the profiler"] = {"calls": 0, "ms": between, "least_ms": 0.0}
    return {"kinds": rows, "profiled_ms": whole_ms, "call_ms": min(times[1:]), "gflops": limits.gflops,
            "gbps": limits.memory_gbps, "recipe": case.recipe is not None}  # fmt: skip


def show(name: str, found: dict[str, Any]) -> None:
    table = Table("operators", "calls", "ms", "share", "least ms", "ms above it", title=name)
    for kind, row in found["kinds"].items():
        share = f"{100 * row['ms'] / found['profiled_ms']:.1f} %"
        above = f"{row['ms'] - row['least_ms']:.0f}"
        table.add_row(kind, f"{row['calls']:,}", f"{row['ms']:.0f}", share, f"{row['least_ms']:.0f}", above)
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny ones")
    parser.add_argument("--only", default=",".join(case.name for case in CASES), help="some, separated by commas")
    parser.add_argument("--recipe", action="append", default=[], metavar="NAME=FILE", help="with this recipe")
    given = parser.parse_args()
    need("pi", memory_gib=2 if given.quick else 18)
    recipes = {name: Path(file) for name, _, file in (each.partition("=") for each in given.recipe)}
    found = {}
    for case in (each for each in CASES if each.name in given.only.split(",")):
        found[case.name] = profile(Case(case.name, 0.0, case.flags, recipe=recipes.get(case.name)), given.quick)
        show(case.name, found[case.name])
    finish({"quick": given.quick, **found}, all(map(adds_up, found.values())))


def adds_up(found: dict[str, Any]) -> bool:
    """Return whether nothing is counted twice, and no floor is above what was measured."""
    between = found["kinds"]["between operators: Python, the profiler"]["ms"]
    return between >= -APART * found["profiled_ms"]


if __name__ == "__main__":
    main()
