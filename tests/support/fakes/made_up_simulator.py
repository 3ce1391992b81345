"""A simulator for tests of evaluations: it plays nothing, and succeeds as often as it was told to."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from strobe.core.measure.sampling import Progress
from strobe.core.treatments.treatment import Variant
from strobe.evaluate.episode_log import EpisodeLine, EpisodeLog, EvaluationRequest
from strobe.evaluate.episodes.play import FIRST, Candidate, Plan, Session
from strobe.evaluate.results import EvaluateResult
from strobe.evaluate.run import evaluate
from support.examples.runs import SUBJECT
from support.fakes.made_up_episodes import RATES, made_up, start_digest


class MadeUp:
    """Plays by lot: whoever succeeds with a lower chance loses what the others lose too, as on one start.

    Attributes:
        played: variant, task and seed of each episode, in order.
    """

    def __init__(self, rates: Mapping[str, float] = RATES, cut: int | None = None, ends: Any = KeyboardInterrupt):
        self.rates, self.cut, self.ends = rates, cut, ends
        self.played: list[tuple[str, str, int]] = []

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine:
        if self.cut is not None and len(self.played) >= self.cut:
            raise self.ends
        self.played.append((candidate.name, task, seed))
        line = made_up(candidate.name, task, seed, self.rates)
        return line.model_copy(update={"start": self.start(candidate, task, seed)})

    def start(self, candidate: Candidate, task: str, seed: int) -> str:
        return start_digest(task, seed)


class Lines:
    """Collects the lines that were said, and the progress that was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[Progress] = []

    def stage(self, what: str) -> None:
        self.lines.append(f"… {what}")

    def say(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, progress: Progress) -> None:
        self.steps.append(progress)


def plan(episodes: int = 60, *, tasks: tuple[str, ...] = ("pusht",), margin: float = 0.1, seed: int = 0) -> Plan:
    """The baseline with 10 denoising steps, 5 and 2 steps."""
    steps = {FIRST: 10, "5 steps": 5, "2 steps": 2}
    made = [Candidate(Variant(name), "" if name == FIRST else name, count) for name, count in steps.items()]
    return Plan(made, tasks, episodes, margin, seed)


def make_request(of: Plan, **more: Any) -> EvaluationRequest:
    """The facts that ``of`` asks for, of a policy that does not exist."""
    variants = {one.name: one.written for one in of.candidates}
    said = EvaluationRequest(
        policy="p",
        weights="0",
        settings={"n_action_steps": 8},
        environment={"type": "pusht"},
        tasks=list(of.tasks),
        variants=variants,
        margin=of.margin,
        seed=of.seed,
        episodes=of.episodes,
    )
    return said.model_copy(update=more)


def run_evaluation(
    folder: Path, of: Plan, player: Any, *, resume: bool = False, lines: Lines | None = None
) -> EvaluateResult:
    """Play ``of`` in ``folder``."""
    log = EpisodeLog.resume(folder, make_request(of)) if resume else EpisodeLog.begin(folder, make_request(of))
    subject: Any = SimpleNamespace(
        info=SUBJECT.model_copy(update={"source": "pusht-diffusion"}), device=torch.device("cpu"), notes=[], caveats=[]
    )
    try:
        return evaluate(subject, Session("PushT-v0", of, player, log, lines or Lines()))
    finally:
        log.close()


def example() -> EvaluateResult:
    """An evaluation of 60 episodes with both verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        return run_evaluation(Path(folder), plan(), MadeUp())
