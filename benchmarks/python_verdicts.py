"""Can `strobe.compare` in Python be trusted? A function against itself, and against itself with 3 % more work.

Bars: of the comparisons of a function with itself at most 5 % claim a difference; a planted slow-down of 3 % is found
in at least 90 %. The function multiplies matrices for about a millisecond on one thread. The slow one then keeps busy
for 3 % more, by the clock.

And of objects that hand out a queue of actions, whose typical call says nothing. Over 2,000 simulated pairs of times at
most 1 % of the verdicts claim the opposite of what the sums of all calls say, or the same time where these differ by
over 5 %. Of as many steady calls with a machine's hiccups at most 1 % are taken for a queue.

And of calls that have not ended when they return: none gets a verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import numpy as np
from common.shared import finish, meets_lower_bar, meets_upper_bar
from rich.console import Console
from rich.progress import track
from rich.table import Table

import strobe
from strobe.core.errors import UserError
from strobe.core.measure.verdicts import paired_verdict
from strobe.core.results.comparison import Verdict

PLANTED, FALSE, FOUND = 0.03, 0.05, 0.90
SECONDS, INTERVAL = 1.5, 0.012  # of one comparison
WORK_MS = 1.0
QUEUES, WRONG = 2000, 0.01


def working() -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that multiplies its matrix as often as takes about `WORK_MS` on this machine."""
    given = np.full((64, 64), 1e-3, np.float32)
    took = min(_ms(lambda: given @ given) for _ in range(200))
    times = max(1, round(WORK_MS / took))

    def work(x: np.ndarray) -> np.ndarray:
        for _ in range(times):
            x = x @ x
        return x

    return work


def _ms(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begun)


def slow_down(work: Callable[[np.ndarray], np.ndarray], extra_ms: Callable[[], float]) -> Callable[[np.ndarray], Any]:
    """Return ``work`` that keeps busy for ``extra_ms`` more."""

    def call(x: np.ndarray) -> np.ndarray:
        answer = work(x)
        end = time.perf_counter() + extra_ms() / 1e3
        while time.perf_counter() < end:
            pass
        return answer

    return call


