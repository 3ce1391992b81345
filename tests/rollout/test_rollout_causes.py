"""A rollout's figures and findings from made-up events, whose truth is known: every planted cause is named, alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.examples.findings_results import approve_findings
from support.examples.made_up_rollout import MAIN, MS, header, motion, rtc, sync

from strobe.core.errors import UserError
from strobe.core.kinds import advise, document, figures
from strobe.history.diff_command import diff
from strobe.loops.event_log import Log, read
from strobe.loops.reader import read_record
from strobe.loops.results.rollout import Rollout, RolloutResult
from strobe.rollout.answer import make_answer
from strobe.rollout.run import recover_rollout


def answer_events(events, **facts) -> RolloutResult:
    facts = header(**facts)
    return make_answer(facts, read_record(facts, events))


def rollout_figures(events, **facts) -> Rollout:
    return answer_events(events, **facts).rollout


def test_two_rollouts_stand_side_by_side():
    slow = answer_events(rtc(lambda _: 700.0, threshold=5), threshold=5)
    difference = diff(slow, answer_events(rtc(lambda _: 90.0)))
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


SYNC = {"engine": "sync", "threshold": None, "guided": False, "joints": ["pan"]}


def make_slow_result(part: str, ms: Callable[[int], float] = lambda _: 50.0) -> RolloutResult:
    """A part of each tick that takes so long, by the tick's number."""
    return answer_events(rtc(lambda _: 90.0, extra=lambda tick: [(part, ms(tick))]))


