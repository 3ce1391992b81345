"""One policy against the engines that people would use in Strobe's place: all of them in one interleaved run."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from strobe.core.cli.live import Live
from strobe.core.errors import UserError, error_line
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.measure.verdicts import paired_verdict
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments import catalogue
from strobe.core.treatments.recipe import load_rungs
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.export import folder
from strobe.export.exported import ExportedPolicy
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import ModelOptions, PolicyOptions
from strobe.treatments.engines.backends import ENGINES
from strobe.vision.model_subject import load_model

LEROBOT, STROBE = "baseline", "Strobe's recipe"
MODELS = {"vjepa2": "encoder"}  # backbones of transformers, which strobe export does not take → their largest part
BUILD_S = 600  # of building one engine; converters have no bound of their own


@dataclass
class Seen:
    """Figures of one engine; those are None where it could not be run, and ``why_not`` says the reason.

    Args:
        over_recipe: its time over that of Strobe's recipe, paired, with its interval; more than 1 is slower.
        times: how many times as fast as LeRobot.
        least_share: the least time that the roofline allows over the time taken; None where it was not counted.
    """

    name: str
    why_not: str = ""
    build_s: float | None = None
    memory_mib: float | None = None
    ms: float | None = None
    times: float = 1.0
    over_recipe: tuple[float, float, float] | None = None
    least_share: float | None = None
    rms: float | None = None
    worst: float | None = None
    broken: str | None = None
    unjudged: str | None = None


@dataclass(frozen=True)
class Case:
    """A policy: its flags, and how long is looked for a recipe.

    Args:
        share: of what the roofline says is possible that the recipe must reach.
        recipe: that was found before; None to search.
        skipped: parts of the names of engines that are not built.
    """

    name: str
    share: float
    flags: tuple[str, ...] = ()
    search_s: float = 120.0
    recipe: Path | None = None
    skipped: tuple[str, ...] = ()


def look(case: Case, quick: bool, seconds: float) -> list[Seen]:
    """Build every engine, let all take turns for ``seconds``, and judge each."""
    subject = load_case(case, quick)
    variants, seen = [Variant(LEROBOT)], {LEROBOT: Seen(LEROBOT)}
    with TemporaryDirectory() as made, Live() as live:
        for name, make in _engines(case, subject, Path(made), quick, live):
            seen[name] = one = Seen(name)
            if any(part in name for part in case.skipped):
                one.why_not = "left out by --skip"
                continue
            live.stage(f"{case.name}: building {name}")
            began, before = time.perf_counter(), psutil.Process().memory_info().rss
            try:
                with _limit_seconds(BUILD_S if name != STROBE else 2 * case.search_s + BUILD_S):
                    variant = Variant(name, make())
                undo = variant.apply(subject)
                try:
                    subject.call("inference", 1)(0)
                finally:
                    undo()
            except Exception as error:  # whatever an engine fails with is its line, and the others are measured
                traceback.print_exc()
                one.why_not = error_line(error)[:200] or type(error).__name__
                live.say(f"{case.name}: {name}: {one.why_not}")
                continue
            one.build_s = time.perf_counter() - began
            live.say(f"{case.name}: {name} is built in {one.build_s:.0f} s")
            one.memory_mib = (psutil.Process().memory_info().rss - before) / 2**20
            variants.append(variant)
        options = Options(SamplingBudget(seconds=seconds), batch_size=1)
        result, measured = compare(subject, variants, "inference", options, live)
    samples = {name: each.values for name, each in measured.collected.samples.items()}
    for measurement in result.measurements:
        one = seen[measurement.name]
        one.ms = measurement.samples.summary.median
        if measurement.limit is not None:
            one.least_share = measurement.limit.least_ms / one.ms
        if STROBE in samples and measurement.name != STROBE:
            verdict = paired_verdict(samples[STROBE], samples[measurement.name])
            one.over_recipe = (verdict.ratio, verdict.interval.low, verdict.interval.high)
    for comparison in (each for each in result.comparisons if each.baseline == LEROBOT):
        one = seen[comparison.candidate]
        one.times = 1 / comparison.verdict.ratio if comparison.verdict.ratio > 0 else 0.0
        one.broken, one.unjudged = comparison.broken, comparison.unjudged
        if comparison.agreement is not None:
            one.rms, one.worst = comparison.agreement.rms, comparison.agreement.worst
    return list(seen.values())


@contextlib.contextmanager
def _limit_seconds(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after so many seconds, as soon as Python code runs again."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not built within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(round(seconds))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _engines(
    case: Case, subject: Any, made: Path, quick: bool, live: Live
) -> Iterator[tuple[str, Callable[[], tuple[Treatment, ...]]]]:
    """Yield each engine's name, and what builds its treatments. Raises there what says why it cannot be built."""

    def make_treatments(**spec: str) -> tuple[Treatment, ...]:
        return (catalogue.make(spec),)

    def export_engine(name: str, precision: str) -> tuple[Treatment, ...]:
        at = made / f"{name}-{precision}"
        folder.write(subject, at, folder.ExportOptions(name, precision), live.stage)
        return (ExportedPolicy(at),)

    def recipe() -> tuple[Treatment, ...]:
        return tuple(load_rungs(subject, case.recipe or _find_recipe(case, made, quick)))

    yield STROBE, recipe
    yield "torch.compile", partial(make_treatments, compile="default")
    yield "torch.compile, max-autotune", partial(make_treatments, compile="max-autotune-no-cudagraphs")
    if case.name in MODELS:
        part = {"engine": "openvino", "engine.part": MODELS[case.name]}
        yield "OpenVINO, fp32", partial(make_treatments, **part, **{"engine.precision": "fp32"})
        if "bf16" in ENGINES["openvino"]().precisions(subject.device):
            yield "OpenVINO, bf16", partial(make_treatments, **part, **{"engine.precision": "bf16"})
        return
    yield "OpenVINO, fp32", partial(export_engine, "openvino", "fp32")
    if "bf16" in ENGINES["openvino"]().precisions(subject.device):
        yield "OpenVINO, bf16", partial(export_engine, "openvino", "bf16")
    yield "OpenVINO, int8", partial(export_engine, "openvino", "int8")
    yield "ONNX Runtime, fp32", partial(export_engine, "onnx", "fp32")
    yield "ExecuTorch (XNNPACK), fp32", partial(export_engine, "executorch", "fp32")


