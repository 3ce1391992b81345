"""Strategies for any valid answer, derived from the models of `strobe.core.results`: a new field is in them by itself.

Numbers are of the size that their names promise; where fields must agree with one another, `RELATED` sees to it.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from strobe.core import slices
from strobe.core.results.answer import BreakdownResult, CompareResult, Recorded, VerifyResult
from strobe.core.results.measurement import Measurement
from strobe.core.results.subject import Machine
from strobe.dataloader.results import Dataloader
from strobe.evaluate.pairs import PairedRates
from strobe.evaluate.results import EvaluatedVariant, EvaluateResult, VariantOnTask
from strobe.ladder.results import Ladder, OptimizeResult
from strobe.servers.results import ServerAnswer
from strobe.sweep.results import Axis, Cell, Sweep
from strobe.traces.results import TraceAnswer
from strobe.train.results import TrainResult
from strobe.trials.results import TrialsResult
from strobe.tune.results import TuneResult

MOST = 2  # things in a list or in a mapping: more of them find nothing more, and take longer
TEXT = st.text(max_size=12)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
SCALAR = st.one_of(TEXT, st.booleans(), st.integers(-(2**53), 2**53), NUMBER, st.none())

# Names of numbers → what they may be, the first that fits. All others are times, sizes and rates.
RANGES: tuple[tuple[str, st.SearchStrategy[float]], ...] = (
    ("level|asked", st.floats(0.5, 0.999)),
    ("margin", st.floats(0.001, 0.999)),
    ("target_.*|fps|.*per_s|within_ms", st.floats(0.01, 1e5)),
    (".*share|shares|rate|.*success|busy|waiting|overhead|machine_cpu|idle", st.floats(0, 1)),
    ("low|high|difference.*|reward.*|.*_error|cosine|offset|most_gain|exposed|losses", NUMBER),
    ("exponent|slope|fixed", st.floats(-1e12, 1e12)),
    (".*", st.floats(0, 1e7)),
)
COUNTED_FROM_ONE = "batch|batch_size|block_samples|prefetch_factor|chunks|repeats?|ticks"
NEVER_EMPTY = "path|pairs"  # lists


def model_strategy(model: type[BaseModel], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for instances of ``model``; ``given`` replaces those of single fields."""
    fields = {
        name: given[name] if name in given else _field_strategy(name, field)
        for name, field in model.model_fields.items()
        if name not in ("schema_version", "study")
    }
    return st.builds(model, **fields)


