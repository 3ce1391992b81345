"""The first stage at which an export differs from the policy: what it shows are inputs, tokens, noise, the chunk."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from strobe.core.errors import in_a_line
from strobe.core.sameness.reordered import reordered
from strobe.core.subjects.subject import Observation
from strobe.environments.first_difference import FLOORS, GIVEN, GIVES, MARGIN, Entry, compare
from strobe.environments.results import PassDifference
from strobe.export.carried.policy import MASK, TOKENS
from strobe.export.exported import ExportedPolicy
from strobe.export.whole import numbers_of, record, split
from strobe.lerobot.policies.policy_subject import PolicySubject

PLAYED = 2  # observations whose chunks are looked at
HIDDEN = "what lies between its inputs and its chunk, such as a prefix, an export does not show"
SCALED = (
    ". In each dimension it is the policy's own times a number, plus another, as with other statistics of the actions"
)


def first_difference(subject: PolicySubject, export: ExportedPolicy, count: int) -> PassDifference:
    """Return where ``export`` first differs from the untouched policy, on the ``count`` observations of a check."""
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
        if found.stages and _scaled(*rows):
            found.stages[0].words += SCALED
    except Exception as error:
        found.note = f"where it first differs was not looked at: {in_a_line(error, 200)}"
    return found


def _own_inputs(subject: PolicySubject, observation: Observation, index: int) -> list[Entry]:
    own, made = numbers_of(split(subject).words, observation), record(subject, index)
    given = [_entry(name, own[name]) for name in made.inputs]
    return _in_order([*given, *(_noise(number, drawn) for number, (_, drawn) in enumerate(made.noise, 1))])


def _inputs(export: ExportedPolicy, subject: PolicySubject, observation: Observation, seed: int) -> list[Entry]:
    given, noise = export.inputs_of(subject, observation, seed)
    arrays = [_entry(name, torch.from_numpy(np.asarray(value))) for name, value in given.items()]
    return _in_order([*arrays, *(_noise(number, torch.from_numpy(drawn)) for number, drawn in enumerate(noise, 1))])


def _chunks(
    subject: PolicySubject, export: ExportedPolicy, observation: Observation, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The policy's chunk, the export's, and the policy's with its sums in another order."""
    own = subject.answer(dict(observation), seed).float()
    with reordered(seed):
        moved = subject.answer(dict(observation), seed).float()
    undo = export.apply(subject)
    try:
        return own, subject.answer(dict(observation), seed).float(), moved
    finally:
        undo()


def _scaled(own: Tensor, exported: Tensor, moved: Tensor) -> bool:
    """Return whether ``exported``, (actions, dimensions), is ``own`` times a number plus another in each dimension."""
    before, after = own.double(), exported.double()
    centred = before - before.mean(0)
    slope = (centred * after).sum(0) / centred.square().sum(0).clamp(min=1e-30)
    left = after - after.mean(0) - slope * centred
    rounding = torch.maximum((moved.double() - before).norm(dim=0), FLOORS["float32"] * before.norm(dim=0))
    return bool((left.norm(dim=0) <= MARGIN * rounding).all() and (centred.norm(dim=0) > MARGIN * rounding).all())


def _in_order(entries: list[Entry]) -> list[Entry]:
    stages = ("inputs", "tokens", "noise")
    return sorted(entries, key=lambda entry: stages.index(entry.key[0]))


def _entry(name: str, value: Tensor, group: str = "", what: str = GIVEN) -> Entry:
    array = value.detach().cpu().numpy()
    group = group or ("tokens" if name in (TOKENS, MASK) else "inputs")
    digest = "" if value.is_floating_point() else str(array.tobytes())
    return Entry((group, name, what, 1), tuple(value.shape), str(value.dtype).removeprefix("torch."), "", digest, array)


def _noise(number: int, drawn: Tensor) -> Entry:
    return _entry(f"draw {number}", drawn, "noise")


def _chunk(chunk: Tensor) -> Entry:
    return _entry("the chunk", chunk.float(), "chunk", GIVES)
