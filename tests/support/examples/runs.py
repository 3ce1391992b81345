"""Results as real runs would give them: a breakdown of ACT, and pi0.5 compared with and without RTC."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from strobe.core.cli.summaries import summarise
from strobe.core.measure.roofline import limits
from strobe.core.results.agreement import Agreement
from strobe.core.results.answer import BreakdownResult, CompareResult, Result
from strobe.core.results.comparison import Comparison, Verdict
from strobe.core.results.data import Interval, Samples, Summary
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Component, Measurement, Memory, Span
from strobe.core.results.subject import Ceiling, Machine, SubjectInfo
from strobe.core.results.traits import PolicyTraits, Traits
from strobe.core.runs.saved_runs import Run

# part → its share of its parent, or (share, its own parts)
Tree = Mapping[str, "float | tuple[float, Tree]"]

ACT: Tree = {
    "preprocess": 0.03,
    "policy": (0.96, {
        "image backbone": (0.715, {"stem": 0.22, "layer1": 0.27, "layer2": 0.2, "layer3": 0.16, "layer4": 0.14}),
        "image projection": 0.02,
        "encoder": (0.185, {"block 0": 0.25, "block 1": 0.25, "block 2": 0.24, "block 3": 0.24}),
        "decoder": 0.06,
    }),
}  # fmt: skip
PI05: Tree = {
    "preprocess": 0.01, "vision tower": 0.28, "prefix KV cache": (0.34, {"attention": 0.35, "MLP": 0.62}),
    "denoise step": (0.355, {"attention": 0.4, "MLP": 0.52}),
}  # fmt: skip
PI05_RTC: Tree = {
    "preprocess": 0.009, "vision tower": 0.22, "prefix KV cache": (0.265, {"attention": 0.35, "MLP": 0.62}),
    "denoise step": (0.29, {"attention": 0.4, "MLP": 0.52}),
    "RTC guidance": (0.2, {"guidance weights": 0.05, "autograd correction": 0.93}),
}  # fmt: skip
SUBJECT = SubjectInfo(
    name="act", kind="act", source="random weights", parameters=51_597_190, weight_bytes=206_388_760,
    dtypes={"float32": 51_597_190}, inputs="120 frames of pusht-demo (480×480, 10 fps)", anatomy="act",
)  # fmt: skip
MACHINE = Machine(
    system="Linux 6.1 x86_64", cpu="AMD EPYC 9B14", cores=2, threads=2, memory_bytes=24 * 2**30,
    device="cpu", device_name="AMD EPYC 9B14", power={"governor": "performance"},
    versions={"python": "3.12.9", "torch": "2.11.0", "lerobot": "0.6.1"},
    ceiling=Ceiling(gflops={"float32": 118.0, "bfloat16": 231.0}, memory_gbps=21.4),
)  # fmt: skip


def summary(values: list[float]) -> Summary:
    ordered = sorted(values)
    n = len(values)
    reach = int(0.98 * n**0.5) + 1
    interval = Interval(low=ordered[max(0, n // 2 - reach)], high=ordered[min(n - 1, n // 2 + reach)])
    return Summary(
        n=n, median=statistics.median(values), interval=interval if n >= 6 else None, mean=statistics.fmean(values),
        std=statistics.stdev(values) if n > 1 else 0.0, min=ordered[0], max=ordered[-1],
        p95=ordered[min(n - 1, int(0.95 * n))],
    )  # fmt: skip


def samples(median: float, n: int = 40, warmup: int = 3, seed: int = 0) -> Samples:
    chance = random.Random(seed)
    values = [median * (1 + abs(chance.gauss(0, 0.012))) for _ in range(n)]
    first = [median * (1 + 2.5 / (i + 1) ** 2) for i in range(warmup)]
    return Samples(warmup=first, values=values, summary=summary(values))


def components(tree: Tree, whole: list[float], counted: bool = True, seed: int = 1) -> list[Component]:
    """Parts in tree order, with 'other' after the named ones of each parent."""
    chance = random.Random(seed)
    total = sum(whole)
    found: list[Component] = []

    def walk(tree: Tree, path: list[str], parent: list[float]) -> None:
        left = list(parent)
        for name, part in tree.items():
            share, inside = part if isinstance(part, tuple) else (part, {})
            values = [v * share * (1 - abs(chance.gauss(0, 0.004))) for v in parent]
            left = [a - b for a, b in zip(left, values, strict=True)]
            found.append(make([*path, name], values))
            if inside:
                walk(inside, [*path, name], values)
        found.append(make([*path, "other"], [max(0.0, v) for v in left], other=True))

    def make(path: list[str], values: list[float], other: bool = False) -> Component:
        flop = counted and not other
        share = sum(values) / total
        return Component(
            path=path, other=other, calls=10 if "denoise step" in path or "RTC guidance" in path else 1,
            values=values, summary=summary(values), share=share, gflop=share * 31.5 if flop else None,
            ceiling_share=0.41 + 0.3 * chance.random() if flop else None,
            peak_bytes=int(share * 900 * 2**20) if flop else None,
        )  # fmt: skip

    walk(tree, [], whole)
    return found


def spans(tree: Tree, median: float, repeats: int = 10) -> list[Span]:
    found: list[Span] = []

    def walk(tree: Tree, start: float, length: float, depth: int) -> None:
        at = start
        for name, part in tree.items():
            share, inside = part if isinstance(part, tuple) else (part, {})
            times = repeats if name == "denoise step" else 1
            for _ in range(times):
                took = length * share / times
                found.append(Span(name=name, start_ms=at, duration_ms=took * 0.99, depth=depth))
                walk(inside, at, took * 0.98, depth + 1)
                at += took

    found.append(Span(name="iteration", start_ms=0, duration_ms=median, depth=0))
    walk(tree, 0, median, 1)
    found += [Span(name="decode frame", start_ms=i * median / 4, duration_ms=median / 9, depth=0, thread="loader")
              for i in range(4)]  # fmt: skip
    return found


def measurement(name: str, tree: Tree, median: float, phase: str = "inference", **more: object) -> Measurement:
    counted, seed = bool(more.pop("counted", True)), int(str(more.pop("seed", len(name))))
    taken = samples(median, seed=seed)
    fields = {
        "name": name, "phase": phase, "samples": taken, "components": components(tree, taken.values, counted, seed),
        "memory": Memory(weights=206_388_760, peak_activations=912 * 2**20, peak_process=3 * 2**30),
        "spans": spans(tree, median), "traits": Traits(batch_size=8, policy=PolicyTraits(chunk_size=100)),
    }  # fmt: skip
    return Measurement.model_validate(fields | more)


def assign_limits(measurements: Sequence[Measurement], dtypes: Sequence[str]) -> None:
    """Give ``measurements`` their limits, as if their products were in ``dtypes``, one for each."""
    for m, dtype in zip(measurements, dtypes, strict=True):
        for part in m.components:
            part.gflop_by_dtype = {dtype: part.gflop} if part.gflop else {}
            part.moved_bytes = None if part.other else int((part.gflop or 0.0) * 2e6 * (2 if dtype == "float32" else 1))
    for m, limit in zip(measurements, limits(measurements, MACHINE.ceiling), strict=True):
        m.limit = limit


def act(**more: object) -> BreakdownResult:
    """A breakdown of ACT: inference and a training forward pass, each with nested parts."""
    result = BreakdownResult(
        strobe_version="0.1.0", title="Breakdown of act", config={"depth": 2, "seed": 0}, subject=SUBJECT,
        machine=MACHINE, started=datetime(2026, 11, 21, 4, 12, tzinfo=UTC), duration_s=74,
        command=["strobe", "breakdown", "--policy.type=act", "--dataset.root=runs/pusht demo"],
        measurements=[
            measurement("inference", ACT, 148.2, unseen={"compiled decoder": "runs inside a torch.compile region"}),
            measurement("training forward", ACT, 1217.4, "training forward"),
        ],
        findings=[
            Finding(
                rule="backbone-dominates", level="warning",
                title="The image backbone is 69 % of the training forward pass",
                found="835.6 ms of 1,217.4 ms (68.6 %) go into the ResNet-18 backbone, 4 calls of it at 41 % of the "
                "ceiling.",
                why="Everything behind the backbone is cheap beside it: repeating the transformer costs little.",
                do="Expand the batch after the backbone to train on all delays at once.",
                gain="11 delays for 1.3 × the time of one, computed from the shares above.", evidence={"share": 0.686},
            ),
            Finding(rule="preprocessing-small", level="good", title="Preprocessing is small",
                    found="3.0 % of inference.", why="Smaller images would not buy much here."),
        ],
    )  # fmt: skip
    return result.model_copy(update=more)


def rtc(**more: object) -> CompareResult:
    """pi0.5 with and without RTC."""
    without = measurement("Without RTC", PI05, 24_312.0, counted=False)
    with_rtc = measurement("With RTC", PI05_RTC, 30_911.0, counted=False, notes=["drift: 1.2 % over the run"])
    ratio = with_rtc.samples.summary.median / without.samples.summary.median
    difference = with_rtc.samples.summary.median - without.samples.summary.median
    low, high = ratio - 0.004, ratio + 0.005
    sentence = f"With RTC is slower than Without RTC by {100 * (ratio - 1):.1f} % "
    sentence += f"({100 * (ratio - 1.004):.1f} to {100 * (ratio - 0.995):.1f} %, 40 pairs)."
    verdict = Verdict(kind="slower", ratio=ratio, interval=Interval(low=low, high=high), pairs=40, sentence=sentence)
    pi05 = {
        "name": "pi05", "kind": "pi05", "parameters": 3_616_757_520, "weight_bytes": 7_233_515_040,
        "dtypes": {"bfloat16": 3_616_757_520}, "anatomy": "pi05",
        "stand_ins": ["a local tokenizer of the same vocabulary size (the Hub cannot be reached)"],
    }  # fmt: skip
    result = CompareResult(
        strobe_version="0.1.0", title="pi05: with RTC against without RTC", config={"rtc": {"execution_horizon": 20}},
        command=["strobe", "compare", "--policy.type=pi05", "--rtc.execution_horizon=20"],
        started=datetime(2026, 11, 21, 5, 2, tzinfo=UTC), duration_s=2_210,
        subject=SUBJECT.model_copy(update=pi05), machine=MACHINE, measurements=[without, with_rtc],
        comparisons=[
            Comparison(
                baseline="Without RTC", candidate="With RTC", verdict=verdict, difference_ms=difference,
                difference=Interval(low=difference - 90, high=difference + 110),
                agreement=Agreement(cosine=0.98712, largest_error=0.2213, mean_error=0.0142, observations=8),
            )
        ],
        findings=[
            Finding(
                rule="rtc-autograd", level="warning", title="RTC's autograd correction costs 19 % of a chunk",
                found="5,870.1 ms of 30,911.0 ms in 10 calls.", do="Use the closed-form guidance.", gain="up to 19 %",
                why="It runs the denoiser backwards for a Jacobian product that has a closed form.",
            )
        ],
    )  # fmt: skip
    return result.model_copy(update=more)


def judge(
    before: list[float], after: list[float], *, baseline_name: str, candidate_name: str, level: float = 0.95
) -> Verdict:
    """A stand-in for `strobe.core.measure.verdicts.unpaired_verdict`: right enough for well-behaved samples."""
    ratio = statistics.median(after) / statistics.median(before)
    error = sum((statistics.stdev(v) / statistics.fmean(v)) ** 2 / len(v) for v in (before, after)) ** 0.5
    reach = 1.25 * statistics.NormalDist().inv_cdf((1 + level) / 2) * error
    low, high = ratio * (1 - reach), ratio * (1 + reach)
    kind = "slower" if low > 1 else "faster" if high < 1 else "no difference shown"
    sentence = f"{candidate_name} against {baseline_name}: {kind}, {100 * (ratio - 1):+.1f} %"
    interval = Interval(low=low, high=high, level=level)
    return Verdict(kind=kind, ratio=ratio, interval=interval, pairs=0, sentence=sentence)


def make_run(name: str, result: Result) -> Run:
    """Return a run as a history reads it."""
    summary = summarise(result)
    assert summary.subject is not None
    return Run(name, summary, summary.subject)
