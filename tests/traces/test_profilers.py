"""--operators and --python_profile from the command line: tables, findings' numbers, files that their viewers open."""

from __future__ import annotations

import gzip
import json
import pickle
import pstats
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.checks.presence import require_value
from support.checks.refusals import assert_refused

from strobe.core import kinds
from strobe.core.cli.main import main
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.report import markdown
from strobe.core.results.answer import Profiled
from strobe.core.runs import store
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments.treatment import Variant
from strobe.traces import operators, python_profile
from strobe.traces.python_profile import place, timed_functions
from strobe.traces.results import PythonProfile

TINY = ["--policy.size=tiny", "--iterations=6", "--skip_counting", "--threads=1"]
STEPS = ["--policy.num_inference_steps=4"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(python_profile, "SECONDS", 0.2)


def run(folder: Path, *argv: str, code: int = 0) -> tuple[Path, Profiled]:
    assert main([*argv, *TINY, f"--output_dir={folder}"]) == code
    (found,) = [path.parent for path in folder.rglob("result.json")]
    result = store.load(found)
    assert isinstance(result, Profiled)
    assert not [note for note in result.notes if "failed" in note]
    return found, result


def assert_no_local_paths(result: Profiled) -> None:
    assert result.python is not None
    for row in result.python.functions:
        assert row.where == "built in" or row.where[0] in "<" or not Path(row.where).is_absolute()
        assert " at 0x" not in row.name


@pytest.mark.slow("torch.profiler and cProfile over a whole breakdown", each_change=True)
def test_operators_and_cprofile_of_a_breakdown(tmp_path, capsys):
    argv = ["breakdown", "--policy.type=act", "--operators", "--full", "--python-profile=cprofile"]
    folder, result = run(tmp_path, *argv, "--phases=[training step, inference]", "--batch_size=2")
    out = capsys.readouterr().out

    seen = result.operators
    assert seen.measurement == "training step"
    assert seen.operator_calls > 1000
    assert any("convolution_backward" in row.name for row in seen.operators)
    assert seen.host.busy_ms + seen.host.idle_ms == pytest.approx(seen.host.span_ms)
    own = [row.own_ms for row in seen.operators]
    assert own == sorted(own, reverse=True)
    assert sum(row.share for row in seen.operators) <= 1
    document = json.loads((folder / "act_profile.json").read_text())
    assert {"aten::conv2d", "backbone"} & {e.get("name") for e in document["traceEvents"]}
    with gzip.open(folder / "trace.json.gz") as file:
        assert {"backbone", "aten::conv2d"} <= {event.get("name") for event in json.load(file)["traceEvents"]}

    python = result.python
    assert (python.tool, python.files) == ("cprofile", ["profile.prof"])
    assert python.iterations >= 3
    assert any(row.where.startswith("torch/") for row in python.functions)
    assert_no_local_paths(result)
    stats: Any = pstats.Stats(str(folder / "profile.prof"))
    assert any(file.endswith("modeling_act.py") for file, _, _ in stats.stats)

    for shown in (out.lower(), markdown.render(kinds.document(result)).lower(), kinds.page(result).lower()):
        for words in ("python functions", "gaps between operators", "aten::", "cumulative"):
            assert words in shown
    assert f"{folder / 'profile.prof'}  (open in python -m pstats, snakeviz)" in out
    assert "act_profile.json" in out


PER_ITERATION = """
import time
from strobe.traces.python_profile import profile_per_iteration, profile_run
def wait(): time.sleep(0.02)
def iterate():
    return [wait() for _ in range(6)]
start = time.perf_counter()
rows, _ = profile_run(iterate, "cprofile")
took = (time.perf_counter() - start) * 1e3
print(profile_per_iteration(rows, "cprofile", "inference", 3, took / 3, []).model_dump_json())
"""


def test_what_cprofile_says_of_an_iteration_adds_up_to_it():
    # in a process of its own: cProfile mixes in what the thread of pytest-xdist runs
    ran = subprocess.run([sys.executable, "-c", PER_ITERATION], capture_output=True, text=True, check=True)
    seen = PythonProfile.model_validate_json(ran.stdout)
    rows = {row.name: row for row in seen.functions}
    assert (rows["wait"].calls, rows["iterate"].cumulative_ms) == (2, pytest.approx(seen.iteration_ms, rel=0.1))
    assert sum(require_value(row.own_ms) for row in seen.functions) == pytest.approx(seen.iteration_ms, rel=0.1)
    assert rows["time.sleep"].own_ms == pytest.approx(rows["wait"].cumulative_ms, rel=0.1)


@pytest.mark.slow("torch.profiler with allocations over a whole breakdown")
def test_memory_over_time_is_in_the_trace_which_reads_as_one_without_it(tmp_path, capsys):
    folder, result = run(tmp_path, "breakdown", "--policy.type=act", "--memory")
    assert result.operators is not None
    with gzip.open(folder / "trace.json.gz") as file:
        points = [event["args"]["MiB"] for event in json.load(file)["traceEvents"] if event["ph"] == "C"]
    assert len(points) > 100
    assert max(points) > 0.1
    profiled = json.loads((folder / "act_profile.json").read_text())
    assert any(event.get("name") == "[memory]" for event in profiled["traceEvents"])
    capsys.readouterr()
    for name in ("act_profile.json", "trace.json.gz"):
        assert main(["report", str(folder / name), "--json"]) == 0
        (rank,) = json.loads(capsys.readouterr().out)["ranks"]
        assert rank["operators"]["operator_calls"] >= result.operators.operator_calls
        assert rank["left_out"] == {}


@pytest.mark.slow("line_profiler over a whole comparison")
def test_lines_of_a_comparison_and_functions_by_name(tmp_path):
    pytest.importorskip("line_profiler")
    module = "lerobot.policies.diffusion.modeling_diffusion"
    argv = ["compare", "--policy.type=diffusion", "--variant", "2 steps: policy.num_inference_steps=2", *STEPS]
    named = f"--profile-functions={module}:DiffusionModel.conditional_sample, {module}:DiffusionRgbEncoder"
    folder, result = run(tmp_path, *argv, "--python_profile=line", named)
    python = result.python
    assert (python.tool, python.measurement) == ("line", "baseline")
    seen = {row.name for row in python.functions}
    assert seen == {"DiffusionModel.conditional_sample", "DiffusionRgbEncoder.forward"}
    assert any(row.source.startswith("model_output = self.unet(") and row.calls > 3 for row in python.functions)
    assert all(row.own_ms is None for row in python.functions)
    assert_no_local_paths(result)
    assert "model_output = self.unet(" in (folder / "profile.txt").read_text()
    assert result.operators is None


@pytest.mark.slow("pyinstrument over a whole breakdown")
def test_pyinstrument_and_skip_detailed(tmp_path):
    pytest.importorskip("pyinstrument")
    argv = ["breakdown", "--policy.type=diffusion", "--operators", "--skip-detailed", *STEPS]
    folder, result = run(tmp_path, *argv, "--python_profile=pyinstrument")
    assert result.operators is None
    assert not list(folder.glob("*_profile.json"))
    assert result.python.files == ["profile.html", "profile.txt"]
    assert any("modeling_diffusion.py" in row.where for row in result.python.functions)
    assert_no_local_paths(result)
    assert sum(require_value(row.own_ms) for row in result.python.functions) <= result.python.iteration_ms * 1.1
    assert "<html" in (folder / "profile.html").read_text().lower()
    assert "conditional_sample" in (folder / "profile.txt").read_text()


def test_default_functions_are_those_of_the_policys_own_classes():
    class Inner(torch.nn.Module):
        @property
        def width(self) -> int:
            return 1

        @torch.no_grad()
        def forward(self, x):
            return x

    Inner.__module__ = f"{__name__}.other"
    subject: Any = SimpleNamespace(module=torch.nn.Sequential(Inner()))
    assert not [f for f in timed_functions(subject) if "Inner" in f.__qualname__]
    subject.module = Inner()
    assert [f.__name__ for f in timed_functions(subject)] == ["width", "forward"]
    assert all(f.__code__.co_filename == __file__ for f in timed_functions(subject))


def test_a_place_is_relative_to_what_was_imported():
    assert place(torch.__file__, 3) == "torch/__init__.py:3"
    assert place("~", 0) == "built in"
    assert place("/somewhere/else/script.py", 7) == "script.py:7"


def test_ctrl_c_and_a_failing_profiler_keep_what_was_measured(tmp_path, monkeypatch):
    def raise_interrupt(*_):
        raise KeyboardInterrupt

    def raise_profiler_error(*_):
        raise RuntimeError("another profiling tool is active")

    argv = ["breakdown", "--policy.type=act", "--python_profile=cprofile"]
    monkeypatch.setattr(python_profile, "python_profile", raise_interrupt)
    _, result = run(tmp_path / "a", *argv, "--operators", code=130)
    assert result.status == "interrupted"
    assert len(result.measurements[0].samples.values) >= 6
    assert result.operators is not None
    assert result.python is None
    monkeypatch.setattr(python_profile, "python_profile", raise_profiler_error)
    assert main([*argv, *TINY, f"--output_dir={tmp_path / 'b'}"]) == 0
    (found,) = (tmp_path / "b").rglob("result.json")
    assert any("another profiling tool" in note for note in store.load(found).notes)


ACT = ["breakdown", "--policy.type=act", "--policy.size=tiny"]
WRONG = {
    "functions without line": ([*ACT, "--profile_functions=a:b"], "--python_profile=line"),
    "malformed function": ([*ACT, "--python_profile=line", "--profile_functions=torch"], "module:function"),
    "no such function": ([*ACT, "--python_profile=line", "--profile_functions=torch:lineer"], "lineer"),
    "function in C": ([*ACT, "--python_profile=line", "--profile_functions=torch:mm"], "written in Python"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_line(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv, words = WRONG[name]
    if "line" in name or "function" in name:
        pytest.importorskip("line_profiler")
    assert_refused(argv, words, capsys, tmp_path)


def test_a_snapshot_records_one_iteration_and_stops(monkeypatch):
    said = []
    memory = torch.cuda.memory
    monkeypatch.setattr(memory, "_record_memory_history", lambda **flags: said.append(flags))
    monkeypatch.setattr(memory, "_snapshot", lambda: {"segments": [], "ran": said.count("ran")})
    subject: Any = SimpleNamespace(call=lambda phase, batch_size: lambda index: said.append("ran"))
    kept = pickle.loads(operators.memory_snapshot(subject, "inference", Variant("x"), Options(SamplingBudget())))
    assert kept == {"segments": [], "ran": 2}
    assert said == ["ran", {"max_entries": 200_000}, "ran", {"enabled": None}]


@pytest.mark.gpu
def test_kernels_gaps_and_a_snapshot_on_cuda(tmp_path):
    folder, result = run(
        tmp_path, "breakdown", "--policy.type=act", "--device=cuda", "--operators", "--memory-snapshot"
    )
    assert pickle.loads((folder / "memory_snapshot.pickle").read_bytes())["device_traces"]
    seen = result.operators
    if seen.device_not_judged:
        pytest.skip(seen.device_not_judged)
    assert seen.kernel_calls > 100
    assert seen.kernels[0].own_ms > 0
    assert 0 < seen.device.busy_ms < seen.device.span_ms
    assert seen.device.busy_ms + seen.device.idle_ms == pytest.approx(seen.device.span_ms)
    assert seen.device.causes
