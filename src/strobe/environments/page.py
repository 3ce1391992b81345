"""Environments → their part of a document: where their passes first differ, and which packages differ.

The rules on them stand at the end: the first stage that differs, and its usual causes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from strobe.core.findings.thresholds import Thresholds
from strobe.core.report.document import Column, Columns, Row, Section, Table, figure, table, words
from strobe.core.results import units
from strobe.core.results.answer import CompareResult, VerifyResult
from strobe.core.results.finding import Finding, warning
from strobe.environments.results import Environment, PassDifference, StageDifference

# Packages whose versions change what a policy computes or how fast, in this order.
FIRST = (
    "lerobot", "torch", "transformers", "torchvision", "numpy", "diffusers", "tokenizers", "timm", "safetensors",
    "accelerate", "torchcodec", "av", "pillow",
)  # fmt: skip
_SHOWN = 30  # other packages


def answers(result: CompareResult | VerifyResult) -> list[str]:
    """Return a sentence for each side: the first stage that differs from the first side's."""
    return [sentence(one) for one in pass_differences(result)]


def pass_differences(result: CompareResult | VerifyResult) -> list[PassDifference]:
    """Return where the pass of each side first differs."""
    return [one for one in result.passes if isinstance(one, PassDifference)]


def sentence(one: PassDifference) -> str:
    """Return what is known of where a side's pass differs, in a sentence."""
    settings = f" {units.count(len(one.settings), 'setting')} differ{'s' * (len(one.settings) == 1)} too." * bool(
        one.settings
    )
    if one.first is not None:
        return f"{one.candidate}: the first stage that differs is {one.first.stage}: {one.first.words}.{settings}"
    if not one.compared:
        return f"{one.candidate}: {one.note or 'the passes were not compared'}.{settings}"
    compared = units.count(one.compared, "tensor")
    if one.inside:
        within = ", ".join(difference.stage for difference in one.inside[:3])
        return f"{one.candidate}: the versions compute {within} differently, and the actions are the same.{settings}"
    return f"{one.candidate}: no stage differs by more than floating-point noise; {compared} compared.{settings}"


def sections(result: CompareResult | VerifyResult) -> list[Section]:
    """Return the stages that differ, and the packages of environments; [] where no passes were compared."""
    environments = [one for one in result.environments if isinstance(one, Environment)]
    passes = pass_differences(result)
    shown: list[Section] = []
    if (stages := _stages(passes)).rows:
        text = [
            "Distance: the length of the difference ÷ the length of the first side's tensor. Floating-point noise: the "
            "same for the first side's own pass, with its sums in another order. Each stage has one line: its first "
            "tensor that differs."
        ]
        shown.append(Section("stages", "First differences", stages, text))
    notes = [f"{one.candidate}: {one.note}." for one in passes if one.note]
    notes += [
        f"{one.candidate}: modules that only one side has are not compared: {', '.join(one.unmatched[:8])}"
        f"{f' and {len(one.unmatched) - 8} more' if len(one.unmatched) > 8 else ''}."
        for one in passes
        if one.unmatched
    ]
    if not environments:  # an export's pass
        return [replace(one, text=[*one.text, *notes]) for one in shown]
    notes += _others(environments)
    shown.append(Section("environments", "Environments", _packages(environments), notes))
    return shown


def _stages(passes: Sequence[PassDifference]) -> Table:
    found: list[tuple[str, StageDifference]] = []
    for one in passes:
        prefix = f"{one.candidate}: " if len(passes) > 1 else ""
        groups = (("", one.stages), ("inside: ", one.inside), ("", one.settings), ("training: ", one.training))
        found += [(f"{prefix}{group}{stage.stage}", stage) for group, stages in groups for stage in stages]
    return table(found, _STAGES)


_STAGES: Columns[tuple[str, StageDifference]] = [
    words("Stage", lambda found: found[0]),
    words("Difference", lambda found: found[1].place if found[1].kind in ("values", "weights") else found[1].words),
    figure("Distance", lambda found: found[1].distance, "{:.2g}".format),
    figure("Floating-point noise", lambda found: found[1].rounding, "{:.2g}".format),
]


def _packages(environments: Sequence[Environment]) -> Table:
    rows = [Row(["Python", *(one.python for one in environments)])]
    if any(one.checkout for one in environments):
        rows.append(Row(["checkout of LeRobot", *(one.checkout or "installed" for one in environments)]))
    rows += [
        Row([name, *(one.packages.get(name) or "–" for one in environments)])
        for name in FIRST
        if any(name in one.packages for one in environments)
    ]
    return Table([Column("", numeric=False), *(Column(one.name, numeric=False) for one in environments)], rows)