@cache
def _deferred_strategy(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    return st.deferred(RELATED.get(model, lambda: model_strategy(model)))


def _field_strategy(name: str, field: FieldInfo) -> st.SearchStrategy[Any]:
    record = next((mark for mark in field.metadata if isinstance(mark, Recorded)), None)
    if record is None:
        strategy = _type_strategy(name, field.annotation)
    else:
        made = _deferred_strategy(slices.record_class(record.name))  # type: ignore[arg-type]
        strategy = st.lists(made, max_size=MOST) if record.many else st.none() | made
    least = next((bound.ge for bound in field.metadata if isinstance(bound, Ge)), None)
    most = next((bound.le for bound in field.metadata if isinstance(bound, Le)), None)
    if (least, most) not in ((None, None), (0, None)):  # those of a name are of its size
        bounded: Any = st.integers if field.annotation is int else st.floats
        strategy = bounded(least, most)
    if field.is_required() or field.annotation is datetime:  # whose default is another one each time
        return strategy
    default = st.builds(field.get_default, call_default_factory=st.just(True))
    return default | default | strategy  # so that answers stay small


def _type_strategy(name: str, kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of the type ``kind`` in a field ``name``."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(inside)
    if origin in (Union, types.UnionType):
        return st.one_of(*(_type_strategy(name, one) for one in inside))
    if kind is Any:  # a record that a slice adds
        return st.none()
    if hasattr(kind, "__metadata__"):  # Annotated
        return _type_strategy(name, kind.__origin__)
    if origin is list:
        by_name = (lambda one: one.name) if "name" in getattr(inside[0], "model_fields", ()) else None
        least = 1 if re.fullmatch(NEVER_EMPTY, name) else 0
        return st.lists(_type_strategy(name, inside[0]), min_size=least, max_size=MOST, unique_by=by_name)
    if origin is tuple:
        return st.tuples(*(_type_strategy(name, one) for one in inside))
    if origin in (dict, Mapping):
        return st.dictionaries(_type_strategy("", inside[0]), _type_strategy(name, inside[1]), max_size=MOST)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _deferred_strategy(kind)
    if kind is float:
        return next(numbers for pattern, numbers in RANGES if re.fullmatch(pattern, name))
    if kind is int:
        return st.integers(1, 2**20) if re.fullmatch(COUNTED_FROM_ONE, name) else st.integers(0, 2**60)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        bool: st.booleans(),
        type(None): st.none(),
        datetime: st.datetimes(timezones=st.just(UTC)),
        object: SCALAR | st.lists(TEXT, max_size=MOST) | st.dictionaries(TEXT, SCALAR, max_size=MOST),
    }
    return plain[kind]


def _measurement_strategy() -> st.SearchStrategy[Measurement]:
    phases = st.sampled_from(["inference", "training forward", "training step", "loading"])  # those of these answers
    return model_strategy(Measurement, phase=phases)


@st.composite
def _optimize_strategy(draw: st.DrawFn) -> OptimizeResult:
    """Most have a ladder, whose rungs are measurements, one of them chosen; now and then it has others."""
    result = draw(model_strategy(OptimizeResult, ladder=st.none()))
    if result.measurements and draw(st.integers(0, 3)):
        ladder = draw(_deferred_strategy(Ladder))
        for rung, measurement in zip(ladder.rungs, result.measurements, strict=False):
            rung.name = measurement.name if draw(st.integers(0, 9)) else rung.name
        ladder.chosen = draw(st.sampled_from([rung.name for rung in ladder.rungs])) if ladder.rungs else ""
        result.ladder = ladder
    return result


@st.composite
def _evaluate_strategy(draw: st.DrawFn) -> EvaluateResult:
    """The first variant, where one was played, is judged against nothing; the others are judged on its tasks."""
    tasks = draw(st.lists(TEXT, min_size=1, max_size=3, unique=True))
    alone, paired = (
        model_strategy(VariantOnTask, paired=st.none()),
        model_strategy(VariantOnTask, paired=_deferred_strategy(PairedRates)),
    )
    first = model_strategy(EvaluatedVariant, together=alone, tasks=st.just({}))
    judged = st.dictionaries(st.sampled_from(tasks), paired, max_size=MOST)
    others = st.lists(model_strategy(EvaluatedVariant, together=paired, tasks=judged), max_size=MOST)
    variants = [draw(first), *draw(others)] if draw(st.integers(0, 3)) else []
    return draw(model_strategy(EvaluateResult, tasks=st.just(tasks), variants=st.just(variants)))


@st.composite
def _sweep_strategy(draw: st.DrawFn) -> Sweep:
    """Most cells have a value for each of the axes, and each ran on a machine that is there."""
    axes = draw(_type_strategy("axes", list[Axis]))
    settings = st.fixed_dictionaries(
        {}, optional={axis.name: st.sampled_from(axis.values) if axis.values else TEXT for axis in axes}
    )
    machines = draw(st.lists(_deferred_strategy(Machine), min_size=1, max_size=MOST))
    cells = draw(st.lists(model_strategy(Cell, settings=settings), max_size=4))
    for run in (run for cell in cells for run in cell.runs):
        run.machine = None if run.machine is None else run.machine % len(machines)
    return draw(model_strategy(Sweep, axes=st.just(axes), cells=st.just(cells), machines=st.just(machines)))


# Model → the strategy for one whose fields must agree with each other, or with what no type says.
RELATED: dict[type[BaseModel], Callable[[], st.SearchStrategy[Any]]] = {
    Measurement: _measurement_strategy,
    OptimizeResult: _optimize_strategy,
    EvaluateResult: _evaluate_strategy,
    Sweep: _sweep_strategy,
}
SINGLE = (BreakdownResult, CompareResult, TrainResult, OptimizeResult, EvaluateResult, TuneResult, VerifyResult)

results = st.one_of(*map(_deferred_strategy, SINGLE))
with_checks = st.one_of(*map(_deferred_strategy, (CompareResult, OptimizeResult, VerifyResult)))
sweeps = _deferred_strategy(Sweep)
loaders = _deferred_strategy(Dataloader)
traces = _deferred_strategy(TraceAnswer)
servers = _deferred_strategy(ServerAnswer)
trials = _deferred_strategy(TrialsResult)
