"""The command line as a user meets it: runs that end in a report, and wrong input that ends in one line."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path

import pytest
from support.checks.refusals import assert_refused
from support.checks.run_contents import load_stored
from support.suite import warm
from support.suite.matrix import matrix
from support.suite.places import find_only_run

from strobe.core.cli.main import main
from strobe.core.results.answer import CompareResult
from strobe.core.runs import store
from strobe.treatments.graphs import graph

TINY = ["--policy.size=tiny", "--iterations=6", "--seconds=20"]


def run(*argv: str) -> int:
    return main(list(argv))


@pytest.fixture(scope="module")
def pusht(tmp_path_factory) -> Path:
    pytest.importorskip("gym_pusht")
    root = tmp_path_factory.mktemp("data") / "pusht"
    assert run("record", f"--root={root}", "--episodes=2", "--frames=24", "--image=96") == 0
    return root


@pytest.mark.slow("every phase from a recorded video", each_change=True)
def test_breakdown_of_every_phase_on_a_recorded_dataset(pusht, tmp_path, capsys):
    phases = "[inference, training forward, training step]"
    code = run(
        "breakdown", "--policy.type=act", *TINY, f"--dataset.root={pusht}", f"--output_dir={tmp_path}",
        f"--phases={phases}", "--batch_size=2", "--operators",
    )  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0
    folder = find_only_run(tmp_path)
    result = store.load(folder)
    assert [m.name for m in result.measurements] == ["inference", "training forward", "training step"]
    assert all(len(m.samples.values) >= 6 and m.samples.warmup for m in result.measurements)
    for measurement in result.measurements:
        top = [c for c in measurement.components if c.depth == 1]
        for index, whole in enumerate(measurement.samples.values):
            assert sum(c.values[index] for c in top) == pytest.approx(whole, abs=1e-3)
        assert sum(c.share for c in top) == pytest.approx(1)
        assert any(c.other for c in top)
        assert next(c for c in measurement.components if c.name == "backbone").gflop > 0
        assert measurement.memory.peak_activations > 0
    assert "pusht" in result.subject.inputs
    assert "backbone" in out
    assert "other" in out
    assert "report.html" in out
    assert (folder / "report.html").read_text().startswith("<!doctype html>") or "<html" in (
        folder / "report.html"
    ).read_text()[:500]
    with gzip.open(folder / "trace.json.gz") as file:
        names = {event.get("name") for event in json.load(file)["traceEvents"]}
    assert {"iteration", "backbone", "aten::conv2d"} <= names


@pytest.mark.slow("Real-Time Chunking from flags to report", each_change=True)
@pytest.mark.parametrize("policy_type", matrix(["pi05", "smolvla"]))
def test_compare_rtc_on_a_flow_policy(policy_type, tmp_path, capsys):
    code = run(
        "compare", f"--policy.type={policy_type}", *TINY, "--rtc.execution_horizon=8", f"--output_dir={tmp_path}"
    )
    out = capsys.readouterr().out
    assert code == 0
    result = load_stored(CompareResult, find_only_run(tmp_path))
    assert [m.name for m in result.measurements] == ["without RTC", "with RTC"]
    (comparison,) = result.comparisons
    assert comparison.verdict.pairs == len(result.measurements[0].samples.values)
    assert comparison.agreement.cosine < 1
    guided = result.measurement("with RTC")
    assert guided.traits.rtc.execution_horizon == 8
    assert {"RTC step", "autograd correction", "prefix weights"} <= {c.name for c in guided.components}
    assert "RTC step" not in {c.name for c in result.measurement("without RTC").components}
    for words in ("without RTC", "with RTC", "p95", "chunks/s", comparison.verdict.sentence.split(" ")[-1]):
        assert words in out


@pytest.mark.slow("a comparison from flags to report")
def test_compare_other_settings_and_the_same_twice(tmp_path):
    code = run(
        "compare", "--policy.type=pi05", *TINY, f"--output_dir={tmp_path}",
        "--variant", "as before: policy.num_inference_steps=10",
        "--variant", "5 steps: policy.num_inference_steps=5",
    )  # fmt: skip
    assert code == 0
    result = load_stored(CompareResult, find_only_run(tmp_path))
    same, fewer = result.comparisons
    assert same.agreement.largest_error == 0
    assert fewer.agreement.largest_error > 0
    calls = {m.name: next(c.calls for c in m.components if c.name == "denoise step") for m in result.measurements}
    assert calls == {"baseline": 10, "as before": 10, "5 steps": 5}


WRONG = {
    "unknown command": (["brekdown"], "did you mean 'breakdown'"),
    "unknown size": (["breakdown", "--policy.type=act", "--policy.size=huge"], "'full' or 'tiny'"),
    "path and type": (["breakdown", "--policy.type=act", "--policy.path=x"], "exclude each other"),
    "device not there": (["breakdown", "--policy.type=act", "--device=xpu"], "xpu"),
    "no RTC": (["compare", "--policy.type=act", "--policy.size=tiny"], "no Real-Time Chunking"),
    "setting that is not live": (
        ["compare", "--policy.type=act", "--policy.size=tiny", "--variant", "wide: policy.dim_model=64"],
        "cannot be changed on a built policy",
    ),
    "missing run": (["report", "/no/such/run"], "/no/such/run"),
    "not a flag": (["breakdown", "act"], "not a flag"),
    "record without a place": (["record"], "--root=FOLDER"),
    "record of a task that PushT has not": (["record", "--root=x", "--task=reach-v3"], "--env=metaworld"),
    "train without lerobot-train's arguments": (["train", "--depth=2"], "come after --"),
    "train on a dataset that is not there": (
        ["train", "--", "--policy.type=act", "--dataset.repo_id=a/b", "--dataset.root=/no/d"],
        "no LeRobotDataset at /no/d",
    ),
    "doctor of a device that is not there": (["doctor", "--device=xpu"], "no xpu device"),
    "profiler that training has not": (["train", "--python_profile=line", "--", "--policy.type=act"], "cprofile"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_line_and_code_2(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv, words = WRONG[name]
    assert_refused(argv, words, capsys, tmp_path)


def test_a_warning_of_our_own_is_a_line_without_a_place_in_the_source():
    own = warnings.formatwarning("graph=chunk steps aside", UserWarning, graph.__file__, 127)
    assert own == "strobe: graph=chunk steps aside\n"
    assert "test_main.py:3" in warnings.formatwarning("another's", UserWarning, __file__, 3)


def test_a_dataset_that_does_not_fit_the_checkpoint_is_told_by_feature(pusht, tmp_path, capsys):
    from strobe.lerobot.policies.loading import load_subject
    from strobe.lerobot.policies.options import PolicyOptions

    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    subject.policy.save_pretrained(tmp_path / "checkpoint")
    subject.loaded.preprocessor.save_pretrained(tmp_path / "checkpoint")
    subject.loaded.postprocessor.save_pretrained(tmp_path / "checkpoint")
    assert run("breakdown", f"--policy.path={tmp_path / 'checkpoint'}", f"--dataset.root={pusht}") == 2
    assert "observation." in capsys.readouterr().err


# Ctrl-C after the twentieth round, in a process of its own: no other would do for a real signal.
INTERRUPTED = """
import os, signal, sys
from strobe.core.cli.main import main
from strobe.core.measure import sampling

def interrupt_at_twenty(pace, rounds, seconds, original=sampling._Pace.update_progress):
    if len(rounds) == 20:
        os.kill(os.getpid(), signal.SIGINT)
    return original(pace, rounds, seconds)

sampling._Pace.update_progress = interrupt_at_twenty
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow("Ctrl-C in a whole program", each_change=True)
def test_ctrl_c_keeps_what_was_measured(tmp_path):
    done = warm.run(
        "-c", INTERRUPTED, "breakdown", "--policy.type=act", "--policy.size=tiny",
        "--iterations=100000", "--seconds=300", "--threads=1", f"--output_dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    result = store.load(find_only_run(tmp_path))
    assert result.status == "interrupted"
    assert len(result.measurements[0].samples.values) > 3
    assert "interrupted" in done.stdout.lower()
    assert "Traceback" not in done.stderr