def _others(environments: Sequence[Environment]) -> list[str]:
    names = sorted({name for one in environments for name in one.packages if name not in FIRST})
    differing = [name for name in names if len({one.packages.get(name) for one in environments}) > 1]
    if not differing:
        return []
    shown = [f"{name} {' / '.join(one.packages.get(name) or 'none' for one in environments)}" for name in differing]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return [f"{units.count(len(shown), 'other package')} differ: {', '.join(shown[:_SHOWN])}{more}."]


Compared = CompareResult | VerifyResult

GRADIENT_ERROR = 1e-3  # relative error of the gradient; other float32 kernels move it by 1e-7 to 1e-5
# Kind of the first difference → what usually causes it, and what to do.
CAUSES: Mapping[str, str] = {
    "weights": "Both sides read the same file. A weight that differs was renamed, reshaped, or computed when the "
    "policy was built, such as the frequencies of rotary embeddings. LeRobot does not complain about names that a "
    "checkpoint lacks: a module that a library renamed then has random values.",
    "type": "The same weights in another dtype round every product differently.",
    "shape": "One side passes on more or fewer values than the other: a token, a camera, an action.",
    "calls": "One side runs more or fewer steps.",
    "values": "The inputs of this stage are the same on both sides, and its output differs.",
    "setting": "A default changed, or a setting was renamed.",
}
STATISTICS = (
    "Both sides read the same statistics from the checkpoint, and hold other numbers. They scale every observation and "
    "every action."
)


def first_stage(result: Compared, _: Thresholds) -> Iterator[Finding]:
    """The first stage of a chunk that differs."""
    outcomes = _outcomes(result)
    for one in result.passes:
        if (first := one.first) is not None:
            yield Finding(
                rule="first-stage-that-differs",
                level="info" if outcomes.get(one.candidate) == "held" else "warning",
                title=f"'{one.candidate}' first differs in {first.stage}",
                found=f"{units.capital(first.words)}. {_later_differences(one)}",
                why=STATISTICS if first.stage == "statistics" else CAUSES[first.kind],
                do=_do(first, result.environments),
            )


def settings_differ(result: Compared, _: Thresholds) -> Iterator[Finding]:
    """Settings of the policy that differ."""
    for one in result.passes:
        if one.settings:
            named = "; ".join(setting.words for setting in one.settings[:3])
            more = f"; and {len(one.settings) - 3} more" if len(one.settings) > 3 else ""
            yield warning(
                rule="settings-differ",
                title=f"'{one.candidate}' reads the same checkpoint with other settings",
                found=f"{named}{more}.",
                why=CAUSES["setting"],
                do="Write the setting into the checkpoint's config.json, or pass it as --policy.FIELD on both sides.",
            )


def _outcomes(result: Compared) -> dict[str, str | None]:
    if isinstance(result, VerifyResult):
        return {check.name: check.outcome for check in result.checks}
    return {pair.candidate: pair.outcome for pair in result.comparisons}


def _later_differences(one: PassDifference) -> str:
    later = [difference.stage for difference in one.stages[1:]]
    if not later:
        return "No later stage differs by more than floating-point noise."
    shown = ", ".join(later[:4]) + (", …" if len(later) > 4 else "")
    return f"Later stages that differ too: {shown}."


def _do(first: StageDifference, environments: list[Environment]) -> str:
    versions = [
        f"{package} {' against '.join(found)}"
        for package in ("lerobot", "transformers", "torch")
        if len(found := list(dict.fromkeys(one.packages.get(package, "none") for one in environments))) > 1
    ]
    checkouts = list(dict.fromkeys(one.checkout for one in environments if one.checkout))
    what = ", ".join([*versions, *([f"LeRobot's commits {' and '.join(checkouts)}"] if checkouts else [])])
    suspects = f" Its versions differ: {what}." if what else ""
    what_changed = f"Read the changes of '{first.place}' between the two versions."
    return f"{what_changed}{suspects} Update one package at a time, and run again."


def trains_differently(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """A gradient that differs."""
    for pair in result.comparisons if result.environments else ():
        same = pair.gradient
        if same is not None and same.error is not None and same.error > GRADIENT_ERROR:
            yield warning(
                rule="trains-differently",
                title=f"A training step in '{pair.candidate}' has another gradient",
                found=f"The gradients differ by {same.error:.2g} of their length (cosine {same.cosine:.6f}), the "
                f"losses by {same.loss_error or 0.0:.2g} of the loss.",
                why="Both sides had the same batch, weights and noise. A training that begins in one environment and "
                "continues in the other takes another course.",
                do="Finish trainings in the environment in which they began, or fix the first stage that differs.",
            )


RULES = (first_stage, settings_differ)
OF_COMPARISONS = (*RULES, trains_differently)
