"""Any answer that can be saved, recognised by its ``study``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from strobe.results.answer import BreakdownResult, CompareResult, OptimizeResult, TrainResult, VerifyResult
from strobe.results.budget import Budget
from strobe.results.dataloader import Dataloader
from strobe.results.difference import Difference
from strobe.results.doctor import DoctorResult
from strobe.results.evaluate import EvaluateResult, Judged
from strobe.results.history import History
from strobe.results.preflight import PreflightResult
from strobe.results.replay import ReplayResult
from strobe.results.rollout import RolloutResult
from strobe.results.server import ServerAnswer
from strobe.results.sweep import Sweep
from strobe.results.trace import TraceAnswer
from strobe.results.trials import TrialsResult
from strobe.results.tune import TuneResult

AnyAnswer = Annotated[
    BreakdownResult
    | CompareResult
    | TrainResult
    | RolloutResult
    | PreflightResult
    | ReplayResult
    | OptimizeResult
    | VerifyResult
    | EvaluateResult
    | TuneResult
    | Judged
    | TrialsResult
    | Sweep
    | Dataloader
    | Budget
    | Difference
    | History
    | DoctorResult
    | TraceAnswer
    | ServerAnswer,
    Field(discriminator="study"),
]

any_answer: TypeAdapter[AnyAnswer] = TypeAdapter(AnyAnswer)