def _find_recipe(case: Case, made: Path, quick: bool) -> Path:
    """Let ``strobe optimize`` find a recipe, as a user does. Raises UserError where it ends without one."""
    seconds = 20.0 if quick else case.search_s
    command = [sys.executable, "-m", "strobe", "optimize", *_flags(case, quick), f"--time_limit={seconds}"]
    ran = subprocess.run([*command, f"--output_dir={made / 'runs'}"], capture_output=True, text=True)
    recipes = list((made / "runs").rglob("recipe.yaml"))
    if not recipes:
        raise UserError(f"strobe optimize ended without a recipe (exit code {ran.returncode})")
    print(f"{case.name}: {recipes[0].read_text()}", file=sys.stderr)
    return recipes[0]


def _flags(case: Case, quick: bool) -> list[str]:
    if case.name in MODELS:
        return [f"--model.type={case.name}", *(["--model.size=tiny"] if quick else []), "--model.dtype=float32"]
    own = [f"--policy.{flag}" for flag in case.flags]
    return [f"--policy.type={case.name}", f"--policy.size={'tiny' if quick else 'full'}", *own, "--device=cpu"]


def load_case(case: Case, quick: bool) -> Any:
    if case.name in MODELS:
        size: Any = "tiny" if quick else "large"
        return load_model(ModelOptions(type=case.name, size=size, dtype="float32"), device="cpu")
    overrides = ["--device=cpu", *(f"--{flag}" for flag in case.flags)]
    return load_subject(PolicyOptions(type=case.name, size="tiny" if quick else "full", overrides=overrides))
