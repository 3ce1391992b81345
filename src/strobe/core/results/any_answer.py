"""Any answer that can be saved, recognised by its ``study``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from strobe.budget.results import Budget
from strobe.core.results.answer import BreakdownResult, CompareResult, VerifyResult
from strobe.dataloader.results import Dataloader
from strobe.doctor.results import DoctorResult
from strobe.evaluate.results.evaluate import EvaluateResult, Judged
from strobe.history.results.difference import Difference
from strobe.history.results.history import History
from strobe.ladder.results import OptimizeResult
from strobe.preflight.results.preflight import PreflightResult
from strobe.replay.results import ReplayResult
from strobe.rollout.results.rollout import RolloutResult
from strobe.servers.results.server import ServerAnswer
from strobe.sweep.results import Sweep
from strobe.traces.results.trace import TraceAnswer
from strobe.train.results import TrainResult
from strobe.trials.results import TrialsResult
from strobe.tune.results import TuneResult

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
