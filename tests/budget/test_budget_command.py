"""strobe budget: the 20 Hz analysis of the pi0.5 pipeline from its own table, runs and sweeps, wrong input."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples.runs import act

from strobe.budget.command import budget
from strobe.budget.results import Budget
from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.measure.statistics import summarise
from strobe.core.results.traits import PolicyTraits
from strobe.core.runs import store

# Latencies of the optimised pi0.5 pipeline on LIBERO, as its users had them.
TABLE = """steps,total,vision,KV cache,denoise
10,171.36,17.26,52.13,97.69
5,122.21,17.22,52.23,48.87
3,102.81,17.22,52.14,29.38
2,93.07,17.12,52.13,19.70
1,83.50,17.26,52.14,10.10
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "libero.csv"
    path.write_text(TABLE)
    return path


def test_it_comes_to_what_the_pipelines_own_analysis_came_to(table):
    found = budget([table], 20.0, 30.0)
    assert found.denoise.one_step_ms == pytest.approx(10.1)
    assert found.denoise.per_step_interval.low < 9.75 < found.denoise.per_step_interval.high
    by_one_step = {one.steps: one.parts["denoise"] / (one.steps * 10.1) - 1 for one in found.latencies}
    assert by_one_step == pytest.approx({1: 0, 2: -0.025, 3: -0.030, 5: -0.032, 10: -0.033}, abs=5e-4)
    assert found.most_steps is None, "not even one step makes 20 Hz"
    cache = next(need for need in found.needs if need.part == "KV cache")
    assert cache.named_ms == pytest.approx(22.64), "52 ms to 23 ms"
    assert cache.needed_ms == pytest.approx(18.64), "less, with what is in no part"
    assert found.asynchrony[0].delay_ticks == 3


