"""Does an exported policy act as the policy it was made from, and where does it first differ? Nothing is timed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from strobe.core.errors import error_line
from strobe.core.measure.guard import LEAST_OF_ENGINES, Guards, strongest
from strobe.core.results.agreement import Check, Effect
from strobe.core.results.answer import VerifyResult
from strobe.core.sameness.reordered import ReorderedSums
from strobe.core.studies.shared.progress import Reporter
from strobe.core.subjects.check_inputs import COUNT
from strobe.core.subjects.subject import Observation
from strobe.core.treatments.recipe import RecipeTreatment
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.environments.first_difference import FLOORS, GIVEN, GIVES, MARGIN, Entry, compare
from strobe.environments.results import PassDifference
from strobe.export.carried.policy import MASK, TOKENS
from strobe.export.exported import ExportedPolicy, is_float32, read_export_group
from strobe.export.whole import preprocessed_tensors, record, split
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.verify import PASSES, verify
from strobe.treatments.numbers.precision import Precision


@dataclass(frozen=True)
class Export:
    """An export that is to be verified.

    Args:
        folder: that strobe export wrote.
        settings: of the recipe that it was made with, which the user names: what the folder says is not believed.
    """

    folder: Path
    settings: tuple[RecipeTreatment, ...] = ()


def verify_export(
    subject: PolicySubject,
    export: Export,
    guards: Guards,
    reporter: Reporter,
    *,
    count: int = COUNT,
    passes: int = PASSES,
    seconds: float = math.inf,
) -> VerifyResult:
    """Compare ``export`` with the baseline; `verify` says what the arguments are.

    With settings in it, or of a policy that is not in float32, it is first compared with the policy with these settings
    in float32: what they do to the actions must not hide what the export does.

    Raises:
        UserError: the folder is no export or is damaged, or a setting does not apply.
    """
    guards = replace(guards, least=LEAST_OF_ENGINES)
    own: tuple[Treatment, ...] = export.settings
    words, effect = " with the recipe's settings" if own else "", strongest([each.effect for each in own])
    if not is_float32(subject):
        own, words, effect = (*own, Precision("fp32")), f"{words} in float32", strongest([effect, "rounding"])
    held_to: list[tuple[str, Effect, tuple[Treatment, ...]]] = [("", effect, ())]
    if own:
        held_to.insert(0, (f" against the policy{words}", "exact", own))
    checks: list[Check] = []
    result: VerifyResult | None = None
    for words, effect, settings in held_to:
        name, treatments = read_export_group(export.folder, effect)
        undo = Variant("recipe", settings).apply(subject)
        try:
            groups = [(f"{name}{words}", treatments)]
            each_s = seconds / len(held_to)
            result = verify(
                subject, groups, export.folder.name, guards, reporter, count=count, passes=passes, seconds=each_s
            )
            made = treatments[0].treatment
            if result.outcome == "broken" and isinstance(made, ExportedPolicy):
                reporter.stage("the first difference")
                result.passes = [first_difference(subject, made, count)]
        finally:
            undo()
        checks += result.checks
        if result.outcome == "broken" or result.status != "complete":
            break
    assert result is not None  # it is held to something
    result.checks, result.recipe, result.exported = checks, "", export.folder.name
    result.title = f"{subject.info.name}: does the exported policy act the same?"
    return result


PLAYED = 2  # observations whose chunks are looked at
HIDDEN = "an export does not show the stages between its inputs and its chunk, such as a prefix"
SCALED = ". In each dimension it is the policy's own chunk, scaled and shifted, as with other statistics of the actions"


def first_difference(subject: PolicySubject, export: ExportedPolicy, count: int) -> PassDifference:
    """Return where ``export`` first differs from the baseline, on the ``count`` observations of a check."""
    found = PassDifference(candidate="The exported policy", observation=1, compared=0, note=HIDDEN)
    checks = subject.checks(count)
    try:
        for index in checks.same_cameras:
            observation, seed = checks.observations[index], subject.seed + index
            compared = compare(_own_inputs(subject, observation, index), _inputs(export, subject, observation, seed))
            found.observation, found.compared, found.stages = index + 1, compared.count, compared.stages
            if found.stages:
                return found
        alike = checks.same_cameras[:PLAYED]
        chunks = [_chunks(subject, export, checks.observations[index], subject.seed + index) for index in alike]
        for index, (own, exported, moved) in zip(alike, chunks, strict=True):
            stages = compare([_chunk(own)], [_chunk(exported)], [_chunk(moved)]).stages
            if stages and not found.stages:
                found.observation, found.stages, found.compared = index + 1, stages, found.compared + 1
        rows = [torch.cat([chunk.flatten(0, -2) for chunk in each]) for each in zip(*chunks, strict=True)]
        if found.stages and _is_affine(*rows):
            found.stages[0].words += SCALED
    except Exception as error:
        found.note = f"the first difference was not found: {error_line(error, 200)}"
    return found


def _own_inputs(subject: PolicySubject, observation: Observation, index: int) -> list[Entry]:
    own, made = preprocessed_tensors(split(subject).words, observation), record(subject, index)
    return _entries({name: own[name] for name in made.inputs}, (drawn for _, drawn in made.noise))


def _inputs(export: ExportedPolicy, subject: PolicySubject, observation: Observation, seed: int) -> list[Entry]:
    given, noise = export.prepare_inputs(subject, observation, seed)
    arrays = {name: torch.from_numpy(np.asarray(value)) for name, value in given.items()}
    return _entries(arrays, map(torch.from_numpy, noise))


def _chunks(
    subject: PolicySubject, export: ExportedPolicy, observation: Observation, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    own = subject.answer(dict(observation), seed).float()
    with ReorderedSums(seed):
        moved = subject.answer(dict(observation), seed).float()
    undo = export.apply(subject)
    try:
        return own, subject.answer(dict(observation), seed).float(), moved
    finally:
        undo()


def _is_affine(own: Tensor, exported: Tensor, moved: Tensor) -> bool:
    """Return whether ``exported``, (actions, dimensions), is ``own`` times a number plus another in each dimension."""
    before, after = own.double(), exported.double()
    centred = before - before.mean(0)
    slope = (centred * after).sum(0) / centred.square().sum(0).clamp(min=1e-30)
    left = after - after.mean(0) - slope * centred
    rounding = torch.maximum((moved.double() - before).norm(dim=0), FLOORS["float32"] * before.norm(dim=0))
    return bool((left.norm(dim=0) <= MARGIN * rounding).all() and (centred.norm(dim=0) > MARGIN * rounding).all())


def _entries(arrays: Mapping[str, Tensor], noise: Iterable[Tensor]) -> list[Entry]:
    entries = [_entry(name, value) for name, value in arrays.items()]
    entries += [_entry(f"draw {number}", drawn, "noise") for number, drawn in enumerate(noise, 1)]
    return sorted(entries, key=lambda entry: ("inputs", "tokens", "noise").index(entry.key[0]))


def _entry(name: str, value: Tensor, group: str = "", what: str = GIVEN) -> Entry:
    array = value.detach().cpu().numpy()
    group = group or ("tokens" if name in (TOKENS, MASK) else "inputs")
    digest = "" if value.is_floating_point() else str(array.tobytes())
    return Entry((group, name, what, 1), tuple(value.shape), str(value.dtype).removeprefix("torch."), "", digest, array)


def _chunk(chunk: Tensor) -> Entry:
    return _entry("the chunk", chunk.float(), "chunk", GIVES)
