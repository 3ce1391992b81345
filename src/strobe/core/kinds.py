"""The kinds of answers: what each one's report says and shows, and which rules it is given.

To add a study, add its answer (`strobe.core.results`), its page (`strobe.core.report`, see `frame.Page`), and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.budget import page as budget
from strobe.budget.results import Budget
from strobe.core.findings import cadence, levers, machine, parts, precision, rtc, rules, sameness, trust, view
from strobe.core.findings.rules import Rule
from strobe.core.findings.thresholds import DEFAULTS, Thresholds
from strobe.core.report import breakdown, compare, html, verify
from strobe.core.report.document import Document
from strobe.core.report.frame import Page, Plots
from strobe.core.results.answer import Answer, BreakdownResult, CompareResult, VerifyResult
from strobe.core.results.finding import Finding
from strobe.dataloader import findings as dataloader_rules
from strobe.dataloader import page as dataloader
from strobe.dataloader.results import Dataloader
from strobe.doctor import page as doctor
from strobe.doctor.results import DoctorResult
from strobe.environments import findings as environments
from strobe.evaluate import findings as episodes
from strobe.evaluate.pages import evaluate, judged
from strobe.evaluate.results.evaluate import EvaluateResult, Judged
from strobe.history.pages import changes, history
from strobe.history.results.difference import Difference
from strobe.history.results.history import History
from strobe.ladder import findings as ladder_rules
from strobe.ladder import page as ladder
from strobe.ladder.results import OptimizeResult
from strobe.preflight.findings import preflight as preflight_rules
from strobe.preflight.findings import wiring
from strobe.preflight.pages import preflight
from strobe.preflight.results.preflight import PreflightResult
from strobe.replay import findings as replay_rules
from strobe.replay import page as replay
from strobe.replay.results import ReplayResult
from strobe.rollout.findings import remote as remote_rules
from strobe.rollout.findings import robot
from strobe.rollout.findings import rollout as rollout_rules
from strobe.rollout.pages import rollout
from strobe.rollout.results.rollout import RolloutResult
from strobe.servers import findings as server_rules
from strobe.servers import page as server
from strobe.servers.results.server import ServerAnswer
from strobe.sweep import findings as sweep_rules
from strobe.sweep import page as sweep
from strobe.sweep.results import Sweep
from strobe.traces.findings import profiles
from strobe.traces.findings import trace as trace_rules
from strobe.traces.pages import trace
from strobe.traces.results.trace import TraceAnswer
from strobe.train import findings as training_rules
from strobe.train import page as training
from strobe.train.results import TrainResult
from strobe.trials import findings as trial_rules
from strobe.trials import page as trials
from strobe.trials.results import TrialsResult
from strobe.tune import page as tune
from strobe.tune.results import TuneResult
from strobe.vision import findings as backbone


@dataclass(frozen=True)
class Kind[A: Answer]:
    """How one kind of answer is shown and judged.

    Args:
        page: the file of `strobe.core.report` that is called like the study.
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
