"""Benchmarks run: what they import is there, what they lack they say at once, and how they ended is on their page."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest
from support.suite.places import ROOT
from support.suite.scripts import load_script

FOLDER = ROOT / "benchmarks"
bench = load_script("bench")


@pytest.fixture(scope="module")
def lerobot() -> Path:
    """LeRobot's sources."""
    spec = importlib.util.find_spec("lerobot")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.py")), ids=lambda file: str(file.relative_to(FOLDER)))
def test_every_name_that_a_benchmark_takes_from_strobe_is_there(file: Path) -> None:
    taken = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "strobe"
        for alias in node.names
    }
    gone = [f"{module}.{name}" for module, name in taken if not is_defined(module.replace(".", "/"), name)]
    assert gone == []


def is_defined(module: str, name: str) -> bool:
    folder = ROOT / "src" / module
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    below = (folder / name).is_dir() or (folder / f"{name}.py").is_file()
    return below or (file.is_file() and re.search(rf"\b{name}\b", file.read_text()) is not None)


def test_what_an_upgrades_faults_replace_in_lerobot_is_there(lerobot: Path) -> None:
    tree = ast.parse((FOLDER / "two_environments.py").read_text())
    texts = {
        ast.unparse(target): node.value for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Fault"]
    replacing = [call for call in calls if len(call.args) > 5]
    assert len(replacing) >= 5
    for _, _, _, file, _, old in (call.args[:6] for call in replacing):
        path = ast.literal_eval(texts.get(ast.unparse(file), file))
        assert ast.literal_eval(old) in (lerobot / path).read_text(), path


def test_what_a_benchmark_lacks_is_said_at_once_in_one_line(tmp_path: Path) -> None:
    """As on a machine without OSMesa and EGL, without a package, and with too few cores and too little memory."""
    program = (
        "import ctypes.util, sys\nfrom common import shared\n"
        "ctypes.util.find_library = lambda name: None\n"
        "shared.EXTRAS['pusht'] = ['no_such_package']\n"
        "shared.need('pusht', opengl=True, cores=10**6, memory_gib=10**6, file=shared.Path('no such file'))\n"
    )
    environment = {"PYTHONPATH": f"{FOLDER}:{ROOT / 'src'}", "PATH": ""}
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    (line,) = ran.stdout.splitlines()
    assert line.startswith("could not run: ")
    for word in ("strobe-lab[pusht]", "libosmesa6", "1000000 cores", "1e+06 GiB", "no such file"):
        assert word in line
    assert (ran.returncode, ran.stderr) == (bench.COULD_NOT_RUN, "")


@pytest.mark.parametrize(
    ("program", "outcome", "why"),
    [
        ("shared.finish({'a': 1}, True)", "holds", ""),
        ("shared.finish({'a': 1}, False)", "does not hold", ""),
        ("shared.could_not_run('no such thing')", "could not run", "no such thing"),
        ("print('{\"holds\": true}'); sys.exit(3)", "failed", 'exit code 3: {"holds": true}'),
        ("print('no figures')", "failed", "exit code 0: no figures"),
        ("import signal; signal.pause()", "not done", "not within 0.1 s"),
    ],
)
def test_how_a_benchmark_ended_is_recorded(program: str, outcome: str, why: str, tmp_path: Path) -> None:
    script = tmp_path / "one.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\nfrom common import shared\n{program}\n")
    assert bench.run_script(script, [], 0.1 if outcome == "not done" else 60.0)[:2] == (outcome, why)


def test_the_page_and_the_record_say_the_same_of_every_benchmark() -> None:
    record = bench.load()
    assert sorted(record) == bench.benchmarks(), "scripts/bench.py --record NAME"
    shown = bench.PAGE.read_text().partition(bench.BEGIN)[2].partition(bench.END)[0].strip()
    assert shown == bench.table(record), "scripts/bench.py --page"


def test_the_rota_takes_each_short_benchmark_in_turn_and_no_other() -> None:
    def make_record(outcome: str, cpu_s: int) -> dict[str, object]:
        return {"quick": bench.Seen("a", "2026-11-27", outcome, cpu_s=cpu_s)}

    record = {name: make_record("holds", 20) for name in "abcde"}
    record |= {"long": make_record("holds", 300), "broken": make_record("does not hold", 20), "never run": {}}
    days = [date(2026, 11, 27) + timedelta(number) for number in range(3)]
    turns = [bench.rota(record, 2, day) for day in days]
    assert {name for turn in turns for name in turn} == set("abcde")
    assert all(len(set(turn)) == 2 for turn in turns)
    assert bench.rota(record, 2, days[0]) == turns[0]
    assert sorted(bench.rota(record, 20, days[0])) == sorted("abcde")
    assert sorted(bench.rota(record, 20, days[0], ["c"])) == sorted("abde")
