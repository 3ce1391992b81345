"""The search for the largest batch: right, in few tries, whatever the memory does; and as a user runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import sweeps

from strobe.core.errors import UserError
from strobe.core.processes.fork_server import Server
from strobe.core.runs import store
from strobe.sweep.results import Sweep
from strobe.train import batch_command as command
from strobe.train.batch_command import Search, knee


def search_largest(
    fits: int, start: float, slope: float, *, most: int = 1024, within: float = 0.05, limit: int | None
) -> Search:
    """Search where sizes up to ``fits`` fit and take start + slope × size."""
    search = Search(most, within, limit)
    for _ in range(200):
        size = search.next()
        if size is None:
            return search
        assert 1 <= size <= most
        assert size not in search.fitted
        assert size not in search.failed
        search.record_attempt(size, size <= fits, round(start + slope * size) if size <= fits else None)
    raise AssertionError("the search does not end")


@given(
    fits=st.integers(0, 3000),
    start=st.floats(0, 1e9),
    slope=st.floats(0, 1e8),
    most=st.integers(1, 2000),
    within=st.floats(0.01, 0.5),
    limit=st.none() | st.integers(1, 10**11),
)
def test_the_answer_is_right_whatever_was_foretold(
    fits: int, start: float, slope: float, most: int, within: float, limit: int | None
):
    search = search_largest(fits, start, slope, most=most, within=within, limit=limit)
    expected = min(fits, most)
    if expected == 0:
        assert search.largest is None
        assert 1 in search.failed
    else:
        assert search.largest is not None
        assert search.largest <= expected
        # What lies above was shown not to fit, within the gap that was asked for.
        assert search.largest == most or min(search.failed) - search.largest <= max(1, int(within * search.largest))


@pytest.mark.parametrize("fits", [3, 17, 100, 700, 1000])
def test_where_memory_is_a_line_the_foretold_size_saves_tries(fits: int):
    start, slope = 2e9, 1e7
    limit = int(start + slope * fits)
    known = search_largest(fits, start, slope, limit=limit)
    blind = search_largest(fits, start, slope, limit=None)
    assert known.largest is not None
    assert fits - known.largest <= max(1, int(0.05 * known.largest))
    tries = [len(search.fitted) + len(search.failed) for search in (known, blind)]
    assert tries[0] <= tries[1]
    assert len(known.failed) <= 3, "what does not fit is slow to find out"
    assert abs((known.predict(fits) or 0) - limit) <= 1


def test_the_knee_is_where_all_up_to_the_best_are_as_fast():
    assert knee([(1, False), (2, False), (4, True), (8, True)]) == 4
    assert knee([(1, True), (2, False), (4, True), (8, True)]) == 4
    assert knee([(1, False), (2, True), (4, True), (8, False)]) == 2, "slower beyond the best"
    assert knee([]) is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--batch_size=8"], "--batch_size does not fit here"),
        (["--phases=[inference]"], "--phases does not fit here"),
        (["--skip-counting"], "needs the memory"),
        (["--largest=0"], "at least 1"),
        (["--within=2"], "between 0 and 1"),
        (["--memory_gib=-1"], "above 0"),
        (["--policy.chunk=3"], "unknown flag"),
        (["--larges=3"], "unknown flag"),
    ],
)
def test_wrong_input_is_told_in_a_line(flags: list[str], said: str):
    with pytest.raises(UserError, match=said):
        command.read(["--policy.type=act", *flags])


@pytest.fixture
def one_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server of cells that all commands of a test fork from: each would import LeRobot once more."""
    with Server() as server:
        monkeypatch.setattr(Server, "__exit__", lambda *_: None)
        monkeypatch.setattr("strobe.train.batch_command.Server", lambda: server)
        yield server
        monkeypatch.undo()


@pytest.mark.slow("a search over real training steps")
def test_the_largest_batch_of_a_tiny_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str], one_server: Server):
    root = tmp_path / "batch"
    flags = ["--policy.type=act", "--policy.size=tiny", "--device=cpu", "--image_size=64x64", "--iterations=2"]
    assert command.run([*flags, "--threads=1", "--largest=2", f"--sweep_dir={root}"]) == 0
    answer = store.load_answer(root)
    assert isinstance(answer, Sweep)
    assert [cell.settings["batch_size"] for cell in answer.cells] == ["2"]
    assert answer.best[0].sentence == "A batch of 2 fits; larger batches were not tried."
    assert "2 was the limit of the search" in answer.best[0].details[0]
    assert answer.best[0].details[1] == "Next: strobe batch … --largest=8"
    assert all(row.memory_bytes for cell in answer.cells for row in cell.rows)
    said = capsys.readouterr().out
    assert "samples/s" in said
    # With less memory than a process takes nothing fits, which is an answer and no crash.
    asked = [*flags, "--threads=1", "--largest=2", "--memory_gib=0.05", f"--sweep_dir={tmp_path / 'none'}"]
    assert command.run(asked) == 0
    assert "No batch fits" in capsys.readouterr().out
    asked = [*flags, "--policy.kl_weight=inf", "--threads=1", "--largest=2", f"--sweep_dir={tmp_path / 'infinite'}"]
    assert command.run(asked) == 0
    answer = store.load_answer(tmp_path / "infinite")
    assert isinstance(answer, Sweep)
    assert [each.details[0][-47:] for each in answer.best] == ["not a number at a batch of 2: no rate is given."]
    assert one_server._starts == 1 or one_server.unfit


@pytest.mark.parametrize(("tried", "says"), [
    ({2: True, 8: True, 16: False}, "A batch of 8 fits; the search was stopped between it and 16."),
    ({2: True, 8: True}, "A batch of 8 fits; larger batches were not tried."),
    ({2: True, 8: True, 9: False}, "The largest batch that fits is 8."),
])  # fmt: skip
def test_a_search_that_was_stopped_claims_no_largest_batch(tried: dict[int, bool], says: str):
    search = Search(most=1000)
    cells = []
    for size, fits in tried.items():
        search.record_attempt(size, fits)
        rows = [sweeps.row(10.0, size)] if fits else []
        cells.append(sweeps.cell({"batch_size": str(size)}, rows, "done" if fits else "out of memory", "at 9 GiB"))
    sweep = sweeps.line().model_copy(update={"cells": cells})
    assert command.judge_largest(command.BatchConfig(), search, sweep).sentence == says
