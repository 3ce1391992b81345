"""More iterations under a profiler of Python: cProfile, pyinstrument or line_profiler, in their own formats."""

from __future__ import annotations

import cProfile
import functools
import importlib
import importlib.util
import inspect
import io
import linecache
import marshal
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, get_args

from strobe.core.errors import UserError, install
from strobe.core.results.units import place
from strobe.traces.results import OperatorProfile, PythonFunction, PythonProfile

if TYPE_CHECKING:
    from strobe.core.studies.shared.measuring import Options
    from strobe.core.subjects.subject import Phase, Subject
    from strobe.core.treatments.treatment import Variant

Tool = Literal["cprofile", "pyinstrument", "line"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
PACKAGES = {"pyinstrument": "pyinstrument", "line": "line_profiler"}

LEAST = 3  # iterations
SECONDS = 2.0  # time of profiling, if that takes more of them
SHOWN = 20  # functions with the most own time; of the others, the ten that took longest with what they called
ALSO_SHOWN = 10

Files = dict[str, bytes]


def require_tool(tool: str) -> None:
    """Raise UserError where ``tool`` is not installed."""
    package = PACKAGES.get(tool)
    if package is not None and importlib.util.find_spec(package) is None:
        raise UserError(f"{package} is not installed: {install('profile')}")


def timed_functions(subject: Subject, names: Sequence[str] = ()) -> list[FunctionType]:
    """Return the functions whose lines are timed.

    Args:
        names: 'module:function', 'module:Class.method' or 'module:Class'. Without any, the methods of the subject's own
            class and of every class of its package that it is made of.

    Raises:
        UserError: a name that leads to no function in Python.
    """
    if names:
        return [function for name in names for function in _find_functions(name)]
    own = type(subject.module)
    package = own.__module__.rpartition(".")[0] or own.__module__
    kinds = dict.fromkeys([own, *(type(module) for module in subject.module.modules())])
    inside = [kind for kind in kinds if kind is own or kind.__module__.startswith(f"{package}.")]
    return [function for kind in inside for function in _methods(kind)]


def python_profile(
    subject: Subject,
    phase: Phase,
    variant: Variant,
    watched: OperatorProfile,
    tool: Tool,
    functions: Sequence[FunctionType],
    options: Options,
) -> tuple[PythonProfile, Files]:
    """Run ``variant`` some more times, warm and without probes, under ``tool``; 'line' times lines of ``functions``.

    How long no operator ran is what a profiler of Python cannot tell, since it counts `a + b` of two tensors as
    Python's: that is ``watched``, the same under torch.profiler.
    """
    with ExitStack() as stack:
        stack.callback(variant.apply(subject))
        call = subject.call(phase, options.batch_size)
        call(0)
        repeated = _Repeated(call)
        rows, files = _lines(functions, repeated) if tool == "line" else profile_run(repeated, tool)
    each_ms = repeated.seconds * 1e3 / repeated.done
    profile = profile_per_iteration(rows, tool, watched.measurement, repeated.done, each_ms, list(files))
    profile.host, profile.device = watched.host, watched.device
    return profile, files


def profile_run(run: Callable[[], None], tool: Tool) -> tuple[list[PythonFunction], Files]:
    """Call ``run`` once under cProfile or pyinstrument. Return every function's times over the whole, and files."""
    return {"cprofile": _cprofile, "pyinstrument": _pyinstrument}[tool](run)


def profile_per_iteration(
    rows: Sequence[PythonFunction], tool: Tool, measurement: str, iterations: int, iteration_ms: float, files: list[str]
) -> PythonProfile:
    """Return a profile of ``iterations`` from the rows of `profiled`: per iteration, the foremost functions only."""
    ours = place(__file__, 0).rpartition(":")[0]
    each = [_divide_by_iterations(row, iterations) for row in rows if not row.where.startswith(f"{ours}:")]
    return PythonProfile(
        tool=tool,
        measurement=measurement,
        iterations=iterations,
        iteration_ms=iteration_ms,
        files=files,
        functions=_foremost(each),
    )


def mixed_threads(tool: str) -> list[str]:
    """Return a note where other threads of Python run, whose times cProfile takes for those of the program.

    From Python 3.12 on its events are those of all threads, on one stack.
    """
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if tool != "cprofile" or not others or sys.version_info < (3, 12):
        return []
    return [
        f"cProfile's times are not judged: it mixed in those of other threads of Python ({', '.join(others)}); "
        "--python_profile=pyinstrument looks at one thread"
    ]


class _Repeated:
    """A call that repeats until there is enough to look at."""

    def __init__(self, call: Callable[[int], object]) -> None:
        self.call, self.done, self.seconds = call, 0, 0.0

    def __call__(self) -> None:
        start = time.perf_counter()
        while self.done < LEAST or time.perf_counter() - start < SECONDS:
            self.call(self.done)
            self.done += 1
        self.seconds = time.perf_counter() - start


def _cprofile(run: Callable[[], None]) -> tuple[list[PythonFunction], Files]:
    profiler = cProfile.Profile()
    profiler.runcall(run)
    profiler.create_stats()
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = profiler.stats  # type: ignore[attr-defined]
    rows = [
        PythonFunction(
            name=_function(name), where=place(file, line), calls=calls, own_ms=own * 1e3, cumulative_ms=whole * 1e3
        )
        for (file, line, name), (_, calls, own, whole, _) in stats.items()
    ]
    return rows, {"profile.prof": marshal.dumps(stats)}  # what Profile.dump_stats writes


def _pyinstrument(run: Callable[[], None]) -> tuple[list[PythonFunction], Files]:
    from pyinstrument import Profiler

    profiler = Profiler(interval=0.001, async_mode="disabled")
    with profiler:
        run()
    session, own, whole = profiler.last_session, {}, {}

    def walk(frame: Any, above: frozenset[tuple[object, ...]]) -> None:
        key = (frame.file_path or "~", frame.line_no or 0, frame.function)
        if not frame.is_synthetic:
            own[key] = own.get(key, 0.0) + frame.total_self_time
            if key not in above:  # a function that calls itself took its time once
                whole[key] = whole.get(key, 0.0) + frame.time
        for child in frame.children:
            walk(child, above | {key})

    root = session.root_frame() if session is not None else None
    if root is not None:
        walk(root, frozenset())
    rows = [
        PythonFunction(
            name=_function(name),
            where=place(file, line),
            own_ms=took * 1e3,
            cumulative_ms=whole[file, line, name] * 1e3,
        )
        for (file, line, name), took in own.items()
    ]
    text = profiler.output_text(unicode=True, show_all=True)
    return rows, {"profile.html": profiler.output_html().encode(), "profile.txt": text.encode()}


def _lines(functions: Sequence[FunctionType], repeated: _Repeated) -> tuple[list[PythonFunction], Files]:
    from line_profiler import LineProfiler

    profiler = LineProfiler(*functions)
    profiler.enable_by_count()
    try:
        repeated()
    finally:
        profiler.disable_by_count()
    stats = profiler.get_stats()
    text = io.StringIO()
    stats.print(text, output_unit=1e-3, stripzeros=True)
    rows = [
        PythonFunction(
            name=name,
            where=place(file, line),
            calls=hits,
            cumulative_ms=took * stats.unit * 1e3,
            source=linecache.getline(file, line).strip(),
        )
        for (file, _, name), lines in stats.timings.items()
        for line, hits, took in lines
    ]
    return rows, {"profile.txt": text.getvalue().encode()}


def _divide_by_iterations(row: PythonFunction, iterations: int) -> PythonFunction:
    figures = {name: getattr(row, name) for name in ("calls", "own_ms", "cumulative_ms")}
    return row.model_copy(update={k: None if v is None else v / iterations for k, v in figures.items()})


def _foremost(rows: Sequence[PythonFunction]) -> list[PythonFunction]:
    own = sorted((row for row in rows if row.own_ms is not None), key=lambda row: -(row.own_ms or 0.0))[:SHOWN]
    taken = {id(row) for row in own}
    others = sorted((row for row in rows if id(row) not in taken), key=lambda row: -(row.cumulative_ms or 0.0))
    return own + others[: ALSO_SHOWN if own else SHOWN]


def _function(name: str) -> str:
    name = re.sub(r" at 0x[0-9a-fA-F]+", "", name)
    if method := re.fullmatch(r"<method '(.+)' of '(.+)' objects>", name):
        return f"{method[2]}.{method[1]}"
    if built_in := re.fullmatch(r"<built-in method (.+)>", name):
        return built_in[1]
    return name


def _find_functions(name: str) -> list[FunctionType]:
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise UserError(f"--profile_functions: '{name}': write module:function or module:Class.method")
    try:
        member = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise UserError(f"--profile_functions: '{name}': {error}") from None
    functions = _methods(member) if isinstance(member, type) else _plain(member)
    if not functions:
        raise UserError(f"--profile_functions: '{name}' is no function written in Python")
    return functions


def _methods(kind: type) -> list[FunctionType]:
    return [function for value in vars(kind).values() for function in _plain(value)]


def _plain(value: Any) -> list[FunctionType]:
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    try:
        value = inspect.unwrap(value)
    except ValueError:  # a wrapper around itself
        return []
    return [value] if isinstance(value, FunctionType) else []
