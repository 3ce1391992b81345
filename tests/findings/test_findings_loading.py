"""What is planted in a search is named, and nothing else."""

from __future__ import annotations

from support.example_loader import rate, starved

from strobe.kinds import advise
from strobe.results.dataloader import Dataloader, Encoding, Recommendation, StartUp, StepNeed


def rules(answer: Dataloader) -> set[str]:
    return {finding.rule for finding in advise(answer)}


def recommended(answer: Dataloader, **more: object) -> Recommendation:
    return answer.recommendations[0].model_copy(update=more)


def healthy() -> Dataloader:
    answer = starved()
    answer.rows = [row for row in answer.rows if row.settings.num_workers <= 4]
    answer.rows[3].rate = rate(152, 0.02)
    answer.recommendations = [recommended(answer, own=rate(152, 0.02), step_ms_now=8000 / 120)]
    return answer


def test_a_loader_slower_than_the_step_is_named_with_what_the_flags_win() -> None:
    found = {finding.rule: finding for finding in advise(starved())}
    assert set(found) == {"loader-slower-than-step", "more-workers-slower"}
    slower = found["loader-slower-than-step"]
    assert slower.level == "warning"
    assert "--num_workers=2" in slower.do
    assert "0.6 h over 100,000 steps" in slower.gain
    assert "8 deliver 60 % less than 2" in found["more-workers-slower"].title


def test_a_loader_that_feeds_the_step_is_left_alone() -> None:
    assert rules(healthy()) == {"loader-feeds-step"}


def test_without_a_need_nothing_is_said_of_starving() -> None:
    answer = healthy()
    answer.needs = []
    assert rules(answer) == set()


def test_loading_without_workers_takes_turns_with_the_step() -> None:
    answer = healthy()
    for row in answer.rows:
        row.own = row.settings.num_workers == 0
    answer.recommendations = [recommended(answer, own=rate(500, 0.01), step_ms_now=8000 / 500 + 8000 / 120)]
    found = advise(answer)
    assert [finding.rule for finding in found] == ["loader-slower-than-step"]
    assert "take turns" in found[0].title


def test_when_nothing_feeds_the_step_that_is_said_with_the_share_lost() -> None:
    answer = healthy()
    answer.needs = [StepNeed(batch_size=8, samples_per_s=300, source="given")]
    found = {finding.rule: finding for finding in advise(answer)}
    assert set(found) == {"loader-slower-than-step", "no-loader-feeds-step"}
    assert "50 %" in found["no-loader-feeds-step"].why


def test_the_users_loader_that_cannot_run_is_a_warning_with_the_reason() -> None:
    answer = healthy()
    own = next(row for row in answer.rows if row.own)
    own.status, own.reason, own.rate = "refused", "needs up to 9,000 MiB of shared memory", None
    answer.recommendations = [recommended(answer, own=None)]
    found = advise(answer)
    assert [finding.rule for finding in found] == ["own-loader-fails"]
    assert "9,000 MiB" in found[0].seen


def test_a_start_as_long_as_hundreds_of_steps_is_named_and_weighs_more_at_every_epoch() -> None:
    answer = healthy()
    answer.start_ups = [
        StartUp(start_method="fork", status="done", first_batch_s=0.5, epoch_start_s=0.1),
        StartUp(start_method="spawn", status="done", first_batch_s=20.0, epoch_start_s=0.1),
    ]
    found = {finding.rule: finding for finding in advise(answer)}
    assert set(found) == {"loader-feeds-step", "start-up-long"}
    assert "300 steps" in found["start-up-long"].title
    assert found["start-up-long"].level == "info"
    answer.own = answer.own.model_copy(update={"persistent_workers": False})
    warned = next(finding for finding in advise(answer) if finding.rule == "start-up-long")
    assert warned.level == "warning"
    assert "--persistent_workers=true" in warned.do
    answer.start_ups[1].first_batch_s = 2.0
    assert "start-up-long" not in rules(answer)


def test_an_encoding_is_recommended_only_where_it_is_shown_to_load_faster() -> None:
    answer = healthy()
    as_is = Encoding(name="as it is", status="done", rate=rate(100, 0.02), bytes_per_hour=1e9)
    other = Encoding(
        name="h264, key frame every 2", status="done", rate=rate(180, 0.02), bytes_per_hour=2e9, psnr_db=40.0
    )
    answer.encodings = [as_is, other]
    found = next(finding for finding in advise(answer) if finding.rule == "encoding-faster")
    assert "1.8 × as fast" in found.title
    assert "2.0 × the size" in found.seen
    other.rate = rate(180, 0.9)
    assert "encoding-faster" not in rules(answer)