def busy_and_slow() -> RolloutResult:
    """A slow leader on a machine that is a little busy too."""
    events = rtc(lambda _: 90.0, extra=lambda _: [("leader", 50.0)])
    end = events[-1][1]
    turns = ("turns", 0, 0, 0, 0), ("turns", end, round(0.12 * end), end // 10, end)
    return answer_events([events[0], turns[0], *events[1:-1], turns[1], events[-1]])


def compiling() -> RolloutResult:
    """Until the policy is warm the loop wants no action, and the chunks of those calls are thrown away."""
    wants = {"get", "values", "pick"}
    return answer_events(
        [event for event in rtc(lambda call: 5000.0, seconds=8) if event[0] not in wants], compiled=True
    )


def begins(threshold: int) -> RolloutResult:
    """Calls of 400 ms that begin at so many actions left."""
    return answer_events(rtc(lambda _: 400.0, threshold=threshold, seconds=12), threshold=threshold)


def make_recorded_result(**facts: Any) -> RolloutResult:
    """A run that records a frame for each action."""
    events = []
    for event in rtc(lambda _: 90.0):
        events += [event, ("frame", event[1])] if event[0] == "pick" and event[2] else [event]
    return answer_events(events, strategy="sentry", multiplier=facts.pop("multiplier", 1), **facts)


def short(ms: Callable[[int], float] | float, ticks: int = 60, every: int = 15) -> RolloutResult:
    return answer_events(sync(ms, every=every, ticks=ticks), engine="sync")


def four_episodes(ms: Callable[[int], float]) -> RolloutResult:
    """Four episodes of 25 calls, with a reset before each."""
    events = sync(ms, every=5, ticks=500)
    for call in (75, 50, 25):
        at = [place for place, event in enumerate(events) if event[0] == "tick"][5 * call]
        events.insert(at, ("reset", events[at][1]))
    return answer_events(events, engine="sync")


def test_every_planted_cause_is_named_alone() -> None:
    unfinished, starved = "first-call-unfinished", "starvation"
    few = [short(lambda call, slow=slow: 150.0 if call in slow else 20.0) for slow in ({0}, {0, 2}, {0, 1, 3})]
    assert [made.rollout.pace.late for made in few] == [1, 2, 3]
    approve_findings("rollout", {
        ".*": {
            "healthy": ("", answer_events(rtc(lambda _: 90.0))),
            "a slow first call poisons the delay": ("poisoned-delay", answer_events(
                rtc(lambda call: 700.0 if call == 0 else 90.0, seconds=12))),
            # Half a chunk of 50 covers 2 s at 12.5 Hz, and 1.2 s at 20.8.
            "calls longer than a chunk": ("never-moves", answer_events(rtc(lambda _: 2000.0, seconds=12))),
            "calls of half a chunk": (starved, answer_events(rtc(lambda _: 1200.0, seconds=20))),
            "a first call that outlasts the run": (unfinished, answer_events(rtc(lambda _: 9000.0, seconds=8))),
            "calls that compile when the run ends": (unfinished, compiling()),
            # 400 ms are 12 actions of 30 Hz, and the value that the finding names fixes it.
            "calls that begin too late": (starved, begins(5)),
            "calls that begin in time": ("", begins(13)),
            "chunks that disagree": (
                "seam-jumps", answer_events(rtc(lambda _: 90.0, offset=lambda call: 15.0 * (call % 2)))),
            "a slow camera": ("slow-camera", make_slow_result("camera wrist")),
            "slow motors": ("slow-bus", make_slow_result("read motors")),
            "slow processing": ("slow-loop", make_slow_result("process action")),
            "motors that are slow now and then": (
                "slow-bus", make_slow_result("read motors", lambda tick: 60.0 if tick % 10 == 5 else 1.0)),
            "a slow leader on a busy machine": ("slow-leader busy-machine", busy_and_slow()),
            "slow calls of the sync engine": ("slow-inference", answer_events(sync(300.0), **SYNC)),
            "fast calls of the sync engine": ("", answer_events(sync(20.0), **SYNC)),
            "calls that grow": ("calls-grow", short(lambda call: 2.0 + call % 25, every=5, ticks=125)),
            "calls that grow until a reset": ("calls-grow", four_episodes(lambda call: 2.0 + call % 25)),
            "calls with resets": ("", four_episodes(lambda call: 20.0 + call % 3)),
            "a slow first second": ("", short(lambda call: max(4.0, 24.0 - 2 * call), every=5, ticks=400)),
            "a camera that repeats its frames": (
                "repeated-frames", answer_events(rtc(lambda _: 90.0, fresh=lambda tick: tick % 2 == 0))),
            "frames stamped right": ("", make_recorded_result(dataset_fps=30)),
            "frames stamped at another rate": ("dataset-fps", make_recorded_result(dataset_fps=50)),
            "interpolated frames": ("interpolated-recording",
                                    make_recorded_result(dataset_fps=15, multiplier=2, fps=15.0)),
            # A run of 2 s that a fault cut off: its first call warms the policy up, something held another up.
            **{f"{count} slow calls of a short run": ("", made) for count, made in enumerate(few, 1)},
            "slow calls of a short run": ("slow-inference", short(150.0)),
            "slow calls of a long run": ("slow-inference", short(150.0, ticks=240, every=30)),
        },
        unfinished: {
            "a first call that returned at 7 s": ("", answer_events(rtc(lambda _: 7000.0, seconds=8))),
            "other calls that are late too": ("", answer_events(rtc(lambda _: 2000.0, seconds=11))),
            "the last call is unfinished": ("", answer_events(rtc(lambda _: 990.0, seconds=10))),
        },
    })  # fmt: skip


def test_a_healthy_run_is_whole_and_finds_nothing():
    result = answer_events(rtc(lambda _: 90.0))
    rollout = result.rollout
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
    assert document(result).answers[0].startswith("The control loop ran at 30 Hz: no late tick")
    assert figures(result)["pace"][0].data


def test_figures_of_calls_that_come_late():
    poisoned = rollout_figures(rtc(lambda call: 700.0 if call == 0 else 90.0, seconds=12))
    assert poisoned.inference.first_ms == pytest.approx(700)
    never = rollout_figures(rtc(lambda _: 2000.0, seconds=12))
    assert never.queue.first_action_ms is None
    assert never.sentence == "The robot was never sent an action."
    assert compiling().rollout.inference.useless == 1
    queue = begins(5).rollout.queue
    assert queue.starved > 10
    assert queue.starved_ms == pytest.approx(queue.starved * 1e3 / 30, rel=0.01)
    assert queue.longest_ms < 400
    repeated = rollout_figures(rtc(lambda _: 90.0, fresh=lambda tick: tick % 2 == 0))
    assert repeated.cameras[0].fresh_hz == pytest.approx(15, abs=0.3)


def test_a_call_that_failed_or_was_no_longer_recorded_is_not_unfinished():
    events = rtc(lambda _: 9000.0, seconds=8)
    raised = [*events[:-1], ("raised", 7_900 * MS), events[-1]]
    assert answer_events(raised).rollout.unfinished is None
    cut_off = [*events, ("end", 20_000 * MS)]  # the second end is the run's own
    assert answer_events(cut_off).rollout.unfinished is None
    assert answer_events(events[:-1]).rollout.unfinished is None, "killed: the run had no end"


def test_calls_of_the_sync_engine_hold_up_the_loop():
    result = answer_events(sync(300.0), **SYNC)
    rollout = result.rollout
    assert rollout.inference is not None
    assert (rollout.inference.calls, rollout.inference.chunk) == (10, 20)
    assert rollout.inference.latency is not None
    assert rollout.inference.latency.median == pytest.approx(300)
    assert rollout.age is not None
    assert rollout.age.max == pytest.approx(19 * 1e3 / 30 + 300, abs=40)
    parts = {tuple(part.path) for part in result.measurement("inference call").components}
    assert ("select action",) in parts


def test_ticks_across_a_reset_or_a_pause_are_no_slow_ticks():
    events = rtc(lambda _: 90.0)
    at = next(index for index, event in enumerate(events) if event[0] == "tick" and event[1] > 4e9)
    now = events[at][1]
    later = [(event[0], *(x + 10**10 if isinstance(x, int) and x > 10**8 else x for x in event[1:]))
             for event in events[at:]]  # fmt: skip
    turn_without_action = [("tick", now), ("s", "observation", now, now + MS, MAIN)]
    for between in (turn_without_action, [("reset", now)], [("end", now), ("run", now + 10**10)]):
        pace = rollout_figures([*events[:at], *between, *later]).pace
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
    whole = recover_rollout(log.file).result
    assert whole.rollout.pace == rollout_figures(events).pace
    text = log.file.read_text()
    log.file.write_text(text[: int(0.6 * len(text))])  # killed while it wrote
    cut = recover_rollout(log.file).result
    assert cut.status == "failed"
    assert cut.rollout.pace is not None
    assert 100 < cut.rollout.pace.ticks < 240
    other = tmp_path / "other.events"
    other.write_text("[]\n")
    with pytest.raises(UserError, match="not the log of a rollout"):
        recover_rollout(other)


def test_a_log_that_cannot_be_written_keeps_the_latest_events_and_never_raises(tmp_path: Path):
    (tmp_path / "file").write_text("")
    log = Log(tmp_path / "file" / "run.events")
    log.start(header())
    log.append(("run", 0))
    log.stop()
    assert log.failed
    found, rows = log.read()
    assert (found, list(rows)) == (header(), [("run", 0)])


@pytest.mark.parametrize("at", [100, 240])  # the last tick counts too, though none follows it
@pytest.mark.parametrize(
    ("part", "title"),
    [("camera wrist", "Camera wrist hung for 3.0 s"), ("read motors", "Reading the motors hung for 3.0 s")],
)
def test_a_device_that_hangs_is_named_with_its_time_and_no_lower_rate(part: str, title: str, at: int) -> None:
    result = make_slow_result(part, lambda tick: 3000.0 if tick == at else 1.0)
    assert result.rollout.sentence == f"{title}."
    assert result.rollout.pace is not None
    assert result.rollout.pace.period.max >= 3000
    found = advise(result)
    assert found[0].title == title
    assert not [each.rule for each in found if each.rule.startswith("slow-")]
    assert "--fps=" not in " ".join(each.do for each in found if each.rule == "device-stall")


@pytest.mark.parametrize(("calls", "slow"), [(2, 1), (3, 1), (3, 2), (8, 4)])
def test_a_call_that_hangs_is_named_before_a_busy_machine_and_advice_is_no_lower_rate(calls: int, slow: int) -> None:
    begin, *events, end = sync(lambda call: 3000.0 if call == slow else 20.0, ticks=20 * calls)
    turns = ("turns", 0, 0, 0, 0), ("turns", end[1], end[1] // 3, end[1] // 2, 3 * end[1])
    result = answer_events([begin, turns[0], *events, turns[1], end], **SYNC)
    assert result.rollout.sentence == "A policy call hung for 3.0 s."
    found = advise(result)
    assert [each.rule for each in found] == ["device-stall", "busy-machine"]
    assert all("--fps=" not in each.do for each in found)


RANGES = {"pan": (-100.0, 100.0), "lift": (0.0, 100.0)}


def make_commanded_result(commands: dict[int, list[float]], limits: Any) -> RolloutResult:
    """A joint follows a wave, a gripper rests at 20; ``commands`` are those of some ticks instead."""
    events, tick = [], 0
    for event in rtc(lambda _: 90.0):
        events.append(event)
        if event[0] == "pick" and event[2]:
            at, to = ([motion(each)[0], 20.0] for each in (tick, tick + 1))
            events += [("at", at), ("sent", commands.get(tick, to))]
            tick += 1
    return answer_events(events, limits=limits)


@pytest.mark.parametrize(
    ("commands", "limits", "title"),
    [
        ({60: [130.0, 0.0]}, RANGES, "pan was sent 130, beyond its range"),
        ({60: [0.0, -20.0]}, RANGES, "lift was sent -20, beyond its range"),
        ({60: [-60.0, 5.0], 61: [60.0, 5.0]}, RANGES, "pan was sent from -60 to 60 in one control tick"),
        ({60: [4e4, 0.0]}, {}, "pan was sent from -22.7 to 4e+04 in one control tick"),
        # Sound: a policy reaches a little beyond its data, a gripper snaps, and a joint of no known range steps.
        ({60: [-30.0, 109.0], 61: [-30.0, 0.0], 62: [-30.0, 100.0]}, RANGES, None),
        ({60: [25.0, 0.0]}, {}, None),
        ({}, RANGES, None),
    ],
)
def test_a_command_that_no_motor_executes_is_said_first(commands: Any, limits: Any, title: str | None) -> None:
    result = make_commanded_result(commands, limits)
    titles = [each.title for each in advise(result) if each.rule == "wild-commands"]
    assert titles == [title] * bool(title)
    assert result.rollout.wild is not None
    assert (result.rollout.sentence == f"{title}.") is bool(title)
    if title:
        result.findings = advise(result)
        assert result.findings[0].rule == "wild-commands"


def test_numbers_that_are_not_finite_are_named() -> None:
    position = ("at", [0.0, float("nan")])
    read_nan = answer_events(
        [one for event in rtc(lambda _: 90.0) for one in ([event, position] if event[0] == "tick" else [event])]
    )
    assert read_nan.rollout.not_finite is not None
    assert read_nan.rollout.not_finite.joints == ["lift"]
    assert "read from the robot NaN" in read_nan.rollout.sentence
    sent = [
        ("values", event[1], [float("inf"), 0.0]) if event[0] == "values" else event for event in rtc(lambda _: 90.0)
    ]
    sent_nan = answer_events([event for event in sent if event[0] != "sent"])
    assert "sent the robot NaN" in sent_nan.rollout.sentence
    assert {each.title for each in advise(sent_nan)} >= {"The robot was sent NaN or infinite actions"}
    clamped = answer_events(
        [one for each in sent for one in ([each, ("sent", [9.0, 0.0])] if each[0] == "pick" else [each])]
    )
    assert advise(clamped)[0].rule == "not-finite", "a driver made numbers of what the policy gave it"
    without = answer_events([event for event in rtc(lambda _: 90.0) if event[0] not in ("at", "sent", "values")])
    assert without.rollout.not_finite is None
    assert any("not judged: NaN" in note for note in document(without).notes)
