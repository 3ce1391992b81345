"""Remote inference's figures and findings from made-up events, whose truth is known: every planted cause, alone."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.examples.findings_results import approve_findings
from support.examples.made_up_rollout import MAIN, MS, OTHER, header

from strobe.core.kinds import advise, document, figures
from strobe.loops.reader import read_record
from strobe.loops.remote_server import _value_rows
from strobe.loops.remote_stamps import KEPT, SIMILAR
from strobe.loops.results.rollout import Failure, RolloutResult
from strobe.rollout.answer import make_answer
from strobe.rollout.remote import clocks, offset

PERIOD = round(1e9 / 30)
CHUNK = 20


def run(
    policy_ms: float,
    *,
    send_ms: float = 2.0,
    threshold: float = 0.5,
    off_ms: float = 0.0,
    stamped: bool = True,
    similar: bool = False,
    slept_ms: float = 0.0,
    seconds: float = 8.0,
) -> RolloutResult:
    """The answer of a client at 30 Hz whose chunks of 20 actions come ``policy_ms`` after their observation arrived.

    Args:
        send_ms: an observation's way to the server; the way back takes 1 ms.
        slept_ms: of the server, before it answers.
        off_ms: the server's clock minus the client's.
        similar: the server drops whatever need not be used.
    """
    off = round(off_ms * MS)
    events: list = [("run", 0)]
    left, chunk, now, key = 0, 0, 0, 0
    coming: tuple[int, int, int, list[int] | None] | None = None  # when, key, start of the wait, stamps
    asked = False  # an observation that had to be used was sent since the last chunk
    while now < seconds * 1e9:
        if coming is not None and coming[0] <= now:
            at, which, start, stamps = coming
            chunk, left, coming, asked = chunk + 1, CHUNK, None, False
            events += [("taken", start, which), ("merge", at + MS, 0, left, 0, CHUNK, CHUNK)]
            events.append(("trip", which, start, at, 9000, stamps, at + MS // 2, at + MS))
        got = left > 0
        left -= got
        events += [("tick", now), ("get", now, now, int(got), left, chunk, -1), ("pick", now, int(got))]
        at = now
        if got:
            events += [("values", at, [30 * math.sin(now / 5e8)]), ("s", "action", at, at + MS, MAIN)]
            at += MS
        if left <= threshold * CHUNK:
            key += 1
            must = left == 0 and not asked
            asked = asked or must
            sent = at + MS
            arrived = sent + round(send_ms * MS)
            used = coming is None and (must or not similar)
            decision = KEPT if used else SIMILAR
            there = [sent + off + MS // 10, arrived + off, arrived + off + MS, arrived + off + MS, decision]
            back = arrived + 2 * MS
            events.append(("s", "send observation", sent, back, MAIN))
            events += [
                ("seen", at, key),
                ("upload", key, at, sent, back, 900_000, int(must), there if stamped else None),
            ]
            at = back
            if used:
                taken = arrived + 2 * MS
                done = taken + round(policy_ms * MS)
                packed = done + 2 * MS
                answered = packed + round(slept_ms * MS)
                mine = [taken, taken, taken + MS, taken + 2 * MS, done, done + MS, packed, answered]
                end = answered + MS
                coming = (end, key, taken - MS, [one + off for one in mine] if stamped else None)
                events.append(("s", "wait for actions", taken - MS, end, OTHER))
        end = max(at, now + PERIOD)
        if at < end:
            events.append(("s", "sleep", at, end, MAIN))
        now = end
    events += [("end", now), ("encoding", 2, 900_000, 2 * MS, 90_000, 6 * MS)]
    if not off_ms and stamped:
        events.append(("shared", 1))
    facts = header(
        command="robot_client", engine="remote", threshold=int(threshold * CHUNK), share=threshold, chunk=CHUNK,
        strategy="weighted_average", horizon=None, can_rtc=False, joints=["pan"],
    )  # fmt: skip
    return make_answer(facts, read_record(facts, events))


def test_a_healthy_run_finds_nothing_and_its_round_trips_add_up():
    result = run(60.0)
    rollout, remote = result.rollout, result.rollout.remote
    assert remote is not None
    assert (rollout.queue.starved, remote.stamped) == (0, True)
    ms = {step.name: step.ms.median for step in remote.steps}
    assert ms == pytest.approx({
        "pickle observation": 1, "send to the server": 2, "unpickle observation": 1, "wait in the server's queue": 1,
        "prepare inputs": 1, "preprocessing": 1, "policy": 58, "postprocessing": 1, "pickle actions": 1,
        "sleep of the server": 0, "send to the client": 1, "unpickle actions": 0.5, "merge into the queue": 0.5,
    })  # fmt: skip
    assert remote.trip is not None
    assert remote.trip.median == pytest.approx(69)
    assert remote.packing == pytest.approx(3.5 / 69)
    assert remote.sending == pytest.approx(3 / 69)
    assert rollout.age is not None
    assert rollout.age.median > 69
    assert document(result).answers[1].endswith("5.1 % of it is pickling and 4.3 % sending.")
    assert figures(result)["pace"][0].data


def test_what_another_encoding_would_save():
    remote = run(20.0, send_ms=25.0).rollout.remote
    assert remote is not None
    assert remote.encoding is not None
    # Nine tenths of the bytes of 25 ms, less the shortest way, and 4 ms more to encode.
    assert remote.encoding.saves_ms == pytest.approx(0.9 * 25 - 4, abs=1.5)


def test_observations_dropped_as_similar_until_the_queue_is_empty_are_counted():
    remote = run(100.0, similar=True).rollout.remote
    assert remote is not None
    assert remote.asked_late == remote.must_go - 1
    assert remote.decisions is not None
    assert remote.decisions.similar > 20


def test_an_unwatched_server_is_seen_from_outside():
    result = run(60.0, stamped=False)
    remote = result.rollout.remote
    assert remote is not None
    assert (remote.stamped, remote.clocks, remote.decisions) == (False, None, None)
    assert {step.side for step in remote.steps} == {"client", "network", "server and network"}
    assert sum(step.share for step in remote.steps) == pytest.approx(1)
    (trips,) = [section for section in document(result).sections if section.key == "round-trips"]
    assert any("The server did not run in Strobe" in text for text in trips.text)


def test_another_machines_clock_is_found_within_its_bound():
    result = run(60.0, off_ms=5000.0)
    assert result.rollout.remote is not None
    clocks = result.rollout.remote.clocks
    assert clocks is not None
    assert not clocks.shared
    assert abs(clocks.offset_ms - 5000) <= clocks.uncertainty_ms < 3
    ms = {step.name: step.ms.median for step in result.rollout.remote.steps}
    assert ms["policy"] == pytest.approx(58)
    assert ms["send to the server"] == pytest.approx(2, abs=clocks.uncertainty_ms)


def test_a_clock_that_should_be_shared_and_is_not_is_no_shared_one():
    exchanges = [(0, 1002, 1010, 14)]  # processes of one machine, in namespaces of their own time
    found = clocks(exchanges, shared=True)
    assert found is not None
    assert (found.shared, found.offset_ms) == (False, 999e-6)
    found = clocks([(0, 2, 10, 14)], shared=True)
    assert found is not None
    assert found.shared


def test_the_offset_is_taken_from_the_exchange_that_spent_least_on_its_ways():
    quick, slow = (0, 1002, 1010, 14), (100, 1250, 1260, 170)
    assert offset([slow, quick]) == (999, 3)
    assert offset([]) is None


def make_unanswered_result(*more: tuple[object, ...], empty: int = 3, uploads: int = 60) -> RolloutResult:
    """The answer of a client whose server took each observation and answered ``empty`` times with nothing."""
    events: list = [("run", 0)]
    for number in range(uploads):
        now = number * PERIOD
        events += [("tick", now), ("get", now, now, 0, 0, 0, -1), ("pick", now, 0), ("seen", now, number)]
        events.append(("upload", number, now, now, now + MS, 9000, int(number == 0), None))
        events.append(("s", "sleep", now + 2 * MS, now + PERIOD, MAIN))
    events += [("empty", number * PERIOD, (number + 1) * PERIOD) for number in range(empty)]
    events += [*more, ("end", uploads * PERIOD)]
    facts = header(command="robot_client", engine="remote", chunk=CHUNK, share=0.5, joints=["pan"])
    return make_answer(facts, read_record(facts, events))


def failing(*failures: tuple[str, str, str], kind: str = "act", of: RolloutResult | None = None) -> RolloutResult:
    """Requests that failed in the server: the exception, its place and its source; or a run with a failed one."""
    if of is not None:
        place = f"lerobot.policies.{kind}.modeling_act.A.b, line 3"
        failed = Failure(request="GetActions", error="AssertionError, without a message", place=place, count=1)
        of.subject.kind = kind
        assert of.rollout.remote is not None
        of.rollout.remote.failures = [failed]
        return of
    return make_unanswered_result(*[("failed", 5, "GetActions", *failure) for failure in failures])


def make_empty_answer_result() -> RolloutResult:
    result = run(60.0)
    assert result.rollout.remote is not None
    result.rollout.remote.empty = 2  # no observation came for two seconds
    return result


def test_every_planted_cause_is_named_alone() -> None:
    starved = "remote-starvation"
    told = ("KeyError: 'x'", "lerobot.policies.act.modeling_act.A.b, line 3", "batch[key]")
    approve_findings("remote", {
        ".*": {
            "healthy": ("", run(60.0)),
            "unwatched": ("", run(60.0, stamped=False)),
            "sending": ("serialisation", run(20.0, send_ms=25.0)),
            # 409 ms are 13 actions of 20, and the value that the finding names fixes it.
            "asking late": (starved, run(400.0, threshold=0.2)),
            "asking in time": ("", run(400.0, threshold=0.7)),
            "a server that sleeps": (starved, run(60.0, threshold=0.2, slept_ms=340.0)),
            "round trips longer than a chunk": (starved, run(900.0)),
            "dropped as similar": ("similar-filter", run(100.0, similar=True)),
            "answers with nothing beside chunks": ("", make_empty_answer_result()),
            "answers with nothing": ("no-chunk", make_unanswered_result()),
            "an exception in the server": ("requests-fail", failing(told, told)),
            "a status of gRPC": ("requests-fail", make_unanswered_result(
                ("failed", 5, "SendObservations", "UNAVAILABLE: Socket closed", "", ""), empty=0)),
        },
        "no-chunk": {
            "a first call that goes on": ("", make_unanswered_result(empty=0)),
            "a client that sent nothing": ("", make_unanswered_result(empty=2, uploads=0)),
        },
        "requests-fail": {  # a policy with a history is sent to lerobot-rollout, unless it does run behind the server
            "a policy with a history": ("requests-fail", failing(kind="vqbet", of=make_unanswered_result())),
            "a policy with a history that made chunks": ("requests-fail", failing(kind="vqbet", of=run(60.0))),
        },
    })  # fmt: skip


@pytest.mark.parametrize(("odd", "told"), [(0, ""), (2, ", 2 of them with NaN or infinite numbers")])
def test_a_servers_chunks_are_looked_at(odd: int, told: str):
    events: list[Any] = [("run", 0)]
    for number in range(5):
        rows = torch.tensor([[1.0, 2.0], [3.0, math.nan if number < odd else 4.0]])
        chunk = [SimpleNamespace(get_action=lambda row=row: row) for row in rows]
        events += [("taken", number, number), *_value_rows(number, chunk), ("merge", number + 1, 0, 0, 0, CHUNK, CHUNK)]
    facts = header(command="policy_server", engine="server", chunk=CHUNK, joints=[])
    result = make_answer(facts, read_record(facts, events))
    assert result.rollout.sentence == f"The server made 5 chunks{told}, and no request failed."
    titles = [finding.title for finding in advise(result)][:1]
    assert titles == ["The robot client was sent NaN or infinite actions"] * bool(odd)


def test_answers_with_nothing_are_counted():
    (table,) = [section for section in document(make_unanswered_result()).sections if section.key == "observations"]
    assert ["answers without a chunk", "3"] in [row.cells for row in table.table.rows]  # type: ignore[union-attr]
