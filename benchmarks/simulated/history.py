"""Histories of runs that are the same, that creep, that step and are fixed: what `strobe.history.trend` says of them.

A trend is drawn from a pool of runs of one noise, each shifted by what differs between runs (normal, or with heavy
tails), and judged as the product judges it. `strobe diff` is held to its promise for the parts of two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Literal

import numpy as np
from simulated.claim import NOISES, Claim, Noise, times

from strobe.core.measure.statistics import run_level, summarise
from strobe.core.results.answer import BreakdownResult, Result
from strobe.core.results.data import Samples
from strobe.core.results.measurement import Component, Measurement
from strobe.core.results.subject import Machine, SubjectInfo
from strobe.history.diff_command import FALSE_CLAIMS, diff
from strobe.history.gates import WIDEST
from strobe.history.trend import FALSE_CHANGES, RUNS, Judged, Level, judge

SUBJECT = SubjectInfo(name="", kind="", source="", parameters=0, weight_bytes=0, inputs="")
MACHINE = Machine(system="", cpu="", cores=1, threads=1, memory_bytes=0, device="cpu", device_name="")

SAMPLES = 60  # of a run
POOL = 150  # runs of one noise, from which trends draw
BETWEEN = (0.0, 0.01, 0.02, 0.05)  # standard deviation between runs
CREEP, BY = 0.008, 15  # a run, and the run by which it is found
STEP, BEFORE, WITHIN = 0.10, 10, 4  # a slow-down, the runs before it, and the runs in which it is found
SMALL, CALM = 0.05, 30  # a slow-down that is found after so many equal runs, 1 % apart
EARLY, SLOW = 0.11, 12  # a slow-down after two runs, for so many more
AFTER = 15  # further runs in which a slow-down that was shown must stand
PARTS = 12

Pool = Sequence[Level]


def simulate(quick: bool) -> list[Claim]:
    """Return the claims of histories and of differences."""
    random = np.random.default_rng(12)
    pools = {name: _pool(noise, random) for name, noise in NOISES.items()}
    tries = 60 if quick else 1000
    claims = [
        _claim("any false change in 40 runs", name, between, FALSE_CHANGES, "at most", tries,
               lambda pool=pool, between=between: _changes(_trend(random, pool, RUNS, between)))
        for (name, pool), between in product(pools.items(), BETWEEN)
    ]  # fmt: skip
    for between in BETWEEN[1:]:
        claims.append(
            _claim("any false change in 40 runs, heavy tails between them", "independent", between, FALSE_CHANGES,
                   "at most", tries, lambda between=between: _changes(
                       _trend(random, pools["independent"], RUNS, between, apart=NOISES["heavy tails"])))
        )  # fmt: skip
    claims.append(
        _claim(f"a step of 5 % after {CALM} runs, within {WITHIN}", "independent", 0.01, 0.95, "at least", tries,
               lambda: _changes(_judge_step(random, pools["independent"], 0.01, WITHIN, SMALL, CALM)))
    )  # fmt: skip
    for between in (0.0, 0.01):
        claims.append(
            _claim("a slow-down of 11 % after two runs is held in some run", "independent", between, 0.05, "at most",
                   tries, lambda between=between: _let_through(random, pools["independent"], between))
        )  # fmt: skip
    for between, rate in ((0.0, 0.95), (0.01, 0.95), (0.02, 0.70)):
        claims.append(
            _claim(f"a creep of 0.8 % a run, by run {BY}", "independent", between, rate, "at least", tries,
                   lambda between=between: _changes(_trend(random, pools["independent"], BY, between, creep=CREEP)))
        )  # fmt: skip
    claims.append(
        _claim("a creep of 0.8 % a run, by run 30", "independent", 0.05, 0.80, "at least", tries,
               lambda: _changes(_trend(random, pools["independent"], 30, 0.05, creep=CREEP)))
    )  # fmt: skip
    for name in ("independent", "AR(1) 0.5"):
        claims.append(
            _claim(f"a step of 10 % after 10 runs, within {WITHIN}", name, 0.02, 0.80, "at least", tries,
                   lambda name=name: _changes(_judge_step(random, pools[name], 0.02, WITHIN)))
        )  # fmt: skip
    for between in (0.01, 0.02):
        claims.append(
            _claim(f"a slow-down of 10 % that was shown no longer stands {AFTER} runs later", "independent", between,
                   0.05, "at most", tries,
                   lambda between=between: _is_falsely_cleared(random, pools["independent"], between))
        )  # fmt: skip
        claims.append(
            _claim(f"a slow-down of 10 % that was fixed still stands {WITHIN} runs later", "independent", between,
                   0.10, "at most", tries,
                   lambda between=between: _is_fix_missed(random, pools["independent"], between))
        )  # fmt: skip
    for between in BETWEEN:
        claims.append(
            _claim("run 12 is slower than 'at most' says", "independent", between, 0.05, "at most", 4 * tries,
                   lambda between=between: _is_slowdown_understated(random, pools["independent"], between))
        )  # fmt: skip
    for name in NOISES:
        claims.append(
            _claim("any false change of 12 parts, two runs apart by 2 %", name, None, FALSE_CLAIMS, "at most",
                   10 if quick else 300, lambda name=name: _parts(random, NOISES[name]))
        )  # fmt: skip
    return claims


def _claim(
    name: str,
    noise: str,
    between: float | None,
    rate: float,
    side: Literal["at most", "at least"],
    tries: int,
    one: Callable[[], bool],
) -> Claim:
    among = noise if between is None else f"{noise}, {between:.0%} between runs"
    return Claim(name, among, rate, side, sum(one() for _ in range(tries)), tries)


def _pool(noise: Noise, random: np.random.Generator) -> Pool:
    levels = [run_level(times(noise, random, SAMPLES)) for _ in range(POOL)]
    return [level for level in levels if level is not None]


def _trend(
    random: np.random.Generator,
    pool: Pool,
    runs: int,
    between: float,
    creep: float = 0.0,
    steps: Sequence[float] = (),
    apart: Noise = NOISES["independent"],
) -> list[Judged | None]:
    """Judge ``runs`` of a pool, which differ as ``apart`` has it; ``steps`` are added to the logarithms of the last."""
    shifts = between * apart(random, runs) + np.log1p(creep) * np.arange(runs)
    shifts[runs - len(steps) :] += steps
    drawn = [pool[place] for place in random.integers(0, len(pool), runs)]
    return judge(
        [Level(log_ms=one.log_ms + shift, error=one.error) for one, shift in zip(drawn, shifts.tolist(), strict=True)]
    )


def _changes(judged: Sequence[Judged | None]) -> bool:
    return any(one is not None and one.change is not None for one in judged)


def _judge_step(
    random: np.random.Generator, pool: Pool, between: float, after: int, step: float = STEP, before: int = BEFORE
) -> list[Judged | None]:
    return _trend(random, pool, before + after, between, steps=[np.log1p(step)] * after)


def _let_through(random: np.random.Generator, pool: Pool, between: float) -> bool:
    """Whether a gate that excludes 10 % holds in a slow run."""
    judged = _trend(random, pool, 2 + SLOW, between, steps=[np.log1p(EARLY)] * SLOW)[2:]
    return any(one is not None and one.standing is None and one.alone[1] <= np.log1p(WIDEST) for one in judged)


def _is_falsely_cleared(random: np.random.Generator, pool: Pool, between: float) -> bool:
    """Whether a slow-down stands once it was shown, and not in some later run, though nothing was fixed."""
    judged = [one is not None and one.standing is not None for one in _judge_step(random, pool, between, 1 + AFTER)]
    shown = judged.index(True) if True in judged else len(judged)
    return not all(judged[shown:])


def _is_fix_missed(random: np.random.Generator, pool: Pool, between: float) -> bool:
    """Whether a slow-down that lasted for six runs stands after as many good ones as a step is found in."""
    steps = [np.log1p(STEP)] * 6 + [0.0] * WITHIN
    last = _trend(random, pool, BEFORE + len(steps), between, steps=steps)[-1]
    return last is not None and last.standing is not None


def _is_slowdown_understated(random: np.random.Generator, pool: Pool, between: float) -> bool:
    """Whether the twelfth run is slower by 5 %, and is said to be slower by less at most."""
    last = _trend(random, pool, 12, between, steps=[np.log1p(0.05)])[-1]
    assert last is not None
    return last.alone[1] < np.log1p(0.05)


def _parts(random: np.random.Generator, noise: Noise) -> bool:
    """Whether `strobe diff` names a part of two runs of the same thing, the second of which is slower by 2 %."""
    found = diff(_run(random, noise, 1.0), _run(random, noise, 1.02))
    return any(measurement.components for measurement in found.measurements)


def _run(random: np.random.Generator, noise: Noise, slower: float) -> Result:
    parts = [(slower * times(noise, random, SAMPLES)).tolist() for _ in range(PARTS)]
    whole = np.sum(parts, axis=0)
    measurement = Measurement(
        name="inference",
        phase="inference",
        samples=Samples(values=whole.tolist(), summary=summarise(whole)),
        components=[
            Component(path=[f"part {at}"], calls=1, values=values, summary=summarise(values), share=1 / PARTS)
            for at, values in enumerate(parts)
        ],
    )
    return BreakdownResult(strobe_version="", title="", subject=SUBJECT, machine=MACHINE, measurements=[measurement])
