"""Can the verdicts be trusted? The same thing against itself, and against itself with 3 % more work.

Bars: of the A/A comparisons at most 5 % claim a difference; a planted slow-down of 3 % is found in at least 90 %. Each
comparison is what `strobe compare` does (`collect`, then `paired_verdict`), on a ResNet-18 on one CPU thread. Beside
it, on as many runs: the way of many a script, all of A, then all of B, means compared, a difference over 2 % claimed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torchvision
from common.shared import finish_rates
from rich.console import Console
from rich.progress import track
from rich.table import Table

from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.measure.verdicts import paired_verdict

PLANTED, FALSE, FOUND, CLAIMED = 0.03, 0.05, 0.90, 0.02


def make_timed_call(work: Callable[[], object], extra_ms: Callable[[], float]) -> Callable[[], float]:
    """A call that runs ``work``, keeps busy for some more, and returns its milliseconds."""

    def call() -> float:
        start = time.perf_counter()
        work()
        end = time.perf_counter() + extra_ms() / 1e3
        while time.perf_counter() < end:
            pass
        return (time.perf_counter() - start) * 1e3

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="7 comparisons of each kind: under a minute")
    parser.add_argument("--comparisons", type=int, help="how many of each kind (default: 200)")
    arguments = parser.parse_args()
    count = arguments.comparisons or (7 if arguments.quick else 200)
    console = Console()

    # Threads that wait for one another turn any other program's work into stalls of a hundred times a run: seen here,
    # beside a test suite on 2 cores, 95th percentile / median: 120 with two threads, 1.4 with one.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torchvision.models.resnet18().eval()
    image = torch.randn(1, 3, 32, 32)

    def work() -> object:
        with torch.no_grad():
            return model(image)

    plain = make_timed_call(work, lambda: 0.0)
    median = statistics.median(plain() for _ in range(50))
    planted_ms = lambda: PLANTED * median  # noqa: E731
    budget = SamplingBudget(seconds=1.5, precision=0.012)

    claims = {"A/A": 0, "planted": 0}
    scripts = {"A/A": 0, "planted": 0}
    pairs: list[int] = []
    kinds: dict[str, dict[str, int]] = {"A/A": {}, "planted": {}}
    for _ in track(range(count), "comparing", console=console, transient=True):
        for kind, extra in (("A/A", lambda: 0.0), ("planted", planted_ms)):
            candidate = make_timed_call(work, extra)
            collected = collect({"A": plain, "B": candidate}, budget)
            a, b = collected.samples["A"].values, collected.samples["B"].values
            verdict = paired_verdict(a, b, baseline_name="A", candidate_name="B")
            kinds[kind][verdict.kind] = kinds[kind].get(verdict.kind, 0) + 1
            pairs.append(len(a))
            claims[kind] += verdict.kind == "slower" or (kind == "A/A" and verdict.kind == "faster")
            median = statistics.median(a)  # the machine's speed changes; the slow-down stays 3 % of it
            first = [plain() for _ in range(len(a))]
            second = [candidate() for _ in range(len(a))]
            change = statistics.fmean(second) / statistics.fmean(first) - 1
            scripts[kind] += change > CLAIMED or (kind == "A/A" and change < -CLAIMED)

    table = Table("", "strobe", "A then B, means", "bar")
    false, found = claims["A/A"] / count, claims["planted"] / count
    table.add_row("A/A: a difference claimed", f"{false:.1%}", f"{scripts['A/A'] / count:.1%}", f"≤ {FALSE:.0%}")
    table.add_row(f"{PLANTED:.0%} slower: found", f"{found:.1%}", f"{scripts['planted'] / count:.1%}", f"≥ {FOUND:.0%}")
    console.print(table)
    console.print(f"{count} comparisons of each kind, median {statistics.median(pairs):.0f} pairs; verdicts: {kinds}")
    figures = {
        "comparisons": count,
        "false_claims": false,
        "planted_found": found,
        "script_false_claims": scripts["A/A"] / count,
        "script_planted_found": scripts["planted"] / count,
        "median_pairs": statistics.median(pairs),
    }
    finish_rates(figures, count, (claims["A/A"], FALSE), (claims["planted"], FOUND))


if __name__ == "__main__":
    main()
