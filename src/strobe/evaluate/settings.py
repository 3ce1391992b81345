"""The rows of an evaluation: variants of the policy by denoising steps, executed actions and recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core.errors import UserError
from strobe.evaluate.episodes.settings import FIRST, Candidate, parse_counts

if TYPE_CHECKING:  # torch is not needed to read flags, and takes seconds
    from strobe.evaluate.episodes.timings import RequestedTiming
    from strobe.lerobot.policies.policy_subject import PolicySubject


@dataclass(frozen=True)
class Candidates:
    """All variants, the policy as it is first; ``notes`` on requested ones that are not among them."""

    all: Sequence[Candidate]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class EvaluatedRows:
    """The rows of `strobe evaluate`: numbers of denoising steps and recipes, at each timing where there are any.

    Args:
        executed: numbers of actions of a chunk that are executed before the next call, LeRobot's ``n_action_steps``.
    """

    steps: tuple[int, ...] = ()
    executed: tuple[int, ...] = ()
    timings: tuple[RequestedTiming, ...] = ()

    def __call__(self, subject: PolicySubject, recipes: Sequence[Path]) -> Sequence[Candidate]:
        """Return the rows. Raises UserError where something does not apply."""
        return self.candidates(subject, recipes).all

    def candidates(self, subject: PolicySubject, recipes: Sequence[Path]) -> Candidates:
        """Return the rows with their notes. Each variant is put on ``subject`` once to see that it applies.

        Raises:
            UserError: the policy has no denoising steps or no queue of actions, or a recipe does not apply.
        """
        from strobe.core.families.registry import steps_field, steps_of
        from strobe.core.treatments.recipe import rungs_of
        from strobe.core.treatments.treatment import Variant
        from strobe.evaluate.episodes.timings import timed
        from strobe.lerobot.config_fields import Settings

        config: Any = subject.policy.config
        own, name = steps_of(config), steps_field(config)
        if self.steps and not name:
            raise UserError(f"--steps: the policy type '{config.type}' has no denoising steps: leave it out")
        made, notes = [Candidate(Variant(FIRST), steps=own)], list[str]()
        for count in self.steps:
            if count == own:
                notes.append(f"{_steps(count)} are the policy's own: they are played once")
                continue
            setting = Settings({name: count})
            made.append(Candidate(Variant(_steps(count), (setting,)), f"policy.{name}={count}", count))
        for count in self.executed:
            if not hasattr(config, "n_action_steps"):
                raise UserError(f"--n_action_steps: the policy type '{config.type}' has no such setting: leave it out")
            if count == config.n_action_steps:
                notes.append(f"n_action_steps={count} is the policy's own: it is played once")
                continue
            setting = Settings({"n_action_steps": count})
            made.append(Candidate(Variant(f"n_action_steps={count}", (setting,)), f"policy.n_action_steps={count}"))
        for path in recipes:
            rungs = rungs_of(subject, path)
            made.append(Candidate(Variant(path.name, rungs), "; ".join(rung.written for rung in rungs), own, path.name))
        names = [candidate.name for candidate in made]
        for candidate in made:
            if names.count(candidate.name) > 1:
                raise UserError(f"--recipe: rename the recipe '{candidate.name}': a variant has that name already")
            candidate.variant.require("inference")
            _try(candidate, subject)
        return Candidates(timed(made, self.timings) if self.timings else made, notes)


def parse_executed(text: str) -> tuple[int, ...]:
    """``'10,25,50'`` as numbers of actions that are executed of a chunk. Raises UserError."""
    return parse_counts("--n_action_steps", text, "actions", "10,25,50")


def _try(candidate: Candidate, subject: PolicySubject) -> None:
    try:
        candidate.variant.apply(subject)()
    except UserError as error:
        raise UserError(f"'{candidate.name}' does not apply: {error}") from None


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"
