"""A file of torch.profiler is read whole, or refused in a line that says why."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from support.examples.made_trace import annotation, document, operator, write

from strobe.core.errors import UserError
from strobe.traces import trace_file
from strobe.traces.trace_file import TraceFile, find_traces, is_trace, read_events


def read_trace(path: Path) -> tuple[TraceFile, list[Any]]:
    file = TraceFile(path)
    return file, list(read_events(file))


EVENTS = [operator("aten::mm", 0, 10), {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1, "id": 1}]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_is_read_with_what_its_head_says(tmp_path: Path, name: str):
    file, events = read_trace(write(tmp_path / name, document(EVENTS, rank=3, ranks=8)))
    assert (file.rank, file.ranks, file.devices["1"]) == (3, 8, "NVIDIA A100")
    assert (events, file.count) == (EVENTS, 2)


def test_a_bare_list_of_events_is_a_trace_too(tmp_path: Path):
    file = write(tmp_path / "list.json", EVENTS)
    assert is_trace(file)
    assert read_trace(file)[1] == EVENTS


def test_a_head_of_the_wrong_types_says_nothing(tmp_path: Path):
    content = {"distributedInfo": {"rank": "3", "world_size": True}, "deviceProperties": {"id": 0}, "traceEvents": []}
    file, _ = read_trace(write(tmp_path / "odd.json", content))
    assert (file.rank, file.ranks, dict(file.devices)) == (None, None, {})


WHOLE = json.dumps(document(EVENTS * 20))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.json", "", "is empty"),
        ("cut.json", WHOLE[: len(WHOLE) // 2], "is cut off"),
        ("cut-after-an-event.json", WHOLE[: WHOLE.rindex("}, {") + 1], "is cut off"),
        ("foreign.json.gz", '{"a": 1}', "is JSON, but no trace of torch.profiler: it has no list of traceEvents"),
        ("number.json.gz", "17", "is JSON, but no trace"),
        ("dict.json.gz", '{"traceEvents": {"a": 1}}', "it has no list of traceEvents"),
        ("text.json.gz", "hello {}", "is not JSON (Expecting value, after 0 events"),
        ("deep.json", '{"traceEvents": ' + "[" * 200_000 + "]" * 200_000 + "}", "is nested too deep"),
        ("digits.json", '{"traceEvents": [{"ts": ' + "9" * 6000 + "}]}", "is no trace: Exceeds the limit"),
    ],
)
def test_what_is_no_whole_trace_is_refused_in_a_line(tmp_path: Path, name: str, content: str, said: str):
    with pytest.raises(UserError) as caught:
        read_trace(write(tmp_path / name, content))
    assert said in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_gzip_cannot_unpack_is_refused(tmp_path: Path):
    packed = gzip.compress(json.dumps(document(EVENTS * 500)).encode())
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UserError, match="is cut off"):
        read_trace(tmp_path / "cut.json.gz")
    (tmp_path / "bad.json.gz").write_bytes(packed[:30] + bytes(40) + packed[70:])
    with pytest.raises(UserError, match=r"is damaged: gzip cannot unpack it|is cut off"):
        read_trace(tmp_path / "bad.json.gz")
    with pytest.raises(UserError, match=r"cannot read .*: no such file"):
        read_trace(tmp_path / "none.json.gz")


@pytest.mark.parametrize("name", ["bomb.json.gz", "large.json"])
def test_more_than_fits_in_memory_is_refused_before_it_is_unpacked(tmp_path, name, monkeypatch):
    monkeypatch.setattr(trace_file, "LARGEST", 2**20)
    monkeypatch.setattr(trace_file, "_PIECE", 2**16)
    file = write(tmp_path / name, " " * 2**22)
    with pytest.raises(UserError, match=r"has more than 1 MiB of JSON: trace fewer steps"):
        read_trace(file)
    monkeypatch.setattr(trace_file, "MOST_UNPACKED", (40, 2**18))  # a few kilobytes of such a file are gigabytes
    with pytest.raises(UserError, match="no trace packs so well" if name.endswith(".gz") else "trace fewer steps"):
        read_trace(file)


def test_results_and_other_json_are_no_traces(tmp_path: Path):
    trace = write(tmp_path / "rank0.json.gz", document([annotation("a", 0, 1)]))
    plain = write(tmp_path / "rank1.json", document([annotation("a", 0, 1)]))
    write(tmp_path / "other.json", {"a": 1})
    write(tmp_path / "result.json", {"traceEvents": []})
    assert find_traces(tmp_path) == [trace, plain]
    assert not is_trace(tmp_path)
    assert not is_trace(tmp_path / "none.json")


@pytest.mark.parametrize("piece", [1, 7, 64, 1000])
def test_pieces_of_any_size_give_the_same_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int):
    monkeypatch.setattr(trace_file, "_PIECE", piece)
    events = [*EVENTS, 12345678901, -1.5e-300, "]}", [], {}, None, 'σ\\"' * 30] * 3
    content = {"traceName": "é", "traceEvents": events, "distributedInfo": {"rank": 5}}
    seen = []
    file = TraceFile(write(tmp_path / "trace.json", json.dumps(content, indent=piece % 2 or None, ensure_ascii=False)))
    assert list(read_events(file, lambda path, done, size: seen.append((path, done, size)))) == events
    assert (file.rank, file.count) == (5, len(events))
    assert seen == sorted(set(seen)), "how far it is only grows"


def test_a_trace_is_never_whole_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trace_file, "_PIECE", 2**14)
    file = TraceFile(write(tmp_path / "trace.json", document(EVENTS * 20_000)))
    tracemalloc.start()
    assert sum(1 for _ in read_events(file)) == 40_000
    assert tracemalloc.get_traced_memory()[1] < 2**18 < file.path.stat().st_size / 8
    tracemalloc.stop()
