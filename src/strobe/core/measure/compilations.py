"""What torch.compile did during calls, from the registers that torch fills by itself whenever it compiles.

They are ``torch._dynamo.utils.get_compilation_metrics`` (a record of each compilation) and ``graph_break_reasons``. To
read them costs a microsecond a call. The structured trace of ``torch._logging`` has more, but makes torch write each
graph as text; ``torch._dynamo.explain`` compiles everything a second time; ``counters`` and ``compile_times`` name no
place. Nothing is imported here: where ``torch._dynamo`` is not loaded, nothing was compiled.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from strobe.core.results.compilation import CodePlace, Compilation, GraphBreak, Recompilation, SkippedGraph

P = TypeVar("P", GraphBreak, Recompilation, SkippedGraph)

HELD = 512  # compilations that torch is to remember between two looks; by itself it remembers 64
MOST = 20  # places of one kind in a result
MOST_GUARDS = 5
LONGEST = 240  # characters of a reason
NO_RECORDS = "compile time, graphs, recompilations and skipped CUDA graphs: this torch has no get_compilation_metrics"
NO_BREAKS = "places of graph breaks: this torch has no graph_break_reasons"
LOST = f"more than {HELD} compilations in one call: the first of them are missing"

_REASONS = {"generic_jump": "Data-dependent branching: an `if` or a loop over the value of a tensor"}
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
_LIMIT = re.compile(r"(?:accumulated_)?(?:recompile|cache_size)_limit")
_IN_FILE = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass
class CompileLog:
    """Torch's records of compilations and graph breaks in the calls of one thing.

    Args:
        compiled: with the number of the call; −1 comes before the first of a measurement.
        before_s: seconds of the calls before a measurement.
    """

    compiled: list[tuple[int, Any]] = field(default_factory=list)
    broken: list[Any] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    before_s: float = 0.0

    def begin(self, earlier: CompileLog | None) -> None:
        """Have all that it holds, and what ``earlier`` holds, lie before the measurement that begins."""
        compiled = self.compiled + (earlier.compiled if earlier is not None else [])
        self.compiled = [(-1, record) for _, record in compiled]
        if earlier is not None:
            self.broken += earlier.broken
            self.unjudged += earlier.unjudged
            self.before_s += earlier.before_s


class CompileWatch:
    """Reads what torch has compiled since the last look."""

    def __init__(self) -> None:
        self._utils: Any = None
        self._last: object = None
        self._breaks = 0
        self.look(CompileLog(), 0)  # what was compiled before is not of the calls to come

    def look(self, log: CompileLog, call: int) -> None:
        """Add to ``log`` what was compiled since the last look, as of the call with this number."""
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return
        if self._utils is None:
            self._utils = utils
            getattr(utils, "set_compilation_metrics_limit", lambda _: None)(HELD)
        fresh = self._fresh(log)
        reasons = getattr(utils, "graph_break_reasons", None)
        log.compiled += [(call, record) for record in fresh]
        if reasons is not None:
            begun = self._breaks if self._breaks <= len(reasons) else 0  # torch._dynamo.reset empties it
            log.broken += reasons[begun:]
            self._breaks = len(reasons)
        elif fresh:
            log.unjudged.append(NO_BREAKS)

    def _fresh(self, log: CompileLog) -> list[Any]:
        get = getattr(self._utils, "get_compilation_metrics", None)
        if get is None:
            counted = getattr(self._utils, "counters", {}).get("frames", {}).get("total", 0)
            if counted != (self._last or 0):
                self._last = counted
                log.unjudged.append(NO_RECORDS)
            return []
        records = get()
        places = [place for place, record in enumerate(records) if record is self._last]
        if not places and self._last is not None and len(records) >= HELD:
            log.unjudged.append(LOST)
        self._last = records[-1] if records else None
        return records[places[-1] + 1 if places else 0 :]


def compilation_of(log: CompileLog, warmup: int, warmup_s: float) -> Compilation | None:
    """Return what was compiled in the calls of ``log``; None if nothing was.

    Args:
        warmup: number of calls before the measured ones. Recompilations in later calls are late.
        warmup_s: seconds of those calls, and of building before them.
    """
    unjudged = "; ".join(dict.fromkeys(log.unjudged))
    if not (log.compiled or log.broken or unjudged):
        return None
    seconds, early_s, captured_s = list[float](), 0.0, 0.0
    for call, record in log.compiled:
        took, captured = _seconds(record), (_of(record, "runtime_cudagraphify_time_us") or 0) / 1e6
        seconds += [] if took is None else [took]
        captured_s += captured
        early_s += (took or 0) + captured if call < max(1, warmup) else 0.0
    return Compilation(
        graphs=sum(_is_graph(record) for _, record in log.compiled),
        compile_s=round(sum(seconds), 3) if seconds else None,
        capture_s=round(captured_s, 3),
        warmup_s=round(max(0.0, log.before_s + warmup_s - early_s), 3),
        breaks=_grouped(_breaks(log)),
        recompiled=_grouped(_recompiled(log, max(1, warmup))),
        skipped=_grouped(_skipped(log)),
        unjudged=unjudged,
    )


def _of(record: Any, name: str) -> Any:
    return getattr(record, name, None)


def _is_graph(record: Any) -> bool:
    """Whether it compiled a graph: of a forward pass with operators in it, or of a backward pass."""
    if _of(record, "is_runtime") or _of(record, "fail_type"):
        return False
    return _of(record, "is_forward") is False or bool(_of(record, "graph_op_count"))


def _seconds(record: Any) -> float | None:
    """Return the seconds of one compilation, autotuning while it runs included; None if torch does not say."""
    if _of(record, "is_runtime"):
        return (_of(record, "runtime_triton_autotune_time_us") or 0) / 1e6
    took = _of(record, "duration_us")
    return took / 1e6 if took is not None else _of(record, "entire_frame_compile_time_s")


def _breaks(log: CompileLog) -> Iterator[GraphBreak]:
    for broken in log.broken:
        # The innermost frame that is not torch's own stand-in for a function of Python.
        frames = [frame for frame in broken.user_stack if not _of_torch(frame.filename)] or broken.user_stack
        at = _place(frames[-1].filename, frames[-1].lineno, frames[-1].name) if frames else CodePlace(file="")
        yield GraphBreak(**at.model_dump(), reason=_reason(broken.reason), times=1)
    for _, record in log.compiled:
        if _of(record, "fail_type") and not _limit(record):
            file, line = _of(record, "fail_user_frame_filename"), _of(record, "fail_user_frame_lineno")
            at = _place(file, line, _of(record, "co_name")) if file else _code(record)
            reason = _reason(_of(record, "fail_reason") or _of(record, "fail_type"))
            yield GraphBreak(**at.model_dump(), reason=reason, times=1, whole=True)


def _recompiled(log: CompileLog, warmup: int) -> Iterator[Recompilation]:
    frames: dict[str, CodePlace] = {}  # number of a function → its place, which one that hit the limit does not have
    for call, record in log.compiled:
        frame = str(_of(record, "compile_id")).partition("/")[0]
        if _of(record, "co_filename"):
            frames[frame] = _code(record)
        guard, limit = _of(record, "recompile_reason"), _limit(record)
        if guard or limit:
            failed = re.sub(r"^\d+/\d+: ", "", str(guard)).splitlines()[0].strip() if guard else ""
            guards = [failed[:LONGEST]] if failed else []
            late = int(call >= warmup)
            at = frames.get(frame, _code(record))
            yield Recompilation(**at.model_dump(), times=1, late=late, guards=guards, limit=limit)


def _skipped(log: CompileLog) -> Iterator[SkippedGraph]:
    for _, record in log.compiled:
        if reason := _of(record, "cudagraph_skip_reason"):
            named = _IN_FILE.findall(reason)
            at = _place(named[-1][0], int(named[-1][1]), "") if named else _code(record)
            text = _reason(reason).removeprefix("skipping cudagraphs due to ")
            yield SkippedGraph(**at.model_dump(), reason=text, times=1)


def _limit(record: Any) -> str:
    """Return the limit of recompilations that a compilation hit, with its value; '' for none."""
    why = f"{_of(record, 'fail_type')} {_of(record, 'fail_reason')}"
    if "ecompile" not in why or not (named := _LIMIT.search(why)):
        return ""
    return f"{named[0]}={getattr(sys.modules.get('torch._dynamo.config'), named[0], 'unknown')}"


def _grouped(found: Iterator[P]) -> list[P]:
    """Return one of each place and reason, with all its times, the most frequent first."""
    groups: dict[tuple[object, ...], Any] = {}
    for each in found:
        key = (each.file, each.line, each.function, _of(each, "reason"), _of(each, "whole"))
        first = groups.setdefault(key, each)
        if first is not each:
            first.times += each.times
            if isinstance(each, Recompilation):
                first.late += each.late
                first.guards = list(dict.fromkeys([*first.guards, *each.guards]))[:MOST_GUARDS]
                first.limit = first.limit or each.limit
    return sorted(groups.values(), key=lambda each: -each.times)[:MOST]


def _reason(text: str) -> str:
    """Return a reason in one line: torch's explanation where it gives one, else its first line."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    explained = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    line = (explained or lines or [""])[0]
    return next((words for start, words in _REASONS.items() if line.startswith(start)), line)[:LONGEST]


def _code(record: Any) -> CodePlace:
    return _place(_of(record, "co_filename"), _of(record, "co_firstlineno"), _of(record, "co_name"))


def _place(file: str | None, line: int | None, function: str | None) -> CodePlace:
    """Return a place; the rest of a function after a break is named by the function and its line."""
    resumed = _RESUMED.fullmatch(function or "")
    name = f"{resumed[1]} from line {resumed[2]}" if resumed else function or ""
    return CodePlace(file=_below(file) if file else "", line=line or 0, function=name)


def _below(file: str) -> str:
    """Return the path of ``file`` below the longest folder that Python imports from, as it is the same anywhere."""
    roots = [os.path.join(os.path.abspath(root), "") for root in sys.path]
    return file[max((len(root) for root in roots if file.startswith(root)), default=0) :]


@cache
def _torch_folder() -> str:
    return os.path.join(os.path.dirname(str(sys.modules["torch"].__file__)), "")


def _of_torch(file: str) -> bool:
    return file.startswith(_torch_folder())