def test_the_command_says_so_and_writes_a_page(table, tmp_path, capsys):
    page = tmp_path / "budget.html"
    assert main(["budget", str(table), "--target-hz", "20", "--output", str(page)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "20 Hz is not reached with 1 denoising step." in said
    assert "Median 83.5 ms (12.0 Hz), 33.5 ms more than 50 ms." in said
    assert "Next: cut KV cache from 52.1 to 18.6 ms (2.8 ×); try padding=trimmed." in said
    assert "Latency by part" in page.read_text()


def test_a_budget_that_is_kept_is_shown_again(table, tmp_path, capsys):
    assert main(["budget", str(table), "--target-hz", "20", "--output-dir", str(tmp_path / "runs")]) == 0
    out = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("_budget_libero")
    assert str(folder / "report.html") in out
    page = (folder / "report.html").read_text()
    kept = store.load_answer(folder)
    assert isinstance(kept, Budget)
    assert kept.most_steps is None
    assert kept.command[:2] == ["strobe", "budget"]
    (folder / "report.html").unlink()
    assert main(["report", str(folder)]) == 0
    assert "20 Hz is not reached" in capsys.readouterr().out
    assert (folder / "report.html").read_text() == page
    assert "Latency by part" in page


def test_nothing_is_kept_unless_asked_for(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["budget", str(table)]) == 0
    assert list(tmp_path.iterdir()) == [table]


def test_a_place_where_nothing_can_be_kept_is_one_line(table, capsys):
    assert main(["budget", str(table), "--output-dir", str(table)]) == 2
    assert "cannot save the run in" in capsys.readouterr().err


def test_a_median_in_time_says_with_how_many_steps_and_claims_no_more(table, capsys):
    assert main(["budget", str(table), "--target-hz=10"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The median reaches 10 Hz with up to 2 denoising steps." in said
    assert "1 step: 83.5 ms; 2 steps: 93.1 ms, of 100 ms. Only medians are known, not how many chunks are late." in said
    assert "half of the chunks may come later" in said
    assert "misses no tick" not in said
    assert "is reached" not in said


def test_a_latency_that_does_not_grow_with_steps_is_no_miss(tmp_path, capsys):
    (tmp_path / "flat.csv").write_text("steps,total\n1,30.2\n5,30.0\n10,29.9\n")
    found = budget([tmp_path / "flat.csv"], 20.0, 30.0)
    assert found.total.per_step_ms < 0
    assert found.most_steps == 10
    assert main(["budget", str(tmp_path / "flat.csv"), "--target-hz=20"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The median reaches 20 Hz with up to 10 denoising steps." in said
    assert "More than 10 steps are not judged: one more step costs" in said
    assert "more than 50 ms" not in said
    found = budget([tmp_path / "flat.csv"], 33.4, 30.0)  # 29.94 ms: only ten steps are below it
    assert found.most_steps is None


def chunks(tmp_path, times, steps=10):
    """A run of a policy of ``steps`` denoising steps, whose chunks took ``times``, ms."""
    result = act()
    chunk = result.measurements[0]
    chunk.phase, chunk.traits.policy = "inference", PolicyTraits(denoising_steps=steps)
    chunk.samples.values, chunk.samples.summary = list(times), summarise(times)
    store.save(result, tmp_path / f"run-{steps}")
    return tmp_path / f"run-{steps}"


def test_a_median_in_time_is_not_enough_where_many_chunks_are_late(tmp_path, capsys):
    late = np.where(np.arange(269) % 20 < 9, 62.0, 42.0)  # 125 and some of 269 take 62 ms
    folder = chunks(tmp_path, late)
    (one,) = budget([folder], 20.0, 30.0).latencies
    assert (one.total_ms, one.in_time.outcome) == (42.0, "missed")
    assert main(["budget", str(folder), "--target-hz=20"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "20 Hz is not reached with 10 denoising steps, the fewest measured." in said
    assert "10 steps: 42 ms, of 50 ms; 143 of 269 chunks within 50 ms, 95 % required." in said
    assert main(["budget", str(folder), "--target-hz=20", "--in-time=0.4"]) == 0
    assert "20 Hz looks reachable with 10 denoising steps" in " ".join(capsys.readouterr().out.split())


def test_a_delay_covers_the_late_chunks_too(tmp_path):
    slow = np.where(np.arange(300) % 10 < 4, 92.0, 60.0)  # two in five take over two ticks of 33 ms
    (one,) = budget([chunks(tmp_path, slow)], 20.0, 30.0).asynchrony
    assert (one.delay_ticks, one.in_time.outcome) == (3, "reached")


@pytest.mark.parametrize(
    ("steps", "count", "answer", "times"),
    [([10], 12, "with 10 denoising steps, not yet", "10 steps: 42.1 ms, of 50 ms; 12 of 12 chunks within 50 ms."),
     (range(1, 11), 8, "with up to 10 denoising steps, not yet",
      "1 step: 15.1 ms; 10 steps: 42.1 ms, of 50 ms; all 8 chunks of each in time. Total ≈ 12.1 [")],
)  # fmt: skip
def test_few_chunks_are_not_judged_and_say_how_many_it_takes(steps, count, answer, times, tmp_path, capsys):
    folders = [chunks(tmp_path, [12.0 + 3 * n + 0.1 * (i % 3) for i in range(count)], n) for n in steps]
    assert main(["budget", *map(str, folders), "--target-hz=20"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"20 Hz looks reachable {answer} proven." in said
    assert times in said
    assert "Next: to confirm that 95 % of chunks are in time: --iterations=59." in said


def test_a_share_that_is_none_is_one_line(table, capsys):
    assert main(["budget", str(table), "--in-time=95"]) == 2
    assert "--in_time=95.0: must be between 0 and 1" in capsys.readouterr().err


def test_a_run_tells_its_parts_and_its_steps(tmp_path):
    result = act()
    chunk = result.measurements[0]
    chunk.phase, chunk.traits.policy = "inference", PolicyTraits(denoising_steps=10)
    store.save(result, tmp_path / "run")
    found = budget([tmp_path / "run"], 1000.0, 30.0)
    (latency,) = found.latencies
    assert latency.steps == 10
    assert latency.total_ms == chunk.samples.summary.median
    assert "policy" not in latency.parts or not any(c.path[0] == "policy" and c.depth > 1 for c in chunk.components)
    assert any("no line" in note for note in found.notes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2\n", "has the columns steps, total"),
        ("", "has the columns steps, total"),
        ("steps,total\n1,fast\n", "line 2: steps and milliseconds must be numbers above 0"),
        ("steps,total\n0,5\n", "line 2"),
        ("steps,total,vision\n1,5,-3\n", "line 2"),
    ],
)
def test_a_table_that_is_none_is_one_line(tmp_path, content, said):
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=said):
        budget([path], 20.0, 30.0)


def test_wrong_flags_are_one_line(table, capsys):
    assert main(["budget", str(table), "--target-hz=0"]) == 2
    assert "--target_hz=0.0: must be above 0" in capsys.readouterr().err
    assert main(["budget", "/nowhere"]) == 2
