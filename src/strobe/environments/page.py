"""Environments → their part of a document: where their passes first differ, and which packages differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strobe.core.report.document import Column, Columns, Row, Section, Table, figure, table, words
from strobe.core.results import units
from strobe.core.results.answer import CompareResult, VerifyResult
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
