"""The kinds of answers: what each one's report says and shows, and which rules it is given.

Who adds a study adds its answer (`strobe.results`), its outline and plots (`strobe.report`), and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.findings import (
    backbone,
    cadence,
    episodes,
    levers,
    machine,
    parts,
    precision,
    profiles,
    robot,
    rtc,
    rules,
    sameness,
    trust,
    view,
)
from strobe.findings import dataloader as dataloader_rules
from strobe.findings import ladder as ladder_rules
from strobe.findings import remote as remote_rules
from strobe.findings import replay as replay_rules
from strobe.findings import rollout as rollout_rules
from strobe.findings import sweep as sweep_rules
from strobe.findings import training as training_rules
from strobe.findings.rules import Rule
from strobe.findings.thresholds import DEFAULTS, Thresholds
from strobe.report import (
    breakdown,
    budget,
    changes,
    compare,
    dataloader,
    dataloader_plots,
    doctor,
    evaluate,
    evaluate_plots,
    history,
    html,
    judged,
    ladder,
    measured,
    replay,
    replay_plots,
    rollout,
    rollout_plots,
    sweep,
    sweep_plots,
    training,
    verify,
)
from strobe.report.document import Document
from strobe.report.plots import Plot
from strobe.results.answer import (
    Answer,
    BreakdownResult,
    CompareResult,
    OptimizeResult,
    TrainResult,
    VerifyResult,
)
from strobe.results.budget import Budget
from strobe.results.dataloader import Dataloader
from strobe.results.difference import Difference
from strobe.results.doctor import DoctorResult
from strobe.results.evaluate import EvaluateResult
from strobe.results.finding import Finding
from strobe.results.history import History
from strobe.results.judged import Judged
from strobe.results.replay import ReplayResult
from strobe.results.rollout import RolloutResult
from strobe.results.sweep import Sweep

Plots = dict[str, list[Plot]]


@dataclass(frozen=True)
class Kind[A: Answer]:
    """How one kind of answer is shown and judged.

    ``outline`` and ``plots`` take the answer and the number of levels to show of its trees, None for all. ``plots``
    are by the key of their section. ``plausible`` leaves out of the answer what rules must not divide by.
    """

    outline: Callable[[A, int | None], Document]
    plots: Callable[[A, int | None], Plots]
    rules: tuple[Rule[A], ...] = ()
    plausible: Callable[[A], A] = lambda answer: answer


def _flat[A: Answer, T](of: Callable[[A], T]) -> Callable[[A, int | None], T]:
    """``of`` for an answer without trees, which has no levels to leave out."""
    return lambda answer, _: of(answer)


KINDS: dict[type[Answer], Kind[Any]] = {
    BreakdownResult: Kind[BreakdownResult](
        breakdown.outline,
        breakdown.plots,
        (*cadence.RULES, *parts.RULES, *rtc.RULES, *backbone.RULES, *machine.RULES, *profiles.RULES, *trust.RULES),
        view.plausible,
    ),
    CompareResult: Kind[CompareResult](
        compare.outline,
        compare.plots,
        (
            *parts.RULES,
            *rtc.OF_COMPARISONS,
            *backbone.RULES,
            *machine.RULES,
            *precision.RULES,
            *sameness.RULES,
            *levers.RULES,
            *profiles.RULES,
            *trust.OF_COMPARISONS,
        ),
        view.plausible,
    ),
    # A training's steps have rules of their own: the others take its parts for those of a breakdown.
    TrainResult: Kind[TrainResult](
        training.outline,
        measured.plots,
        (*training_rules.RULES, machine.training_memory_churn, trust.unseen, trust.stand_ins),
        view.plausible,
    ),
    # So have a rollout's ticks.
    RolloutResult: Kind[RolloutResult](
        rollout.outline,
        rollout_plots.plots,
        (
            *rollout_rules.RULES,
            *robot.RULES,
            *remote_rules.RULES,
            *cadence.OF_ROLLOUTS,
            trust.unseen,
            trust.stand_ins,
        ),
    ),
    ReplayResult: Kind[ReplayResult](_flat(replay.outline), _flat(replay_plots.plots), replay_rules.RULES),
    # A ladder says itself where the time goes and what can be done about it.
    OptimizeResult: Kind[OptimizeResult](
        ladder.outline,
        ladder.plots,
        (*ladder_rules.RULES, *sameness.RULES, *episodes.RULES, trust.too_noisy, trust.stand_ins),
        view.plausible,
    ),
    VerifyResult: Kind[VerifyResult](verify.outline, verify.plots, (*sameness.RULES, trust.stand_ins)),
    EvaluateResult: Kind[EvaluateResult](
        evaluate.outline, evaluate_plots.plots, (*episodes.OF_EVALUATIONS, trust.stand_ins)
    ),
    Judged: Kind[Judged](_flat(judged.outline), _flat(judged.plots)),
    Sweep: Kind[Sweep](_flat(sweep.outline), _flat(sweep_plots.plots), sweep_rules.RULES),
    Dataloader: Kind[Dataloader](_flat(dataloader.outline), _flat(dataloader_plots.plots), dataloader_rules.RULES),
    Budget: Kind[Budget](_flat(budget.outline), _flat(budget.plots)),
    Difference: Kind[Difference](_flat(changes.outline), _flat(changes.plots)),
    History: Kind[History](_flat(history.outline), _flat(history.plots)),
    DoctorResult: Kind[DoctorResult](_flat(doctor.outline), _flat(doctor.plots), trust.OF_SELF_CHECKS),
}


def document(answer: Answer, depth: int | None = None) -> Document:
    """The words and tables of a report on ``answer``; ``depth`` limits the levels of its trees."""
    return KINDS[type(answer)].outline(answer, depth)


def figures(answer: Answer, depth: int | None = None) -> Plots:
    """The plots of each section of the document, by the section's key."""
    return KINDS[type(answer)].plots(answer, depth)


def page(answer: Answer, depth: int | None = None, folder: Path | None = None) -> str:
    """The whole report as one HTML page; ``folder`` is the run's, whose videos it shows."""
    return html.render(document(answer, depth), figures(answer, depth), folder)


def advise(answer: Answer, thresholds: Thresholds = DEFAULTS) -> list[Finding]:
    """The findings of the rules that are for ``answer``: warnings first, then by the share that they could save."""
    kind = KINDS[type(answer)]
    return rules.run(kind.rules, kind.plausible(answer), thresholds)
