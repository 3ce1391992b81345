"""What torch.compile did: planted breaks, recompilations and skipped CUDA graphs are named with file and line.

Everything is compiled by torch's own front end and runs as traced (``backend="eager"``): making kernels takes long, and
nothing here depends on them.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import strobe
from strobe.core.kinds import document
from strobe.core.measure.compilations import CompileLog, CompileWatch, summarize_compilation
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.report import markdown
from strobe.core.studies.shared.measuring import Options, measure
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import make_target
from strobe.core.treatments.treatment import Variant

HERE = Path(__file__).name
X = torch.ones(3, 4)


def line(mark: str) -> str:
    """Where the line with this mark is, as reports write it."""
    lines = Path(__file__).read_text().splitlines()
    return f"{HERE}:{next(number for number, text in enumerate(lines, 1) if text.endswith(f'# {mark}'))}"


@pytest.fixture(autouse=True)
def _clean_compiler() -> Any:
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(4, 4), 0
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # the layer
        return self.layer(x)


class Branching(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        if x.sum() > 0:  # the branch
            x = x * 2
        return x + 1


class Reading(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.layer(x).sum().item()  # the item
        return x * scale


class InALoop(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = self.layer(x)
            x = x + x.sum().item()  # the loop
        return x


class Scaled(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # the scale
        return self.layer(x) * self.factor


def eager(module: nn.Module, **options: Any) -> Any:
    return torch.compile(module, **{"backend": "eager", "dynamic": False, **options})


def broken_down(target: Any, inputs: Any = X) -> Any:
    with torch.no_grad():
        return strobe.breakdown(target, inputs, seconds=0.2, count=False).result


@pytest.mark.parametrize(
    ("kind", "mark", "why", "graphs"),
    [
        (Branching, "the branch", "branching", 2),
        (Reading, "the item", "Tensor.item()", 2),
        (InALoop, "the loop", "", 0),
    ],
)
def test_a_break_is_named_with_line_and_reason(kind: type[Net], mark: str, why: str, graphs: int) -> None:
    result = broken_down(eager(kind()))
    seen = result.measurements[0].compilation
    (place,) = seen.places
    assert place.where == line(mark)
    assert place.what == ("graph break" if graphs else "not compiled")
    assert why in place.reasons[0]
    assert seen.graphs == graphs
    assert seen.compile_s > 0
    (found,) = [finding for finding in result.findings if finding.rule == "graph-breaks"]
    assert line(mark) in found.found
    page = markdown.render(document(result))
    assert line(mark) in page
    assert "Compile s" in page


def test_five_lengths_are_four_recompilations_with_the_guard_of_each() -> None:
    result = broken_down(eager(Net()), [torch.ones(length, 4) for length in (2, 3, 5, 7, 9)])
    seen = result.measurements[0].compilation
    (again,) = seen.places
    assert (again.what, again.times, again.late, again.limit) == ("recompiled", 4, 0, "")
    assert len(again.reasons) == 4
    assert all("size mismatch" in guard for guard in again.reasons)
    assert again.where == line("the layer")
    assert seen.graphs == 5
    assert "recompiles" not in {finding.rule for finding in result.findings}  # each shape once, and before the samples


@torch._dynamo.config.patch(recompile_limit=3)
def test_a_limit_that_is_reached_is_named() -> None:
    result = broken_down(eager(Net()), [torch.ones(length, 4) for length in (2, 3, 5, 7, 9)])
    (again,) = result.measurements[0].compilation.places
    assert (again.what, again.limit, again.where) == ("recompiled", "recompile_limit=3", line("the layer"))
    (found,) = [finding for finding in result.findings if finding.rule == "recompiles"]
    assert "recompile_limit=3" in found.title


@torch._dynamo.config.patch(recompile_limit=64)
def test_recompilations_after_the_warm_up_are_told_from_those_before() -> None:
    module = Scaled()
    step, calls = eager(module), itertools.count()

    def call(x: torch.Tensor) -> torch.Tensor:
        module.factor = next(calls) // 8  # the compiled code holds for one value of it
        return step(x)

    subject = CallableSubject([make_target("it", call)], [X])
    (seen,) = measure(
        subject, "inference", [Variant("it")], Options(SamplingBudget(iterations=60), counted=False)
    ).measurements
    assert seen.compilation is not None
    (again,) = seen.compilation.places
    warmup, measured = len(seen.samples.warmup), len(seen.samples.values)
    assert again.times == (warmup + measured - 1) // 8
    assert again.late == again.times - (warmup - 1) // 8
    assert again.reasons[0] == "self.factor == 0"
    assert again.where == line("the scale")


def test_a_cuda_graph_that_was_skipped_has_its_reason() -> None:
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter as skip

    def backend(graph: Any, _: Any) -> Any:
        skip('skipping cudagraphs due to mutated inputs. Found from : \n   File "/somewhere/net.py", line 7')
        return graph

    result = broken_down(eager(Net(), backend=backend))
    (skipped,) = result.measurements[0].compilation.places
    assert (skipped.what, skipped.where, skipped.times) == ("no CUDA graph", line("the layer"), 1)
    assert skipped.reasons == ["mutated inputs. Found from : net.py:7"]
    assert "cuda-graph-skipped" in {finding.rule for finding in result.findings}


def test_each_variant_has_its_own() -> None:
    with torch.no_grad():
        variants = {"baseline": Net(), "reading": eager(Reading()), "branching": eager(Branching())}
        plain, reading, branching = strobe.compare(variants, X, seconds=0.2).result.measurements
    assert plain.compilation is None
    assert reading.compilation.breaks == [line("the item")]
    assert branching.compilation.breaks == [line("the branch")]


def test_what_was_compiled_before_is_not_counted_and_a_reset_loses_nothing() -> None:
    step = eager(Branching())
    with torch.no_grad():
        step(X)
    assert broken_down(step).measurements[0].compilation is None
    watch, log = CompileWatch(), CompileLog()
    eager(Reading())(X)
    watch.look(log, 0)
    torch._dynamo.reset()
    eager(Branching())(X)
    watch.look(log, 1)
    seen = summarize_compilation(log, [1.0])
    assert seen is not None
    assert sorted(seen.breaks) == sorted(map(line, ("the item", "the branch")))


def test_more_compilations_than_torch_remembers_by_itself_are_all_there() -> None:
    watch, log = CompileWatch(), CompileLog()
    for _ in range(70):
        torch.compile(lambda x: x + 1, backend="eager")(X)
        torch._dynamo.reset()
    watch.look(log, 0)
    seen = summarize_compilation(log, [1.0])
    assert seen is not None
    assert seen.graphs == 70


@pytest.mark.parametrize(
    ("gone", "said"), [("get_compilation_metrics", "compile time"), ("graph_break_reasons", "graph breaks")]
)
def test_what_another_torch_leaves_out_is_not_judged(monkeypatch: pytest.MonkeyPatch, gone: str, said: str) -> None:
    monkeypatch.delattr(torch._dynamo.utils, gone)
    result = broken_down(eager(Branching()))
    seen = result.measurements[0].compilation
    assert said in seen.unjudged
    assert (seen.compile_s is None) == (said == "compile time")
    assert f"not judged: {seen.unjudged}" in markdown.render(document(result))


def test_looking_loads_nothing() -> None:
    code = (
        "import sys, torch\n"
        "from strobe.core.measure.compilations import CompileLog, CompileWatch, summarize_compilation\n"
        "log = CompileLog()\n"
        "CompileWatch().look(log, 0)\n"
        "assert summarize_compilation(log, []) is None\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
