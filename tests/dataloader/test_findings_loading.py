"""What is planted in a search is named, and nothing else."""

from __future__ import annotations

from typing import Any

from support.examples.findings_results import approve_findings
from support.examples.loader import rate, starving_loader

from strobe.core.kinds import advise, document
from strobe.core.results.finding import Finding
from strobe.dataloader.results import Dataloader, Encoding, StartUp, StepNeed


def healthy(own: Any = None, now: float = 8000 / 120, **more: Any) -> Dataloader:
    """The user's loader feeds the step; ``own`` and ``now`` are its rate and the step's time with it."""
    answer = starving_loader()
    answer.rows = [row for row in answer.rows if row.settings.num_workers <= 4]
    answer.rows[3].rate = rate(152, 0.02)
    update = {"own": own or rate(152, 0.02), "step_ms_now": now}
    answer.recommendations = [answer.recommendations[0].model_copy(update=update)]
    return answer.model_copy(update=more)


def own_loader_without_workers() -> Dataloader:
    answer = healthy(rate(500, 0.01), 8000 / 500 + 8000 / 120)
    for row in answer.rows:
        row.own = row.settings.num_workers == 0
    return answer


def own_loader_failing() -> Dataloader:
    answer = healthy()
    own = next(row for row in answer.rows if row.own)
    own.status, own.reason, own.rate = "refused", "needs up to 9,000 MiB of shared memory", None
    answer.recommendations[0].own = None
    return answer


def starts(spawn_s: float, persistent: bool = True) -> Dataloader:
    answer = healthy(start_ups=[
        StartUp(start_method=method, status="done", first_batch_s=first, epoch_start_s=0.1)
        for method, first in (("fork", 0.5), ("spawn", spawn_s))
    ])  # fmt: skip
    return answer.model_copy(update={"own": answer.own.model_copy(update={"persistent_workers": persistent})})


def encoding_answer(spread: float) -> Dataloader:
    """An encoding that loads 1.8 times as fast, give or take."""
    return healthy(encodings=[
        Encoding(name="baseline", status="done", rate=rate(100, 0.02), bytes_per_hour=1e9),
        Encoding(name="h264, key frame every 2", status="done", rate=rate(180, spread), bytes_per_hour=2e9, psnr_db=40),
    ])  # fmt: skip


def growing(needed: float = 300, last: float = 150) -> Dataloader:
    """The rate grows up to the most workers that were tried, which do not feed the step."""
    answer = healthy(needs=[StepNeed(batch_size=8, samples_per_s=needed, source="given")])
    for row in answer.rows:
        row.rate = rate(min(last, 40.0 * max(0.5, row.settings.num_workers)), 0.02)
        row.chosen = (row.settings.num_workers, row.settings.prefetch_factor) == (4, 4)
    return answer


def test_the_edge_of_a_search_is_not_taken_for_the_best_there_is() -> None:
    def unfed_step_finding(answer: Dataloader) -> Finding:
        return next(each for each in advise(answer) if each.rule == "no-loader-feeds-step")

    assert "--workers=4,8,16" in unfed_step_finding(growing()).do
    assert "that was tried" in unfed_step_finding(growing()).title
    assert "More cores" in unfed_step_finding(growing(last=80)).do, "four workers are no faster than two"


def test_a_rate_that_is_enough_without_workers_is_not_called_too_little() -> None:
    answer = growing(needed=5)
    answer.recommendations[0] = answer.recommendations[0].model_copy(
        update={"fed": False, "flags": ["--num_workers=0"], "chosen": rate(252, 0.1)}
    )
    for row in answer.rows:
        row.own = row.settings.num_workers == 0
    shown = " ".join(document(answer).answers)
    assert "without workers the step waits while a batch is loaded" in shown
    assert "not shown to keep up" not in shown


def test_what_is_found() -> None:
    feeds, slower = "loader-feeds-step", "loader-slower-than-step"
    approve_findings("loading", {".*": {
        "slower than the step": (f"{slower} more-workers-slower", starving_loader()),
        "feeds the step": (feeds, healthy()),
        "no step": ("", healthy(needs=[])),
        "no workers": (slower, own_loader_without_workers()),  # takes turns with the step
        "nothing feeds the step": (f"no-loader-feeds-step {slower}", healthy(
            needs=[StepNeed(batch_size=8, samples_per_s=300, source="given")])),
        "the user's loader fails": ("own-loader-fails", own_loader_failing()),
        "a long start": (f"start-up-long {feeds}", starts(20.0)),
        "a long start at every epoch": (f"start-up-long {feeds}", starts(20.0, persistent=False)),
        "a start of 2 s at every epoch": (feeds, starts(2.0, persistent=False)),
        "another encoding is faster": (f"encoding-faster {feeds}", encoding_answer(0.02)),
        "another encoding may be faster": (feeds, encoding_answer(0.9)),
    }})  # fmt: skip


def test_a_loader_that_feeds_the_step_is_kept() -> None:
    answers = document(healthy()).answers
    assert answers[0] == "Keep your loader: it delivers 152 samples/s, the step needs 120."
    assert not any("Train with" in line or "Next:" in line for line in answers)
    assert document(starving_loader()).answers[0] == "Train with --num_workers=2 --prefetch_factor=4."
    assert document(growing()).answers[0].startswith("No loader feeds the step: the best delivers ")
