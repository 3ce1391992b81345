"""The work of torch.compile during calls, from the registers that torch fills by itself whenever it compiles.

A look takes 3 µs, outside a call's time. The structured trace of ``torch._logging`` has more, but has torch write each
graph as text; ``torch._dynamo.explain`` compiles everything again; ``counters`` and ``compile_times`` name no place.
Nothing is imported here: where ``torch._dynamo`` is not loaded, nothing was compiled.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from strobe.core.results.measurement import Compilation, CompiledPlace, What
from strobe.core.results.units import place

# Of torch._dynamo.utils: a record of each compilation, and of each graph break.
REGISTERS = {
    "get_compilation_metrics": "compile time, graphs, recompilations and CUDA graphs (not recorded by this torch)",
    "graph_break_reasons": "places of graph breaks (not recorded by this torch)",
}
LOST = "the first compilations of a call with more than torch remembers"
HELD = 512  # compilations that torch is to remember between two looks; by itself it remembers 64
MOST, MOST_REASONS, LONGEST = 40, 5, 240  # places, reasons of one, characters of a reason
BRANCH = "Data-dependent branching: an `if` or a loop over the value of a tensor"

_LIMIT = re.compile(r"(?:accumulated_)?(?:recompile|cache_size)_limit")


@dataclass
class CompileLog:
    """Torch's records: compilations with the number of their call, −1 before a measurement's first; graph breaks."""

    compiled: list[tuple[int, Any]] = field(default_factory=list)
    broken: list[Any] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)

    def begin(self, earlier: CompileLog) -> None:
        """Have all that it holds, and what ``earlier`` holds, lie before the measurement that begins."""
        self.compiled = [(-1, record) for _, record in [*self.compiled, *earlier.compiled]]
        self.broken += earlier.broken
        self.unjudged += earlier.unjudged


class CompileWatch:
    """Reads what torch has compiled since the last look, or since it was made."""

    def __init__(self) -> None:
        self._last: object = None
        self._breaks = 0
        self.look(CompileLog(), 0)
        getattr(sys.modules.get("torch._dynamo.utils"), "set_compilation_metrics_limit", lambda _: None)(HELD)

    def look(self, log: CompileLog, call: int) -> None:
        """Add to ``log`` what was compiled since the last look, as of the call with this number."""
        utils: Any = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return
        if getattr(utils, "counters", {}).get("frames"):
            log.unjudged += [what for name, what in REGISTERS.items() if not hasattr(utils, name)]
        records = getattr(utils, "get_compilation_metrics", list)()
        seen = next((count for count in range(len(records), 0, -1) if records[count - 1] is self._last), 0)
        log.unjudged += [LOST] if self._last is not None and not seen else []
        log.compiled += [(call, record) for record in records[seen:]]
        self._last = records[-1] if records else None
        broken = getattr(utils, "graph_break_reasons", [])
        log.broken += broken[self._breaks if self._breaks <= len(broken) else 0 :]  # torch._dynamo.reset empties it
        self._breaks = len(broken)


def summarize_compilation(log: CompileLog, warmup_ms: Sequence[float]) -> Compilation | None:
    """Return what was compiled in the calls of ``log``; None if nothing was.

    Args:
        warmup_ms: times of the calls before the measured ones. Recompilations in later calls are late.
    """
    if not (log.compiled or log.broken or log.unjudged):
        return None
    warmup, records = max(1, len(warmup_ms)), [record for _, record in log.compiled]
    within_s = sum(sum(_seconds(record)) for call, record in log.compiled if 0 <= call < warmup)
    return Compilation(
        graphs=sum(
            bool(_record_field(each, "graph_op_count"))
            or (_record_field(each, "is_forward") is False and not _record_field(each, "is_runtime"))
            for each in records
        ),
        compile_s=round(sum(_seconds(record)[0] for record in records), 3) if records else None,
        capture_s=round(sum(_seconds(record)[1] for record in records), 3),
        warmup_s=round(max(0.0, sum(warmup_ms) / 1e3 - within_s), 3),
        places=_group_places([*_breaks(log.broken), *_compiled_places(log.compiled, warmup)]),
        unjudged="; ".join(dict.fromkeys(log.unjudged)),
    )


def _record_field(record: Any, name: str) -> Any:
    return getattr(record, name, None)  # other versions of torch have other fields


def _seconds(record: Any) -> tuple[float, float]:
    """Return the seconds of compiling, autotuning while it runs included, and of capturing a CUDA graph."""
    us = _record_field(
        record, "runtime_triton_autotune_time_us" if _record_field(record, "is_runtime") else "duration_us"
    )
    compile_s = (us or 0) / 1e6 or _record_field(record, "entire_frame_compile_time_s") or 0.0
    return compile_s, (_record_field(record, "runtime_cudagraphify_time_us") or 0) / 1e6


def _breaks(broken: Iterable[Any]) -> Iterator[CompiledPlace]:
    for each in broken:
        # The innermost frame that is not torch's own stand-in for a function of Python.
        own = [frame for frame in each.user_stack if f"{os.sep}torch{os.sep}" not in frame.filename]
        at = [(frame.filename, frame.lineno, frame.name) for frame in own or each.user_stack]
        yield _place("graph break", at[-1] if at else ("", 0, ""), _reason(each.reason))


def _compiled_places(records: Iterable[tuple[int, Any]], warmup: int) -> Iterator[CompiledPlace]:
    codes: dict[str, Any] = {}  # number of a function → its place, which a record that hit the limit does not have
    for call, record in records:
        number = str(_record_field(record, "compile_id")).partition("/")[0]
        if _record_field(record, "co_filename"):
            codes[number] = tuple(_record_field(record, name) for name in ("co_filename", "co_firstlineno", "co_name"))
        at = codes.get(number, ("", 0, ""))
        failed, guard = _record_field(record, "fail_type"), _record_field(record, "recompile_reason")
        hit = _LIMIT.search(str(_record_field(record, "fail_reason")))
        limit = f"{hit[0]}={_record_field(sys.modules.get('torch._dynamo.config'), hit[0])}" if hit else ""
        if guard or limit:
            again = _place("recompiled", at, re.sub(r"^\d+/\d+: |\s*# .*", "", _reason(guard)))
            again.late, again.limit = int(call >= warmup), limit
            yield again
        if failed and not limit:
            file, line = (_record_field(record, f"fail_user_frame_{name}") for name in ("filename", "lineno"))
            reason = _reason(_record_field(record, "fail_reason") or failed)
            yield _place("not compiled", (file, line, at[2]) if file else at, reason)
        if skipped := _record_field(record, "cudagraph_skip_reason"):
            yield _place("no CUDA graph", at, " ".join(skipped.split()).removeprefix("skipping cudagraphs due to "))


def _group_places(places: Iterable[CompiledPlace]) -> list[CompiledPlace]:
    groups: dict[object, CompiledPlace] = {}
    for each in places:
        reasons = () if each.what == "recompiled" else tuple(each.reasons)
        first = groups.setdefault((each.what, each.where, each.function, reasons), each)
        if first is not each:
            first.times, first.late = first.times + 1, first.late + each.late
            first.reasons = list(dict.fromkeys([*first.reasons, *each.reasons]))[:MOST_REASONS]
            first.limit = first.limit or each.limit
    return sorted(groups.values(), key=lambda each: -each.times)[:MOST]


def _reason(text: str | None) -> str:
    lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
    explained = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    line = (explained or lines or [""])[0]
    return BRANCH if line.startswith("generic_jump") else line


def _place(what: What, at: tuple[str, int, str], reason: str) -> CompiledPlace:
    file, line, function = at
    name = re.sub(r"torch_dynamo_resume_in_(.+)_at_(\d+)", r"\1 from line \2", function or "")
    reason = re.sub(r'File "([^"]+)", line (\d+)', lambda named: place(named[1], int(named[2])), reason)[:LONGEST]
    where = place(file, line or 0) if file else "a line that torch does not name"
    return CompiledPlace(what=what, where=where, function=name, reasons=[reason] if reason else [])
