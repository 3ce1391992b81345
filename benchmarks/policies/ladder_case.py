"""One policy of the table of ladders: its variants in one interleaved run, and what that showed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from strobe.core.cli.live import Live
from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison
from strobe.core.results.measurement import Measurement
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.measuring import Options
from strobe.core.subjects.subject import Subject
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Spec, Treatment, Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, ModelOptions, PolicyOptions
from strobe.vision.model_subject import load_model

LEROBOT, COMPILED, STROBE = "LeRobot unchanged", "torch.compile alone", "Strobe's recipe"
IMAGE, CAMERAS = (480, 640), 2


@dataclass(frozen=True)
class Case:
    """A policy or backbone, its recipe, and what it must reach.

    Args:
        name: that ``--policies`` takes: its type.
        flags: settings of its config.
        recipe: the best that is known, without lossy treatments.
        bar: how many times as fast as LeRobot the recipe must be.
        more: further variants by name, each with its own bar; None for one that is only shown.
        exported: path of the part that OpenVINO is given alone, as its own export would be; '' for none.
        share: of the ceiling that the best rung must reach; 0 for any.
        type: its type, as on LeRobot's command line, or 'vjepa2' for the backbone, where that is not ``name``.
        compiled: whether torch.compile alone takes turns with the others.
    """

    name: str
    recipe: tuple[Spec, ...]
    bar: float
    flags: tuple[str, ...] = ()
    more: dict[str, tuple[tuple[Spec, ...], float | None]] = field(default_factory=dict)
    exported: str = ""
    share: float = 0.0
    type: str = ""
    compiled: bool = True

    def variants(self) -> Iterator[tuple[str, tuple[Spec, ...]]]:
        """All that take turns, LeRobot first."""
        yield LEROBOT, ()
        if self.compiled:
            yield COMPILED, ({"compile": "default"},)
        if self.exported:
            yield f"OpenVINO: {self.exported}", ({"engine": "openvino", "engine.part": self.exported},)
        yield STROBE, self.recipe
        for name, (specs, _) in self.more.items():
            yield name, specs


@dataclass
class Seen:
    """Figures of one variant; those are None where it could not be run."""

    name: str
    why_not: str = ""
    ms: float | None = None
    times: float = 1.0
    interval: tuple[float, float] | None = None
    ceiling_share: float | None = None
    least_ms: float | None = None
    dtype: str = ""
    broken: str | None = None
    rms: float | None = None
    worst: float | None = None
    cosine: float | None = None


def look(case: Case, quick: bool, iterations: int) -> tuple[list[Seen], dict[str, Any]]:
    """Measure all variants of ``case`` that can be run; the machine's ceilings with them.

    Args:
        quick: a tiny version of it.
        iterations: of each variant.
    """
    subject = _subject(case, quick)
    made: dict[str, Treatment] = {}
    variants, failed = list[Variant](), list[Seen]()
    with Live() as live:
        for name, specs in case.variants():
            live.stage(f"{case.name}: putting on {name}")
            try:
                variant = _variant(name, specs, made)
                undo = variant.apply(subject)
                try:
                    subject.call("inference", 1)(0)
                finally:
                    undo()
            except (UserError, RuntimeError) as error:  # does not apply here, or the tiny version has no such part
                failed.append(Seen(name, " ".join(str(error).split())[:160] or type(error).__name__))
            else:
                variants.append(variant)
        if len(variants) < 2:
            raise UserError("; ".join(f"{one.name}: {one.why_not}" for one in failed))
        budget = SamplingBudget(iterations=iterations, seconds=3600)
        result, _ = compare(subject, variants, "inference", Options(budget, batch_size=1), live, Guards())
    judged = {one.candidate: one for one in result.comparisons if one.baseline == LEROBOT}
    seen = {m.name: _summarize_rung(m, judged.get(m.name)) for m in result.measurements} | {
        one.name: one for one in failed
    }
    return [seen[name] for name, _ in case.variants()], _machine(result)


def _subject(case: Case, quick: bool) -> Subject:
    policy_type = case.type or case.name
    if policy_type == "vjepa2":
        small = ["--num_hidden_layers=3"] if quick else []
        side, frames = (64, 4) if quick else (256, 16)
        large = ModelOptions(
            type="vjepa2", size="large", img_size=side, num_frames=frames, dtype="float32", overrides=small
        )
        return load_model(large, device="cpu")
    return load_subject(
        PolicyOptions(type=policy_type, size="tiny" if quick else "full", overrides=["--device=cpu", *case.flags]),
        InputOptions(image_size=None if quick else IMAGE, cameras=CAMERAS),
    )


def _variant(name: str, specs: tuple[Spec, ...], made: dict[str, Treatment]) -> Variant:
    # Variants share what begins alike, so that a converted copy of the weights is there once: they must fit in memory.
    treatments, began = list[Treatment](), ""
    for spec in catalogue.sort_specs(specs):
        began += f"{catalogue.format_spec(spec)}; "
        if began not in made:
            made[began] = catalogue.make(spec)
        treatments.append(made[began])
    return Variant(name, tuple(treatments))


def _summarize_rung(measured: Measurement, judged: Comparison | None) -> Seen:
    seen = Seen(measured.name, ms=measured.samples.summary.median)
    if measured.limit is not None:
        seen.ceiling_share, seen.least_ms = measured.limit.ceiling_share, measured.limit.least_ms
        seen.dtype = measured.limit.dtype
    if judged is not None and judged.verdict.ratio > 0:
        between = judged.verdict.interval
        seen.times, seen.interval = 1 / judged.verdict.ratio, (1 / between.high, 1 / between.low)
        seen.broken = judged.broken
        if (same := judged.agreement) is not None:
            seen.rms, seen.worst, seen.cosine = same.rms, same.worst, same.cosine
    return seen


def _machine(result: CompareResult) -> dict[str, Any]:
    machine = result.machine
    return {"cpu": machine.cpu, "threads": machine.threads, **machine.ceiling.model_dump()}
