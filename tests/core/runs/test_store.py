"""A result is kept whole and read again; every mistake of the user is one line that says what to do."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.checks.golden import golden
from support.examples import runs
from support.examples.any_result import results, sweeps
from support.examples.loader import starving_loader
from support.suite.example_count import scale_count
from support.suite.health import EVERY_CHECK

from strobe.core.errors import UserError
from strobe.core.results.answer import Result
from strobe.core.results.data import SCHEMA_VERSION
from strobe.core.runs import store
from strobe.history.diff_command import diff
from strobe.sweep.results import Sweep


@settings(max_examples=scale_count(60), deadline=None, suppress_health_check=EVERY_CHECK)
@given(kept=results | sweeps)
def test_any_result_and_any_sweep_survive_being_saved(kept: Result | Sweep, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("run")
    store.save(kept, folder)
    assert store.load_answer(folder) == kept
    assert store.load_answer(folder / "result.json") == kept


def test_an_unknown_study_is_named_as_such(result: Result, tmp_path: Path):
    document = json.loads(result.model_dump_json())
    for study in ("no study", None, ["breakdown"]):
        said = load_broken(tmp_path, json.dumps(document | {"study": study}))
        assert f"is of {study!r}, which this Strobe does not have: use the one that made it" in said


@pytest.mark.parametrize(
    ("make", "called"),
    [(lambda: golden("budget"), "budget"), (lambda: diff(runs.act(), runs.act(), judge=runs.judge), "diff"),
     (starving_loader, "search for a data loader"),
     (lambda: Sweep(strobe_version="0.2.0", of="breakdown", title="t", axes=[], cells=[]), "sweep")],
)  # fmt: skip
def test_what_is_no_run_is_kept_too_and_not_taken_for_one(make, called: str, tmp_path: Path):
    answer = make()
    store.save(answer, tmp_path)
    assert store.load_answer(tmp_path) == answer
    with pytest.raises(UserError, match=f"is a {called}: `strobe report` shows it"):
        store.load(tmp_path)


def test_the_trace_is_kept_beside_the_result(result: Result, tmp_path: Path):
    store.save(result, tmp_path / "run", {"traceEvents": [{"name": "décode"}]})
    packed = (tmp_path / "run" / "trace.json.gz").read_bytes()
    assert json.loads(gzip.decompress(packed)) == {"traceEvents": [{"name": "décode"}]}
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["result.json", "trace.json.gz"]


def test_folder_names_say_what_they_hold_and_never_collide(tmp_path: Path):
    made = [store.new_run(tmp_path / "runs", "breakdown", "lerobot/ACT ../x") for _ in range(4)]
    assert len(set(made)) == 4
    assert all(folder.is_dir() and folder.parent == tmp_path / "runs" for folder in made)
    assert made[0].name.endswith("_breakdown_lerobot-act-..-x")
    assert made[3].name.startswith(made[0].name[:15])


def test_a_failed_save_leaves_the_old_file(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store.save(result, tmp_path)
    old = (tmp_path / "result.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.save(result.model_copy(update={"title": "new"}), tmp_path)
    assert (tmp_path / "result.json").read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_figure_that_is_not_finite_is_never_written(result: Result, tmp_path: Path):
    result.measurements[0].samples.values.append(math.nan)
    with pytest.raises(ValueError, match="finite"):
        store.save(result, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_config_may_hold_anything(result: Result, tmp_path: Path):
    result.config = {"where": tmp_path, "limit": math.inf, "deep": [{"nan": math.nan}]}
    store.save(result, tmp_path)
    text = (tmp_path / "result.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} was written"))
    assert store.load(tmp_path).config == {"where": str(tmp_path), "limit": None, "deep": [{"nan": None}]}


def load_broken(path: Path, content: bytes | str) -> str:
    file = path / "result.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        store.load(path)
    line = str(caught.value)
    assert "\n" not in line
    assert str(file) in line
    return line


def test_a_missing_run_is_answered_with_the_nearest(result: Result, tmp_path: Path):
    store.save(result, tmp_path / "2026-11-21_0412_breakdown_act")
    with pytest.raises(UserError, match="did you mean '2026-11-21_0412_breakdown_act'"):
        store.load(tmp_path / "2026-11-21_0412_breakdwn_act")
    with pytest.raises(UserError, match=r"no run at .*nowhere"):
        store.load(tmp_path / "nowhere" / "at all")


def test_a_folder_of_runs_is_not_a_run(result: Result, tmp_path: Path):
    with pytest.raises(UserError, match=r"holds no result\.json"):
        store.load(tmp_path)
    store.save(result, tmp_path / "one")
    with pytest.raises(UserError, match="name one of them: one"):
        store.load(tmp_path)


def test_truncated_and_binary_files(result: Result, tmp_path: Path):
    store.save(result, tmp_path)
    whole = (tmp_path / "result.json").read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"\xff\xfe\x00", b"[" * 100_000):
        assert "truncated or not JSON" in load_broken(tmp_path, content)


@pytest.mark.parametrize("content", ["[]", "3", "{}", '{"schema_version": "1"}', '{"schema_version": 1}'])
def test_foreign_json(content: str, tmp_path: Path):
    assert "not a result of Strobe" in load_broken(tmp_path, content)


def test_another_schema_is_one_line(tmp_path: Path):
    for version in (0, SCHEMA_VERSION + 1):
        line = load_broken(tmp_path, json.dumps({"schema_version": version, "strobe_version": "9.0"}))
        assert f"another version of Strobe (it has schema {version}, this Strobe reads schema {SCHEMA_VERSION})" in line


def test_fields_of_another_version_are_left_out_and_named(result: Result, tmp_path: Path):
    document = json.loads(result.model_dump_json()) | {"colour": "red"}
    document["measurements"][0]["samples"]["shape"] = {"round": [1]}
    (tmp_path / "result.json").write_text(json.dumps(document))
    read = store.load_answer(tmp_path)
    said = read.notes.pop()
    assert all(name in said for name in ("left out", "colour", "measurements.0.samples.shape"))
    assert read == result


def test_the_first_wrong_field_is_named(result: Result, tmp_path: Path):
    document = json.loads(result.model_dump_json())
    samples = document["measurements"][0]["samples"]
    for place, name in ((samples["summary"], "median"), (samples["values"], 1)):
        sound = place[name]
        for place[name] in ("fast", "5", True, -5):  # a figure is a number, and no time is below 0
            assert f"{name}: input should be " in load_broken(tmp_path, json.dumps(document))
        place[name] = sound
    document = json.loads(result.model_dump_json())
    document["duration_s"] = math.inf
    assert "duration_s: input should be a finite number" in load_broken(tmp_path, json.dumps(document))
