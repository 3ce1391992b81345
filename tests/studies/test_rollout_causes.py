"""A rollout's figures and findings from made-up events, whose truth is known: every planted cause is named, alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.made_up_rollout import MAIN, MS, header, rtc, sync

from strobe.errors import UserError
from strobe.kinds import advise, document, figures
from strobe.loops.event_log import Log, read
from strobe.loops.reader import read_course
from strobe.results.finding import Finding
from strobe.results.rollout import Rollout, RolloutResult
from strobe.studies.diff import diff
from strobe.studies.rollout.answer import answer_of
from strobe.studies.rollout.run import recovered


def answered(events, **facts) -> RolloutResult:
    facts = header(**facts)
    return answer_of(facts, read_course(facts, events))


def figures_of(events, **facts) -> Rollout:
    return answered(events, **facts).rollout


def test_two_rollouts_stand_side_by_side():
    slow = answered(rtc(lambda _: 700.0, threshold=5), threshold=5)
    difference = diff(slow, answered(rtc(lambda _: 90.0)))
    found = {one.name: (one.before, one.after) for one in difference.figures}
    before, after = found["time without an action"]
    assert before is not None
    assert before > 100
    assert after == 0
    assert {"rate held", "from tick to tick, median", "age of the observation, median", "fewest actions left"} <= set(
        found
    )
    assert "jump of pan over its steps" in found
    (section,) = (one for one in document(difference).sections if one.key == "figures")
    assert section.table is not None
    assert len(section.table.rows) == len(found)


def rules(result: RolloutResult) -> set[str]:
    return {finding.rule for finding in advise(result)}


def only_finding(result: RolloutResult) -> Finding:
    (finding,) = advise(result)
    return finding


def test_a_healthy_run_is_whole_and_finds_nothing():
    result = answered(rtc(lambda _: 90.0))
    rollout = result.rollout
    assert advise(result) == []
    assert rollout.pace is not None
    assert rollout.pace.held_hz == pytest.approx(30, rel=1e-3)
    assert rollout.pace.late == 0
    assert rollout.pace.ticks == 241
    assert rollout.inference is not None
    assert rollout.inference.chunk == 50
    assert rollout.inference.first_ms == pytest.approx(90, abs=1)
    delays = rollout.inference.delays
    assert delays is not None
    assert (delays.assumed.max, delays.needed.max, delays.executed.max) == (3, 3, 3)
    assert rollout.queue.starved == 0
    assert rollout.queue.least is not None
    assert rollout.queue.least >= 26
    # From an observation to the last action before the next chunk takes over: 20 actions, the delay, a tick of waiting.
    assert rollout.age is not None
    assert 700 < rollout.age.max < 950
    ratios = [one.ratio for one in rollout.seams]
    assert all(ratio is not None and ratio < 1.5 for ratio in ratios), "the chunks continue one another"
    assert document(result).answers[0].startswith("The loop held 30.0 of 30 Hz; no tick was late")
    assert figures(result)["pace"][0].data


def test_a_slow_first_call_poisons_the_delay_and_nothing_else():
    result = answered(rtc(lambda call: 700.0 if call == 0 else 90.0, seconds=12))
    finding = only_finding(result)
    assert finding.rule == "poisoned-delay"
    assert finding.evidence["assumed"] == 21
    assert finding.evidence["needed"] == 3
    assert "21 actions of the first chunk were dropped" in finding.seen
    assert result.rollout.inference is not None
    assert result.rollout.inference.first_ms == pytest.approx(700)


def test_calls_longer_than_a_chunk_never_move_the_arm():
    result = answered(rtc(lambda _: 2000.0, seconds=12))
    finding = only_finding(result)
    assert finding.rule == "never-moves"
    assert "--fps=12" in finding.do, "half a chunk of 50 covers 2 s at 12.5 Hz"
    assert result.rollout.queue.first_action_ms is None
    assert result.rollout.sentence == "The robot was never sent an action."


def test_a_first_call_that_outlasts_the_run_is_named_as_unfinished():
    finding = only_finding(answered(rtc(lambda _: 9000.0, seconds=8)))
    assert finding.rule == "first-call-unfinished"
    assert "The run ended after 8.0 s. Its first call began 8.0 s before and had not returned." in finding.seen
    assert "compile" not in finding.why + finding.do
    assert "first-call-unfinished" not in rules(answered(rtc(lambda _: 7000.0, seconds=8))), "it returned at 7 s"
    assert "first-call-unfinished" not in rules(answered(rtc(lambda _: 2000.0, seconds=11))), "the others are late too"
    assert "first-call-unfinished" not in rules(answered(rtc(lambda _: 990.0, seconds=10))), "the last is unfinished"


def test_calls_that_compile_when_the_run_ends_are_no_chunks_that_come_too_late():
    """Until the policy is warm the loop wants no action, and the chunks of those calls are thrown away."""
    wants = {"get", "values", "pick"}
    warming = [event for event in rtc(lambda call: 5000.0, seconds=8) if event[0] not in wants]
    result = answered(warming, compiled=True)
    finding = only_finding(result)
    assert finding.rule == "first-call-unfinished"
    assert "Its call 2 began 3.0 s before" in finding.seen
    assert "torch.compile compiles during the first calls" in finding.why
    assert "--use_torch_compile=false" in finding.do
    assert result.rollout.inference is not None
    assert result.rollout.inference.useless == 1


def test_a_call_that_failed_or_was_no_longer_recorded_is_not_unfinished():
    events = rtc(lambda _: 9000.0, seconds=8)
    raised = [*events[:-1], ("raised", 7_900 * MS), events[-1]]
    assert answered(raised).rollout.unfinished is None
    cut_off = [*events, ("end", 20_000 * MS)]  # the second end is the run's own
    assert answered(cut_off).rollout.unfinished is None
    assert answered(events[:-1]).rollout.unfinished is None, "killed: the run had no end"


def test_calls_that_begin_too_late_starve_the_robot():
    result = answered(rtc(lambda _: 400.0, threshold=5, seconds=12), threshold=5)
    finding = only_finding(result)
    assert finding.rule == "starvation"
    assert "--inference.queue_threshold=13" in finding.do, "400 ms are 12 actions of 30 Hz"
    queue = result.rollout.queue
    assert queue.starved > 10
    assert queue.starved_ms == pytest.approx(queue.starved * 1e3 / 30, rel=0.01)
    assert queue.longest_ms < 400
    mended = answered(rtc(lambda _: 400.0, threshold=13, seconds=12), threshold=13)
    assert advise(mended) == [], "the value that the finding names mends it"


def test_chunks_too_short_for_their_calls_need_a_lower_rate():
    finding = only_finding(answered(rtc(lambda _: 1200.0, seconds=20)))
    assert finding.rule == "starvation"
    assert "--fps=20" in finding.do, "half a chunk of 50 covers 1.2 s at 20.8 Hz"


def test_chunks_that_disagree_are_seams_that_jump():
    finding = only_finding(answered(rtc(lambda _: 90.0, offset=lambda call: 15.0 * (call % 2))))
    assert finding.rule == "seam-jumps"
    assert "--inference.rtc.execution_horizon=20" in finding.do


@pytest.mark.parametrize(
    ("part", "rule"),
    [("camera wrist", "slow-camera"), ("read motors", "slow-bus"), ("process action", "slow-loop")],
)
def test_a_slow_part_of_the_loop_is_named_with_a_rate_that_it_can_hold(part: str, rule: str):
    events = rtc(lambda _: 90.0, extra=lambda _: [(part, 50.0)])
    finding = only_finding(answered(events))
    assert finding.rule == rule
    assert "--fps=19" in finding.do, "52 ms a tick"
    assert finding.evidence["part"] == part


def test_a_part_that_is_slow_now_and_then_is_found_among_the_others():
    events = rtc(lambda _: 90.0, extra=lambda tick: [("read motors", 60.0 if tick % 10 == 5 else 1.0)])
    finding = only_finding(answered(events))
    assert (finding.rule, finding.evidence["part"]) == ("slow-bus", "read motors")
    assert finding.evidence["late"] == pytest.approx(0.1, abs=0.02)


def test_a_slow_part_is_named_though_the_machine_is_a_little_busy_too():
    events = rtc(lambda _: 90.0, extra=lambda _: [("leader", 50.0)])
    end = events[-1][1]
    waited = [("turns", 0, 0, 0, 0), *events[1:-1], ("turns", end, round(0.12 * end), end // 10, end), events[-1]]
    found = {finding.rule for finding in advise(answered([events[0], *waited]))}
    assert found == {"slow-leader", "busy-machine"}


def test_calls_of_the_sync_engine_hold_up_the_loop():
    facts = {"engine": "sync", "threshold": None, "guided": False, "joints": ["pan"]}
    result = answered(sync(300.0), **facts)
    finding = only_finding(result)
    assert (finding.rule, finding.do) == (
        "slow-inference",
        "--inference.type=rtc predicts on a thread of its own.",
    )
    rollout = result.rollout
    assert rollout.inference is not None
    assert (rollout.inference.calls, rollout.inference.chunk) == (10, 20)
    assert rollout.inference.latency is not None
    assert rollout.inference.latency.median == pytest.approx(300)
    assert rollout.age is not None
    assert rollout.age.max == pytest.approx(19 * 1e3 / 30 + 300, abs=40)
    parts = {tuple(part.path) for part in result.measurement("inference call").components}
    assert ("select action",) in parts
    assert advise(answered(sync(20.0), **facts)) == []


def test_a_camera_that_repeats_its_frames_is_told():
    result = answered(rtc(lambda _: 90.0, fresh=lambda tick: tick % 2 == 0))
    finding = only_finding(result)
    assert finding.rule == "repeated-frames"
    assert "--fps=14" in finding.do or "--fps=15" in finding.do
    assert result.rollout.cameras[0].fresh_hz == pytest.approx(15, abs=0.3)


@pytest.mark.parametrize(
    ("facts", "per_tick", "rule", "value"),
    [
        ({"dataset_fps": 30, "multiplier": 1}, 1, None, ""),
        ({"dataset_fps": 50, "multiplier": 1}, 1, "dataset-fps", "--dataset.fps=30"),
        ({"dataset_fps": 15, "multiplier": 2, "fps": 15.0}, 1, "interpolated-recording", "--dataset.fps=30"),
    ],
)
def test_frames_that_are_stamped_wrong_are_told(facts, per_tick, rule, value):
    events = []
    for event in rtc(lambda _: 90.0):
        events.append(event)
        if event[0] == "pick" and event[2]:
            events += [("frame", event[1])] * per_tick
    found = advise(answered(events, strategy="sentry", **facts))
    assert [finding.rule for finding in found] == ([rule] if rule else [])
    assert all(value in finding.do for finding in found)


def test_ticks_across_a_reset_or_a_pause_are_no_slow_ticks():
    events = rtc(lambda _: 90.0)
    at = next(index for index, event in enumerate(events) if event[0] == "tick" and event[1] > 4e9)
    now = events[at][1]
    later = [(event[0], *(x + 10**10 if isinstance(x, int) and x > 10**8 else x for x in event[1:]))
             for event in events[at:]]  # fmt: skip
    turn_without_action = [("tick", now), ("s", "observation", now, now + MS, MAIN)]
    for between in (turn_without_action, [("reset", now)], [("end", now), ("run", now + 10**10)]):
        pace = figures_of([*events[:at], *between, *later]).pace
        assert pace is not None
        assert pace.period.max == pytest.approx(1e3 / 30)
        assert pace.held_hz == pytest.approx(30, rel=1e-3)


def test_what_a_killed_run_wrote_is_an_answer(tmp_path: Path):
    events = rtc(lambda _: 90.0)
    log = Log(tmp_path / "run.events")
    log.start(header())
    for event in events:
        log.append(event)
    log.stop()
    assert not log.failed
    found, rows = read(log.file)
    assert (found, list(rows)) == (header(), [tuple(event) for event in events])
    whole = recovered(log.file).result
    assert whole.rollout.pace == figures_of(events).pace
    text = log.file.read_text()
    log.file.write_text(text[: int(0.6 * len(text))])  # killed while it wrote
    cut = recovered(log.file).result
    assert cut.status == "failed"
    assert cut.rollout.pace is not None
    assert 100 < cut.rollout.pace.ticks < 240
    other = tmp_path / "other.events"
    other.write_text("[]\n")
    with pytest.raises(UserError, match="not the log of a rollout"):
        recovered(other)


def test_a_log_that_cannot_be_written_keeps_the_latest_events_and_never_raises(tmp_path: Path):
    (tmp_path / "file").write_text("")
    log = Log(tmp_path / "file" / "run.events")
    log.start(header())
    log.append(("run", 0))
    log.stop()
    assert log.failed
    found, rows = log.read()
    assert (found, list(rows)) == (header(), [("run", 0)])


@pytest.mark.parametrize("slow", [{0}, {0, 2}, {0, 1, 3}])
def test_few_slow_calls_of_a_short_run_are_no_slow_policy(slow: set[int]):
    """A run of 2 s that a fault cut off: its first call warms the policy up, another was held up by something."""
    result = answered(sync(lambda call: 150.0 if call in slow else 20.0, every=15, ticks=60), engine="sync")
    pace = result.rollout.pace
    assert pace is not None
    assert pace.late == len(slow)
    assert advise(result) == []


@pytest.mark.parametrize(("ticks", "every"), [(60, 15), (240, 30)])
def test_slow_calls_are_found_in_a_short_run_and_in_a_long_one(ticks: int, every: int):
    result = answered(sync(150.0, every=every, ticks=ticks), engine="sync")
    assert only_finding(result).rule == "slow-inference"
