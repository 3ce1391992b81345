"""The kinds of answers: what each one's report says and shows, and which rules it is given.

To add a study, add its answer (`strobe.results`), its page (`strobe.report`, see `frame.Page`), and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.findings import (
    backbone,
    cadence,
    environments,
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
    wiring,
)
from strobe.findings import dataloader as dataloader_rules
from strobe.findings import ladder as ladder_rules
from strobe.findings import preflight as preflight_rules
from strobe.findings import remote as remote_rules
from strobe.findings import replay as replay_rules
from strobe.findings import rollout as rollout_rules
from strobe.findings import server as server_rules
from strobe.findings import sweep as sweep_rules
from strobe.findings import trace as trace_rules
from strobe.findings import training as training_rules
from strobe.findings import trials as trial_rules
from strobe.findings.rules import Rule
from strobe.findings.thresholds import DEFAULTS, Thresholds
from strobe.report import (
    breakdown,
    budget,
    changes,
    compare,
    dataloader,
    doctor,
    evaluate,
    history,
    html,
    judged,
    ladder,
    preflight,
    replay,
    rollout,
    server,
    sweep,
    trace,
    training,
    trials,
    tune,
    verify,
)
from strobe.report.document import Document
from strobe.report.frame import Page, Plots
from strobe.results.answer import Answer, BreakdownResult, CompareResult, OptimizeResult, TrainResult, VerifyResult
from strobe.results.budget import Budget
from strobe.results.dataloader import Dataloader
from strobe.results.difference import Difference
from strobe.results.doctor import DoctorResult
from strobe.results.evaluate import EvaluateResult, Judged
from strobe.results.finding import Finding
from strobe.results.history import History
from strobe.results.preflight import PreflightResult
from strobe.results.replay import ReplayResult
from strobe.results.rollout import RolloutResult
from strobe.results.server import ServerAnswer
from strobe.results.sweep import Sweep
from strobe.results.trace import TraceAnswer
from strobe.results.trials import TrialsResult
from strobe.results.tune import TuneResult


@dataclass(frozen=True)
class Kind[A: Answer]:
    """How one kind of answer is shown and judged.

    Args:
        page: the file of `strobe.report` that is called like the study.
        plausible: leaves out of the answer what rules must not divide by.
    """

    page: Page[A]
    rules: tuple[Rule[A], ...] = ()
    plausible: Callable[[A], A] = lambda answer: answer


KINDS: dict[type[Answer], Kind[Any]] = {
    BreakdownResult: Kind[BreakdownResult](
        breakdown,
        (
            *cadence.RULES,
            *parts.RULES,
            *rtc.RULES,
            *backbone.RULES,
            *machine.RULES,
            *profiles.RULES,
            *trust.RULES,
            *wiring.SERIOUS,
        ),
        view.plausible,
    ),
    CompareResult: Kind[CompareResult](
        compare,
        (
            *parts.RULES,
            *rtc.OF_COMPARISONS,
            *backbone.RULES,
            *machine.RULES,
            *precision.RULES,
            *sameness.RULES,
            *environments.OF_COMPARISONS,
            *levers.RULES,
            *profiles.RULES,
            *trust.OF_COMPARISONS,
        ),
        view.plausible,
    ),
    # A training's steps and a rollout's ticks have rules of their own: the others take their parts for those of a
    # breakdown.
    TrainResult: Kind[TrainResult](
        training, (*training_rules.RULES, machine.training_memory_churn, trust.unseen, trust.stand_ins), view.plausible
    ),
    RolloutResult: Kind[RolloutResult](
        rollout,
        (
            *rollout_rules.RULES,
            *robot.RULES,
            *remote_rules.RULES,
            *cadence.OF_ROLLOUTS,
            *wiring.SERIOUS,
            trust.unseen,
            trust.stand_ins,
        ),
    ),
    PreflightResult: Kind[PreflightResult](preflight, (*wiring.RULES, *preflight_rules.RULES)),
    ReplayResult: Kind[ReplayResult](replay, replay_rules.RULES),
    # A ladder says itself where the time goes and what can be done about it.
    OptimizeResult: Kind[OptimizeResult](
        ladder,
        (*ladder_rules.RULES, *sameness.RULES, *episodes.RULES, trust.too_noisy, trust.stand_ins),
        view.plausible,
    ),
    VerifyResult: Kind[VerifyResult](verify, (*sameness.RULES, *environments.RULES, *wiring.SERIOUS, trust.stand_ins)),
    TuneResult: Kind[TuneResult](tune, (*episodes.OF_TUNINGS, *wiring.SERIOUS, trust.stand_ins)),
    EvaluateResult: Kind[EvaluateResult](evaluate, (*episodes.OF_EVALUATIONS, *wiring.SERIOUS, trust.stand_ins)),
    Judged: Kind[Judged](judged),
    TrialsResult: Kind[TrialsResult](trials, trial_rules.RULES),
    Sweep: Kind[Sweep](sweep, sweep_rules.RULES),
    Dataloader: Kind[Dataloader](dataloader, dataloader_rules.RULES),
    Budget: Kind[Budget](budget),
    Difference: Kind[Difference](changes),
    History: Kind[History](history),
    DoctorResult: Kind[DoctorResult](doctor, trust.OF_SELF_CHECKS),
    TraceAnswer: Kind[TraceAnswer](trace, trace_rules.RULES),
    ServerAnswer: Kind[ServerAnswer](server, server_rules.RULES),
}


def document(answer: Answer, depth: int | None = None) -> Document:
    """Return the words and tables of a report on ``answer``; ``depth`` limits the levels of its trees."""
    return KINDS[type(answer)].page.outline(answer, depth)


def figures(answer: Answer, depth: int | None = None) -> Plots:
    """Return the plots of each section of the document, by the section's key."""
    return KINDS[type(answer)].page.plots(answer, depth)


def page(answer: Answer, depth: int | None = None, folder: Path | None = None) -> str:
    """Return the whole report as one HTML page; ``folder`` is the run's, whose videos it shows."""
    return html.render(document(answer, depth), figures(answer, depth), folder)


def advise(answer: Answer, thresholds: Thresholds = DEFAULTS) -> list[Finding]:
    """Return the findings on ``answer``: warnings first, then by the share that they could save."""
    kind = KINDS[type(answer)]
    return rules.run(kind.rules, kind.plausible(answer), thresholds)