def queue_times(random: np.random.Generator, calls: int) -> np.ndarray:
    """Return milliseconds of calls of which each 2nd to 50th fills a queue, three times at least."""
    period = int(random.integers(2, min(50, calls // 3)))
    fill, each = random.uniform(5, 50), 10 ** random.uniform(-3, 0)
    times = np.full(calls, each)
    times[int(random.integers(period)) :: period] += fill
    return times * random.lognormal(0, 0.03, calls)


def steady_times(random: np.random.Generator, calls: int) -> np.ndarray:
    """Return milliseconds of calls of which some are up to 20 times as long, as beside other work."""
    times = random.uniform(1, 50) * random.lognormal(0, 0.05, calls)
    times[random.random(calls) < random.uniform(0, 0.03)] *= random.uniform(1, 20)
    return times


def is_wrong(verdict: Verdict, first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether ``verdict`` contradicts the sums of all calls."""
    ratio = float(second.sum() / first.sum())
    claimed = {"faster": ratio > 1.05, "slower": ratio < 0.95, "no difference shown": abs(ratio - 1) > 0.05}
    return claimed.get(verdict.kind, False)


def queues(count: int) -> dict[str, float]:
    """Return the shares of wrong verdicts of ``count`` pairs with a queue, and of steady pairs taken for one."""
    random, wrong, taken = np.random.default_rng(0), 0, 0
    for index in range(count):
        calls = int(random.integers(30, 400))
        first = queue_times(random, calls) if index % 2 else steady_times(random, calls)
        second = queue_times(random, calls)
        wrong += is_wrong(paired_verdict(first, second), first, second)
        steady = paired_verdict(steady_times(random, calls), steady_times(random, calls))
        taken += steady.cause == "a queue"
    return {"queues_wrong": wrong / count, "steady_taken_for_queues": taken / count}


def judge_unfinished() -> dict[str, int]:
    """Return how many calls hand out work that goes on, how many get a verdict, and how many that wait for it do."""
    pool, given = ThreadPool(1), np.ones(3)

    def work(x: np.ndarray) -> np.ndarray:
        time.sleep(0.01)
        return x

    kinds: dict[str, Callable[[Any], Any]] = {
        "a result of a pool": lambda x: pool.apply_async(work, (x,)),
        "a future": lambda x: futures.submit(work, x),
        "a partial": lambda x: functools.partial(work, x),
        "a lambda": lambda x: lambda: work(x),
        "None while a thread works": lambda x: pool.apply_async(work, (x,)) and None,
    }
    waits: dict[str, Callable[[Any], Any]] = {
        "a result of a pool": lambda x: pool.apply_async(work, (x,)).get(),
        "a future": lambda x: futures.submit(work, x).result(),
        "a partial": functools.partial(work),
    }

    def count_judged(calls: dict[str, Callable[[Any], Any]]) -> int:
        judged = 0
        for call in calls.values():
            with contextlib.suppress(UserError):
                answer = strobe.compare({"A": work, "B": call}, given, seconds=0.3)
                judged += not repr(answer).startswith("Not judged")
        return judged

    with ThreadPoolExecutor(1) as futures, contextlib.redirect_stderr(io.StringIO()):
        return {
            "unfinished": len(kinds), "unfinished_judged": count_judged(kinds),
            "finished": len(waits), "finished_judged": count_judged(waits),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 comparisons of each kind: under a minute")
    parser.add_argument("--comparisons", type=int, help="how many of each kind (default: 200)")
    arguments = parser.parse_args()
    count = arguments.comparisons or (5 if arguments.quick else 200)
    console = Console()

    work, given = working(), np.full((64, 64), 1e-3, np.float32)
    median = statistics.median(_ms(lambda: work(given)) for _ in range(50))
    candidates = {"itself": slow_down(work, lambda: 0.0), "planted": slow_down(work, lambda: PLANTED * median)}
    plain = slow_down(work, lambda: 0.0)
    claims, pairs = dict.fromkeys(candidates, 0), list[int]()
    kinds: dict[str, dict[str, int]] = {kind: {} for kind in candidates}
    for _ in track(range(count), "comparing", console=console, transient=True):
        for kind, candidate in candidates.items():
            with contextlib.redirect_stderr(io.StringIO()):
                answer = strobe.compare({"A": plain, "B": candidate}, given, seconds=SECONDS, interval=INTERVAL)
            verdict = answer.comparisons[0].verdict
            kinds[kind][verdict.kind] = kinds[kind].get(verdict.kind, 0) + 1
            claims[kind] += verdict.kind == "slower" or (kind == "itself" and verdict.kind == "faster")
            pairs.append(verdict.pairs)
            # The machine's speed changes; the slow-down stays 3 % of the function's time.
            median = answer.measurement("A").samples.summary.median

    false, found = claims["itself"] / count, claims["planted"] / count
    table = Table("", "strobe.compare", "bar")
    table.add_row("a function against itself: a difference claimed", f"{false:.1%}", f"≤ {FALSE:.0%}")
    table.add_row(f"{PLANTED:.0%} slower: found", f"{found:.1%}", f"≥ {FOUND:.0%}")
    console.print(table)
    console.print(f"{count} comparisons of each kind, median {statistics.median(pairs):.0f} pairs; verdicts: {kinds}")
    figures = {
        "comparisons": count,
        "false_claims": false,
        "planted_found": found,
        "median_pairs": statistics.median(pairs),
        "median_ms": median,
    }
    simulated = queues(200 if arguments.quick else QUEUES)
    console.print(f"queues of actions, simulated: {simulated}")
    sound = all(rate <= WRONG for rate in simulated.values())
    simulated |= judge_unfinished()
    sound = sound and not simulated["unfinished_judged"] and simulated["finished_judged"] == simulated["finished"]
    rates = meets_upper_bar(count, claims["itself"], FALSE) and meets_lower_bar(count, claims["planted"], FOUND)
    finish(figures | simulated, sound and rates)


if __name__ == "__main__":
    main()
