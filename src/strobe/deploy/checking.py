"""Put a recipe on a policy, and compare it with the baseline before anybody runs it."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.measure.agreement import agree, crop_to_common_actions, describe_agreement
from strobe.core.measure.guard import Guard, Judgement
from strobe.core.results.agreement import ActionScale, Agreement, Yardstick
from strobe.core.results.recipe import Recipe
from strobe.core.sameness.check import PolicyCallError, Sameness, affordable
from strobe.core.sameness.visits import FEWEST, CheckCall, plan
from strobe.core.treatments import recipe as recipes
from strobe.core.treatments.treated import Treated
from strobe.core.treatments.treatment import Variant
from strobe.deploy.twin import PolicyCall, Twin, preserve_policy_state
from strobe.lerobot.families.answers import predict
from strobe.lerobot.policies.policy_subject import PolicySubject

SECONDS = 10.0  # approximate time of a check at loading, with short chunks
SLOW = 1.0  # seconds of a chunk from which the check makes fewer calls
FEW = 5  # calls without Real-Time Chunking
_LIKE_ITSELF = 1e-3  # σ RMS that the copy of the baseline may differ by, for kernels that add in any order


@dataclass
class Applied:
    """A recipe on a policy, with the means to compare the two and to revert it.

    Args:
        treated: the treatments on the policy, which `undo` reverts.
        guard: limits on the actions; ``reordered``: the yardstick that an exact guard measures by.
        scale: the spread of the actions; None if it was not looked for.
        agreement: as found by the check; None without one.
        twin: the baseline; None if it is not kept.
    """

    subject: PolicySubject
    recipe: Recipe
    name: str
    treatments: Sequence[recipes.RecipeTreatment]
    treated: Treated
    guard: Guard
    scale: ActionScale | None = None
    reordered: Yardstick | None = None
    agreement: Agreement | None = None
    twin: Twin | None = None
    _post: Any = field(default=None, repr=False)

    @property
    def is_settled(self) -> bool:
        """Whether the original weights were let go, so that `undo` does not bring them back."""
        return self.treated.let_go

    def undo(self) -> None:
        """Take the treatments off."""
        self.treated.revert()

    def settle(self) -> None:
        """Let go of what only undoing needs: the original weights, where they are in another precision."""
        self.twin = None
        for treatment in self.treatments:
            self.treated.let_go |= treatment.settle()

    def compare(self, baseline: Tensor, treated: Tensor, call: str) -> tuple[Agreement, Judgement]:
        """Compare a chunk of the treated policy, as the policy gave it, with the baseline's of the same call.

        Args:
            call: what the call was, in words.

        Returns:
            Their agreement, and the guard's judgement on it.
        """
        if any(treatment.changes_execution for treatment in self.treatments):
            (baseline,), (treated,) = crop_to_common_actions([baseline], [treated])
        if baseline.shape != treated.shape:
            difference = f"a chunk has shape {tuple(treated.shape)}, but {tuple(baseline.shape)} without the treatments"
            unlike = Agreement(cosine=0, largest_error=0, mean_error=0, observations=1, note=difference)
            return unlike, Judgement("broken", difference)
        if self._post is None:
            # The processors together: one that makes actions absolute reads the state that the other has seen.
            loaded = self.subject.loaded
            self._post = copy.deepcopy((loaded.preprocessor, loaded.postprocessor))[1]
        before, after = (self._post(chunk.detach().clone()).detach().float().cpu() for chunk in (baseline, treated))
        rows = range(len(before))
        calls = [call if len(rows) == 1 else f"{call}, environment {row + 1}" for row in rows]
        executed = self.subject.executed_actions
        agreement = agree(
            [before[r] for r in rows], [after[r] for r in rows], self.scale, executed=executed, calls=calls
        )
        return agreement, self.guard.judge(agreement, self.reordered)


def apply_checked_recipe(
    subject: PolicySubject,
    recipe: Recipe,
    name: str,
    *,
    check: bool = True,
    twin: bool = False,
    seconds: float | None = None,
) -> Applied:
    """Put the treatments on; nothing is left of them where one does not fit or the check falls short.

    The program's generators and the policy's queues and mode are as they were.

    Args:
        check: run it and the baseline on several observations, and judge by the recipe's guard.
        twin: keep a copy of the baseline. What a comparison needs is then measured without ``check`` too.
        seconds: that the check takes, about; `SECONDS` where it is None.

    Raises:
        UserError: a line with the recipe's name.
    """
    treatments = recipes.make_treatments(recipe, name)
    guard = recipes.recipe_guard(recipe, [treatment.effect for treatment in treatments])
    notes = recipes.differences(recipe, name)
    if guard.blind_spots and check:
        notes.append(f"{name} has the guard {guard}: {guard.blind_spots}")
    for line in notes:
        warnings.warn(line, stacklevel=3)
    variant = Variant(name, treatments)
    if not check and not twin:
        return Applied(subject, recipe, name, treatments, Treated(subject, variant), guard)
    with preserve_policy_state(subject.policy, subject.device):
        return _apply_and_check(subject, recipe, variant, guard, treatments, check, twin, seconds)


def _apply_and_check(
    subject: PolicySubject,
    recipe: Recipe,
    variant: Variant,
    guard: Guard,
    treatments: Sequence[recipes.RecipeTreatment],
    check: bool,
    twin: bool,
    seconds: float | None,
) -> Applied:
    name = variant.name
    chunk_s = _time(subject)
    copy_of = Twin(subject.policy) if twin else None
    same = Sameness(subject, count=affordable(SECONDS if seconds is None else seconds, chunk_s) if check else FEWEST)
    visits = _visits(same, chunk_s) if check else [CheckCall(0)]
    same.prepare(visits)
    scale = same.scale
    reordered = same.yardstick("reordered sums", FEWEST if chunk_s < SLOW else FEWEST // 2) if guard.exact else None
    call, expected = _one_call(subject) if copy_of is not None else (None, None)
    subject.policy.reset()
    treated = Treated(subject, variant)
    try:
        applied = Applied(subject, recipe, name, treatments, treated, guard, scale, reordered, twin=copy_of)
        if check:
            applied.agreement = _agreement(same, variant, visits)
            applied.agreement.changes_execution = False  # the recipe says how many actions are executed: it was chosen
            judged = guard.judge(applied.agreement, reordered)
            if judged.outcome != "held":
                fault = "the policy exceeds the recipe's limits" if judged.broken_limit else "its guard was not judged"
                raise UserError(
                    f"{name}: {fault}: {judged.words} ({describe_agreement(applied.agreement)}; "
                    f"{applied.agreement.how}); limits: {guard}; check=False loads it without the check"
                )
        if copy_of is not None and call is not None and expected is not None:
            _require_baseline_actions(applied, copy_of.predict(call), expected)
    except BaseException:
        treated.revert()
        raise
    return applied


def _time(subject: PolicySubject) -> float:
    """Return the seconds of one baseline chunk: of the second, where the first was short."""
    taken = 0.0
    for _ in range(2):
        began = time.perf_counter()
        subject.chunk(0)
        taken = time.perf_counter() - began
        if taken > SLOW:
            break
    return taken


def _visits(same: Sameness, chunk_s: float) -> list[CheckCall]:
    visits = [visit for visit in plan(same.count, rtc=same.rtc) if not visit.isolated]
    if chunk_s < SLOW:
        return visits
    guided = [at for at, visit in enumerate(visits) if visit.rtc][:1]
    return visits[:FEW] + [visits[at + after] for at in guided for after in (0, 1)]


def _agreement(same: Sameness, variant: Variant, visits: Sequence[CheckCall]) -> Agreement:
    try:
        return same.check(variant, visits, on_already=True)
    except PolicyCallError as error:
        raise UserError(f"{variant.name}: {error}") from error


def _one_call(subject: PolicySubject) -> tuple[PolicyCall, Tensor]:
    policy: Any = subject.policy
    policy.reset()
    batch = subject.training.laid_out(subject.loaded.preprocessor(subject.observation(0)))
    torch.manual_seed(subject.seed)
    call = PolicyCall.record_call(policy, subject.device, (batch,), dict(subject.chunk_options))
    with torch.no_grad():
        return call, predict(policy, batch, subject.chunk_options).detach().clone()


def _require_baseline_actions(applied: Applied, own: Tensor, expected: Tensor) -> None:
    """Raise UserError unless the copy acts as the baseline did."""
    agreement, _ = applied.compare(expected, own, "the copy")
    moved = agreement.rms if agreement.rms is not None else 1 - agreement.cosine
    if agreement.not_finite or moved > _LIKE_ITSELF:
        raise UserError(
            f"{applied.name}: it cannot be watched, because the copy of the baseline acts differently "
            f"({describe_agreement(agreement)}); load it without watch"
        )


def policy_device(policy: torch.nn.Module) -> torch.device:
    """Return the device that the policy's weights are on."""
    first = next(iter(policy.parameters()), None)
    return torch.device("cpu") if first is None else first.device
