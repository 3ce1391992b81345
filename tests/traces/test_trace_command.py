"""`strobe report` of traces: printed, as a page, as JSON; of one file, of several, of a folder; and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.examples.made_trace import annotation, document, operator, training, work, write

from strobe.core.cli.main import main
from strobe.traces.results import TraceAnswer


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank, collective in enumerate((300, 100)):
        write(folder / f"rank{rank}.json.gz", document(training(collective), rank, 2))
    return folder


def answer(capsys: pytest.CaptureFixture[str], *argv: object) -> TraceAnswer:
    assert main(["report", *map(str, argv), "--json"]) == 0
    read = TraceAnswer.model_validate_json(capsys.readouterr().out)
    assert isinstance(read, TraceAnswer)
    return read


def test_a_trace_is_printed_and_its_page_lies_beside_it(ranks: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(ranks / "rank0.json.gz")]) == 0
    printed = capsys.readouterr().out
    assert "rank 0 (NVIDIA A100): busy" in printed
    assert "4 iterations of ProfilerStep" in printed
    page = ranks / "rank0.report.html"
    assert str(page) in printed
    assert "</html>" in page.read_text()


def test_a_folder_and_several_files_are_the_ranks_of_one_program(ranks: Path, capsys: pytest.CaptureFixture[str]):
    one = answer(capsys, ranks)
    two = answer(capsys, *sorted(ranks.glob("*.gz"), reverse=True))
    assert [rank.name for rank in one.ranks] == [rank.name for rank in two.ranks] == ["rank 0", "rank 1"]
    assert one.waits == two.waits
    assert one.waits is not None
    assert "The other ranks wait for rank 1" in [finding.title for finding in one.findings]
    assert (ranks / "report.html").exists()
    both = ["report", str(ranks / "rank0.json.gz"), str(ranks / "rank1.json.gz"), f"--output={ranks / 'both.html'}"]
    assert main(both) == 0
    assert (ranks / "both.html").exists()


def test_two_files_of_one_rank_are_both_shown(ranks: Path, capsys: pytest.CaptureFixture[str]):
    write(ranks / "rank0-later.json", document(training(300), 0, 2))
    names = [rank.name for rank in answer(capsys, ranks).ranks]
    assert names == ["rank 0", "rank 0 (rank0.json.gz)", "rank 1"]


def test_a_saved_answer_is_shown_again(ranks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved = tmp_path / "result.json"
    saved.write_text(answer(capsys, ranks).model_dump_json())
    assert main(["report", str(saved), "--format=markdown"]) == 0
    assert capsys.readouterr().out.startswith("# traces of 2 ranks")


def test_depth_limits_the_parts(ranks: Path, capsys: pytest.CaptureFixture[str]):
    nested = [annotation("outer", 0, 900), annotation("inner", 10, 800), operator("aten::mm", 20, 50)]
    file = write(ranks.parent / "nested.json", document(nested))
    main(["report", str(file), "--format=console", "--full", "--depth=1"])
    printed = capsys.readouterr().out
    assert "outer" in printed
    assert "inner" not in printed


def test_a_trace_of_a_cpu_shows_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = write(tmp_path / "cpu.json", document([operator("aten::mm", n * 1000, 900) for n in range(5)]))
    assert main(["report", str(file), "--full"]) == 0
    printed = " ".join(capsys.readouterr().out.split())  # where lines are broken depends on the folder's length
    assert "no device in this trace. The host's 4.9 ms are shown, 91.8 % of it in torch's operators" in printed
    assert "not judged: the device of cpu.json: the trace has no work on a device" in printed
    assert "aten::mm" in printed


def test_it_needs_no_torch(ranks: Path):
    code = (
        "import sys; from strobe.core.cli.main import main; main(['report', sys.argv[1], '--quiet'])\n"
        "sys.exit('it imported torch' if {'torch', 'lerobot'} & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code, str(ranks)], check=True, capture_output=True)


HOSTILE = "\x1b[31m<script>alert(1)</script>[red]{{7*7}}\n# h\ud800"


def hostile_events() -> list[Any]:
    bad: list[Any] = [
        {**operator("a", 0, 1), "dur": float("nan")}, {**operator("a", 0, 1), "dur": -5},
        {**operator("a", 0, 1), "ts": 10**300}, {**operator("a", 0, 1), "ts": "now"}, {**operator("a", 0, 1), "ts": 0},
        {**operator("a", 0, 1), "name": {"x": 1}}, {**operator(HOSTILE, 0, 9), "tid": [1], "pid": {"a": 1}, "args": 3},
        {**operator(HOSTILE, 9, 9, **{"Input Dims": [[[["x"]]], 3, "<b>"]}), "ph": ["X"]}, [17], None, "text",
    ]  # fmt: skip
    named = [annotation(HOSTILE, place * 1000, 990) for place in range(4)]
    copies = work(800, 100, 500, 90, f"Memcpy {HOSTILE}", cat="gpu_memcpy", stream=HOSTILE, device=HOSTILE)
    return [*training(), *named, *copies, *work(801, 0, 3000, 90, HOSTILE), *bad]


def test_a_hostile_trace_gives_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    content = document(hostile_events())
    content["deviceProperties"] = [{"id": 0, "name": HOSTILE}, 3]
    file = write(tmp_path / "hostile.json", content)
    assert main(["report", str(file), "--full"]) == 0
    printed = capsys.readouterr().out
    assert all(letter.isprintable() or letter == "\n" for letter in printed)
    words = " ".join(printed.split())
    assert "1 event with a negative duration" in words
    assert "1 event a day and more from the other events" in words
    assert "<script>alert" not in (tmp_path / "hostile.report.html").read_text()
    assert len(answer(capsys, file).ranks[0].devices) == 2


WHOLE = json.dumps(document(training(), 0, 2))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (WHOLE[:-40], "is cut off"),
        ('{"traceEvents": []}', "has nothing to analyse: 0 events, none timed"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": NaN}]}', "1 events cannot be used"),
        ('{"traceEvents": 3}', "has no list of traceEvents"),
        ("[1, 2]", "has nothing to analyse: 2 events, none timed"),
    ],
)
def test_what_cannot_be_read_costs_a_line(tmp_path: Path, content: str, said: str, capsys: pytest.CaptureFixture[str]):
    file = write(tmp_path / "bad.json", content)
    assert main(["report", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.strip().splitlines()
    assert said in line
    assert "bad.json" in line


def test_of_several_the_broken_ones_are_left_out(ranks: Path, capsys: pytest.CaptureFixture[str]):
    write(ranks / "rank2.json", WHOLE[: len(WHOLE) // 2].replace("schemaVersion", "traceEvents"))
    seen = answer(capsys, ranks)
    assert len(seen.ranks) == 2
    assert any(note.startswith("left out: ") and "rank2.json is cut off" in note for note in seen.notes)
    for rank in range(2):
        write(ranks / f"rank{rank}.json.gz", "")
    assert main(["report", str(ranks)]) == 2
    assert "none of the 3 files is a trace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["rank0.json.gz", "other.txt"], "no file at"),
        (["rank0.json.gz", "rank1.json.gz", "."], "is no trace of torch.profiler: several arguments"),
        (["rank0.json.gz", "--format=mcap"], "--format=mcap is of a run of Strobe"),
        (["rank0.json.gz", "--output=/nowhere/at.html"], "cannot write /nowhere/at.html"),
        (["none.json.gz"], "no run at"),
    ],
)
def test_wrong_arguments_cost_a_line(ranks: Path, argv: list[str], said: str, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ranks)
    assert main(["report", *argv]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line
