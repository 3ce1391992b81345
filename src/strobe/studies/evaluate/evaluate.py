"""Evaluate: does a variant of the policy still do the task, and how fast is it there?"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from strobe.measure.planning import foresight
from strobe.measure.sampling import SamplingBudget
from strobe.policies.policy_subject import PolicySubject
from strobe.results.evaluate import EvaluateResult
from strobe.runs.episode_log import EpisodeLog
from strobe.studies.evaluate.answer import rows
from strobe.studies.evaluate.latency import add_latency
from strobe.studies.evaluate.order import counted
from strobe.studies.evaluate.plan import Plan
from strobe.studies.evaluate.play import Crew, Player, Watching, play
from strobe.studies.machine_state import begin_result
from strobe.studies.measuring import Options


class Evaluating(Watching, Protocol):
    """Where it says what it is doing."""

    def stage(self, what: str) -> None: ...


def evaluate(
    subject: PolicySubject,
    environment: str,
    plan: Plan,
    player: Player | Crew,
    log: EpisodeLog,
    watching: Evaluating,
    latency_iterations: int = 0,
) -> EvaluateResult:
    """Say what the planned number can decide, play, judge, and measure the latency apart from the episodes.

    Ctrl-C keeps the episodes that were played, and the rounds of the latency that are complete.

    Args:
        environment: the simulator's name.
        log: empty, or with the episodes of a run that is gone on with.
        latency_iterations: rounds of the latency apart from the episodes; 0: it is not measured.

    Raises:
        UserError: an episode fails; those before it are in the log.
        KeyboardInterrupt: before the first episode has ended.
    """
    options = Options(SamplingBudget(iterations=1), counted=False)
    title = f"{subject.info.name}: success against latency in {environment}"
    fields = {"environment": environment, "tasks": list(plan.tasks), "planned": plan.planned, "margin": plan.margin}
    result = begin_result(EvaluateResult, subject, title, options, watching, **fields)
    if len(plan.candidates) > 1:
        result.foresight = foresight(plan.planned, plan.margin)
        watching.said(result.foresight)
    names = "; ".join(one.name for one in plan.candidates)
    watching.stage(f"episodes in {environment}, up to {plan.planned} of each: {names}")
    if play(plan, player, log, watching):
        result.status = "interrupted"
    result.variants = rows(plan, counted(plan, log.episodes))
    if not result.variants:
        raise KeyboardInterrupt
    if latency_iterations and result.status == "complete":
        add_latency(result, subject, plan.candidates, latency_iterations, watching)
    if beside := max(one.calls.beside for one in result.variants):
        result.notes.append(
            f"calls, simulator and rendering were timed beside up to {beside} other process{'es' * (beside > 1)} that "
            "played episodes: their times are longer than undisturbed ones"
        )
    nodes = Counter(line.node for line in counted(plan, log.episodes).values())
    if set(nodes) != {""}:
        told = ", ".join(f"{name or 'this machine'} {count}" for name, count in sorted(nodes.items()))
        result.notes.append(
            f"episodes by the nodes that played them: {told}; calls, simulator and rendering were timed there, and "
            "compare only where the nodes are alike; a chunk's latency apart from the episodes was measured here"
        )
    return result
