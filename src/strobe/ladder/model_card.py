"""An answer as a card for a checkpoint's page on the Hub: its speed and success in the Hub's own metadata, and words.

The metadata is the Hub's ``model-index``, written by `huggingface_hub.ModelCard`. A card that is there already keeps
its text and its other results: Strobe's part stands between two markers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strobe.core.errors import UserError, error_line
from strobe.core.report import frame, sameness
from strobe.core.report.markdown import escape, grid
from strobe.core.results import units
from strobe.core.results.answer import Answer, Result
from strobe.evaluate.results import EvaluateResult
from strobe.ladder.results import OptimizeResult

if TYPE_CHECKING:  # a second of imports
    from huggingface_hub import EvalResult

BEGIN, END = "<!-- strobe: begin -->", "<!-- strobe: end -->"
SOURCE = {"measured with": "Strobe"}  # marks Strobe's own results in the card
HEADS = ("", "ms per action chunk (median)", f"{units.P_TAIL} (ms)", "chunks per second", "success")


@dataclass(frozen=True)
class _Row:
    """One variant of the policy: milliseconds of a chunk, and its episodes."""

    name: str
    ms: float | None = None
    tail: float | None = None
    success: str = ""
    rate: float | None = None


def render(answer: Answer, card: str = "") -> str:
    """Return the card of ``answer``, as Markdown with front matter.

    Args:
        card: the existing card; empty without one.

    Raises:
        UserError: the answer has neither the latency of a policy's chunks nor its episodes; the card cannot be read.
    """
    rows = list(_rows(answer)) if isinstance(answer, Result) else []
    if not rows or not isinstance(answer, Result):
        raise UserError(
            f"a model card shows a policy's latency and success, and a {answer.study} run has neither: give a "
            "breakdown, a comparison, a ladder or an evaluation"
        )
    from huggingface_hub import ModelCard, ModelCardData

    try:
        existing = ModelCard(card) if card else None
    except Exception as error:  # yaml's own, and the library's
        raise UserError(f"the existing card cannot be read: {error_line(error, 120)}") from None
    data: Any = (
        existing.data if existing is not None else ModelCardData(library_name="lerobot", pipeline_tag="robotics")
    )
    data.model_name = data.model_name or units.plain(answer.subject.name)
    data.tags = list(dict.fromkeys([*(data.tags or []), "robotics", "lerobot", answer.subject.kind]))
    data.eval_results = [entry for entry in data.eval_results or [] if entry.metric_args != SOURCE]
    data.eval_results += [result for row in rows for result in _results(answer, row)]
    text = existing.text.strip() if existing is not None else f"# {escape(answer.subject.name)}"
    section = "\n".join([BEGIN, _section(answer, rows), END])
    if BEGIN in text and END in text:
        text = text[: text.index(BEGIN)] + section + text[text.index(END) + len(END) :]
    else:
        text = f"{text}\n\n{section}"
    return f"---\n{data.to_yaml()}\n---\n\n{text.strip()}\n"


def _rows(result: Result) -> Iterator[_Row]:
    if isinstance(result, EvaluateResult):
        for variant in result.variants:
            success, chunk = variant.together.success, variant.chunk
            ends = f" [{100 * success.interval.low:.1f}, {100 * success.interval.high:.1f}]" if success.interval else ""
            words = f"{success.successes} of {success.episodes}: {100 * success.rate:.1f} %{ends}"
            yield _Row(variant.name, chunk.ms.median if chunk else None, None, words, success.rate)
        return
    measured = [m for m in result.measurements if m.phase == "inference" and m.samples.values]
    if isinstance(result, OptimizeResult) and result.ladder is not None:
        ends = (result.ladder.rungs[0].name, result.ladder.chosen) if result.ladder.rungs else ()
        measured = [m for m in measured if m.name in ends]
    for m in measured:
        treated = isinstance(result, OptimizeResult) and m is not measured[0]
        yield _Row("with recipe.yaml" if treated else m.name, m.samples.summary.median, m.samples.quantile(units.TAIL))


def _results(result: Result, row: _Row) -> Iterator[EvalResult]:
    from huggingface_hub import EvalResult

    where = units.plain(result.environment if isinstance(result, EvaluateResult) else result.subject.inputs)
    name = units.plain(row.name)
    given = {"task_type": "robotics", "dataset_type": "lerobot", "dataset_name": where, "metric_args": SOURCE}
    if row.ms is not None and math.isfinite(row.ms):
        on = f"{name}, {units.plain(result.machine.device_name or result.machine.cpu)}"
        value = float(f"{row.ms:.4g}")
        yield EvalResult(
            **given, metric_type="latency", metric_name=f"ms per action chunk, median ({on})", metric_value=value
        )
    if row.rate is not None:
        value = float(f"{row.rate:.4g}")
        yield EvalResult(**given, metric_type="success_rate", metric_name=f"success rate ({name})", metric_value=value)


def _section(result: Result, rows: list[_Row]) -> str:
    blocks = ["## Speed and success, measured with Strobe"]
    if "random" in result.subject.source:
        blocks += ["> **Random weights: the times are those of trained weights, the actions are not.**"]
    blocks += [_table(rows)]
    blocks += [f"On {escape(frame.machine(result.machine))}; {escape(_versions(result))}. At batch size 1, inputs: "
               f"{escape(result.subject.inputs)}."]  # fmt: skip
    blocks += list(_describe_comparisons(result))
    if isinstance(result, OptimizeResult) and result.ladder is not None and len(rows) > 1:
        blocks += [
            "With the recipe in this card's folder:",
            "```python\npolicy, preprocessor, postprocessor = "
            'strobe.load_policy("FOLDER_OR_HUB_ID", "recipe.yaml")\n```',
        ]
    made = dict(frame.run(result))
    blocks += [f"Made on {made['Run'].split(',')[0]} by `{made.get('Command', 'strobe')}` "
               f"(Strobe {escape(result.strobe_version)})."]  # fmt: skip
    return "\n\n".join(blocks)


def _table(rows: list[_Row]) -> str:
    cells = []
    for row in rows:
        times = [units.rate(of) if of else None for of in (row.ms, row.tail, row.ms and 1e3 / row.ms)]
        cells.append([escape(row.name), *times, row.success or None])
    places = [index for index in range(len(HEADS)) if index == 0 or any(row[index] for row in cells)]
    return grid([HEADS[index] for index in places], ([row[index] or units.NONE for index in places] for row in cells))


def _versions(result: Result) -> str:
    known = result.machine.versions
    return ", ".join(f"{name} {known[name]}" for name in ("lerobot", "torch") if name in known) or "versions unknown"


def _describe_comparisons(result: Result) -> Iterator[str]:
    shown = result.ladder.chosen if isinstance(result, OptimizeResult) and result.ladder is not None else None
    first = result.measurements[0].name if result.measurements else ""
    for pair in result.judged_comparisons():
        if pair.baseline != first or (shown is not None and pair.candidate != shown):
            continue
        moved = f" {sameness.describe_agreement(pair.agreement)}" if pair.agreement is not None else ""
        guard = f" Within the limits ({escape(pair.guard)})." if pair.guard and pair.outcome == "held" else ""
        yield f"{escape(pair.verdict.text)}{moved}{guard}"
