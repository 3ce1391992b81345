"""`strobe.compare` in Python: verdicts, outputs and what is refused, by a clock of the test's own."""

from __future__ import annotations

import concurrent.futures
import functools
import json
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from support.fakes.sleeper import Clock
from torch import nn

import strobe
from strobe.core.errors import UserError
from strobe.core.python import ShownAnswer
from strobe.core.runs import store

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Target = Callable[[Any], Any]


def taking(clock: Clock, ms: float, answer: Target = lambda x: x) -> Target:
    def function(x: Any) -> Any:
        clock.sleep(ms / 1e3)
        return answer(x)

    return function


def run_comparison(variants: dict[str, Any], inputs: Any = X, **arguments: Any) -> ShownAnswer[Any]:
    return strobe.compare(variants, inputs, seconds=arguments.pop("seconds", 5), **arguments)


def test_a_function_against_itself_shows_no_difference(clock: Clock):
    same = taking(clock, 20.0)
    answer = run_comparison({"a": same, "b": same})
    (pair,) = answer.comparisons
    assert pair.verdict.kind == "no difference shown"
    assert pair.verdict.within == 0.02
    assert answer.status == "complete"
    assert answer.command == []
    assert "`b` returns the same numbers as `a`." in repr(answer)


def test_a_slower_one_is_found_and_the_medians_are_its_own(clock: Clock):
    answer = run_comparison({"a": taking(clock, 20.0), "b": taking(clock, 20.6)})
    (pair,) = answer.comparisons
    assert pair.verdict.kind == "slower"
    assert pair.verdict.interval.low < 1.03 < pair.verdict.interval.high
    assert answer.measurements[0].samples.summary.median == pytest.approx(20.0, rel=0.02)


def test_outputs_that_differ_are_told_and_not_judged_without_a_guard(clock: Clock):
    answer = run_comparison({"a": taking(clock, 20.0), "b": taking(clock, 20.0, lambda x: x + 0.25)})
    (pair,) = answer.comparisons
    assert pair.agreement.of == "outputs"
    assert pair.agreement.largest_error == 0.25
    assert pair.agreement.distinct == 1
    assert (pair.guard, pair.outcome) == (None, None)
    assert "no guard was given" in pair.agreement.note
    assert pair.agreement.rms is None
    assert not any(finding.rule.startswith(("guard", "exact")) for finding in answer.findings)


@pytest.mark.parametrize(
    ("guard", "outcome"),
    [("largest_error<=0.5", "held"), ("largest_error<=0.1", "broken"), ("rms<=0.02", "not judged")],
)
def test_a_guard_judges_what_can_be_measured(clock: Clock, guard: str, outcome: str):
    answer = run_comparison(
        {"a": taking(clock, 20.0), "b": taking(clock, 20.0, lambda x: x + 0.25)}, guard=guard, seconds=1
    )
    (pair,) = answer.comparisons
    assert pair.outcome == outcome
    assert ("no spread" in (pair.unjudged or "")) == (outcome == "not judged")
    words = {"held": "within the limits", "broken": "exceed their limit", "not judged": "were not checked"}
    assert words[outcome] in repr(answer)


def test_outputs_of_other_shapes_are_not_compared(clock: Clock):
    answer = run_comparison({"a": taking(clock, 20.0), "b": taking(clock, 20.0, lambda x: x.T)}, seconds=1)
    (pair,) = answer.comparisons
    assert "(3, 2) in place of (2, 3)" in pair.agreement.unjudged
    assert pair.agreement.observations == 0
    guarded = run_comparison(
        {"a": taking(clock, 20.0), "b": taking(clock, 20.0, lambda x: x.T)}, seconds=1, guard="cosine>=0"
    )
    assert guarded.comparisons[0].outcome == "not judged"


def test_outputs_without_numbers_are_not_compared(clock: Clock):
    answer = run_comparison({"a": taking(clock, 20.0), "b": taking(clock, 20.0, lambda _: "word")}, seconds=1)
    assert answer.comparisons[0].agreement is None
    assert any("b returns no numbers to compare, but str" in note for note in answer.caveats)
    for nothing in (None, lambda: X, object()):  # the work may go on in a thread, or not have begun
        answer = run_comparison(
            {"a": taking(clock, 20.0), "b": taking(clock, 1.0, lambda _, it=nothing: it)}, seconds=1
        )
        assert repr(answer).startswith("Not judged: `b` returns no numbers to compare, so its work may go on")
        assert answer.comparisons[0].verdict.kind == "inconclusive"


def test_a_difference_that_float32_cannot_hold_is_seen(clock: Clock):
    wide = np.ones(3)  # beside 1, float32 holds no 1e-12
    answer = run_comparison({"a": taking(clock, 20.0), "b": taking(clock, 20.0, lambda x: x + 1e-12)}, wide, seconds=1)
    assert 0 < answer.comparisons[0].agreement.largest_error < 1e-11


def test_a_list_is_several_inputs_and_a_tuple_the_arguments_of_one_call(clock: Clock):
    seen: list[tuple[int, int]] = []

    def both(a: int, b: int) -> int:
        clock.sleep(0.02)
        seen.append((a, b))
        return a + b

    answer = run_comparison({"a": both, "b": both}, [(1, 2), (3, 4)], seconds=1)
    assert set(seen) == {(1, 2), (3, 4)}
    assert answer.comparisons[0].agreement.distinct == 2
    assert answer.measurements[0].traits.call.inputs == 2


def test_a_dict_is_one_argument_which_the_next_call_gets_without_what_was_put_in(clock: Clock):
    class Policy:
        def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
            clock.sleep(0.02)
            assert set(observation) == {"state"}
            observation["extra"] = 1
            return {"actions": observation["state"], "timing": {"infer_ms": random.random()}}

    answer = run_comparison({"a": Policy(), "b": Policy()}, {"state": X}, seconds=1)
    assert answer.subject.kind == "object with infer()"
    assert answer.comparisons[0].agreement.largest_error == 0


def test_select_action_is_reset_before_each_call(clock: Clock):
    class Queued:
        def __init__(self) -> None:
            self.queue: list[Any] = []

        def reset(self) -> None:
            self.queue = []

        def select_action(self, observation: Any) -> Any:
            if not self.queue:
                clock.sleep(0.02)
                self.queue = [observation] * 10
            return self.queue.pop()

    answer = run_comparison({"a": Queued(), "b": Queued()}, seconds=1)
    assert answer.measurements[0].samples.summary.min > 15


def test_the_same_seed_is_drawn_from_by_all_and_put_back(clock: Clock):
    def noisy(x: Any) -> Any:
        clock.sleep(0.02)
        return torch.randn(3).numpy() + np.random.standard_normal(3) + random.random()

    torch.manual_seed(7)
    expected = torch.randn(1)
    torch.manual_seed(7)
    answer = run_comparison({"a": noisy, "b": noisy}, seconds=1)
    assert answer.comparisons[0].agreement.largest_error == 0
    assert torch.equal(torch.randn(1), expected)


def test_one_that_answers_differently_each_time_is_told(clock: Clock):
    count = iter(range(10**6))
    answer = run_comparison({"a": taking(clock, 20.0), "b": taking(clock, 20.0, lambda x: x + next(count))}, seconds=1)
    assert any(note.startswith("b does not answer one input twice in the same way") for note in answer.caveats)
    assert not any(note.startswith("a does not answer") for note in answer.caveats)


def test_one_that_changes_its_input_gets_a_copy_each_time(clock: Clock):
    def halving(x: Any) -> Any:
        clock.sleep(0.02)
        x["state"] /= 2
        return x["state"]

    given = {"state": torch.ones(3)}
    answer = run_comparison({"a": taking(clock, 20.0, lambda x: x["state"]), "b": halving}, given, seconds=1)
    assert torch.equal(given["state"], torch.ones(3))
    assert answer.comparisons[0].agreement.largest_error == 0.5


def test_one_that_changes_an_object_in_its_input_is_told(clock: Clock):
    class Observation:
        state = 1

    def changing(observation: Any) -> Any:
        clock.sleep(0.02)
        observation.state = observation.state + 1
        return X

    answer = run_comparison({"a": taking(clock, 20.0, lambda _: X), "b": changing}, Observation(), seconds=1)
    assert [note for note in answer.caveats if "changes" in note] == [
        "b changes an object in its inputs: later calls did not see what the first saw"
    ]


def test_one_that_ends_the_program_is_refused(clock: Clock):
    with pytest.raises(UserError, match="'b' failed on input 1 of 1: SystemExit"):
        run_comparison({"a": taking(clock, 20.0), "b": lambda x: sys.exit(3)})


class Broker:
    """A queue of actions that each tenth call fills, as openpi-client's ActionChunkBroker has one."""

    def __init__(self, clock: Clock, ms: float) -> None:
        self.clock, self.ms, self.calls = clock, ms, 0

    def infer(self, x: Any) -> Any:
        self.clock.sleep(self.ms / 1e3 if self.calls % 10 == 0 else 1e-4)
        self.calls += 1
        return x

    def reset(self) -> None:
        self.calls = 0


def test_what_an_object_keeps_between_its_resets_counts_for_the_guard(clock: Clock):
    class Decaying(Broker):
        def __init__(self, share: float) -> None:
            super().__init__(clock, 20.0)
            self.share = share

        def reset(self) -> None:
            self.kept = 0 * X

        def infer(self, x: Any) -> Any:
            super().infer(x)
            self.kept = self.share * self.kept + x
            return self.kept

    for share, outcome in ((0.6, "broken"), (0.5, "held")):
        answer = run_comparison({"a": Decaying(0.5), "b": Decaying(share)}, guard="largest_error<=1e-6")
        (comparison,) = answer.comparisons
        assert ("broken" if comparison.broken else "held") == outcome
        assert "in a row, without a reset between them" in (comparison.broken or comparison.agreement.note)


def test_a_first_call_that_hangs_is_told(clock: Clock):
    def hangs(x: Any) -> Any:
        clock.sleep(0.02 if calls else 3.0)
        calls.append(x)
        return x

    calls: list[Any] = []
    answer = run_comparison({"a": taking(clock, 20.0), "b": hangs})
    (told,) = [note for note in answer.notes if note.startswith("the first call")]
    assert re.fullmatch("the first call of b took [23].* s, and a later one .* ms: it is in no figure", told)


@pytest.mark.parametrize("bound", [False, True])
def test_a_queue_of_actions_is_emptied_before_each_call(clock: Clock, bound: bool):
    slow, fast = Broker(clock, 20.0), Broker(clock, 10.0)
    answer = run_comparison({"a": slow.infer, "b": fast.infer} if bound else {"a": slow, "b": fast})
    assert answer.comparisons[0].verdict.kind == "faster"
    assert answer.comparisons[0].verdict.ratio == pytest.approx(0.5, rel=0.05)


def test_a_queue_that_cannot_be_emptied_is_not_judged_by_its_typical_call(clock: Clock):
    queue, half = Broker(clock, 30.0), Broker(clock, 15.0)
    steady = taking(clock, 2.0)
    for other, change in ((steady, r"\+5\d\.\d %"), (lambda x: half.infer(x), r"\+9\d\.\d %")):
        answer = run_comparison({"a": other, "b": lambda x: queue.infer(x)})
        verdict = answer.comparisons[0].verdict
        assert (verdict.kind, verdict.cause, verdict.within) == ("inconclusive", "a queue", None)
        assert re.search(f"The means of all calls differ by {change}", verdict.detail)
        assert "few-calls-work" in [finding.rule for finding in answer.findings]


def test_the_parts_of_a_queue_are_not_shown_as_those_of_a_call(clock: Clock):
    queue = Broker(clock, 30.0)
    answer = strobe.breakdown(lambda x: queue.infer(x), X, seconds=2, count=False)
    assert "of the time, 30 ms each." in repr(answer)
    assert "The mean of all calls is 3" in repr(answer)


def test_results_that_are_still_computed_are_waited_for(clock: Clock):
    class Later:
        """An array as JAX's are: it is there at once, and its numbers are not."""

        dtype, shape = np.dtype(np.float32), (2, 3)

        def __init__(self) -> None:
            self.done = False

        def block_until_ready(self) -> Later:
            if not self.done:
                clock.sleep(0.02)
            self.done = True
            return self

        def __array__(self, *_: Any, **__: Any) -> Any:
            assert self.done
            return X

    answer = run_comparison({"a": lambda _: Later(), "b": lambda _: {"actions": Later()}}, seconds=1)
    assert answer.measurements[0].samples.summary.median == pytest.approx(20.0, rel=0.05)
    assert answer.measurements[1].samples.summary.median == pytest.approx(20.0, rel=0.05)


def test_jax_arrays_are_copied_and_waited_for_and_keys_are_compared():
    jax = pytest.importorskip("jax")
    x, kept, key = jax.numpy.full((300, 300), 1e-3), [], jax.random.key(0)
    donating = jax.jit(lambda x: x + 1, donate_argnums=0)
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 99, lambda _, y: x @ y, x))

    def keeps(x: Any) -> float:
        kept[:] = [slow(x)]
        return 1.0

    run_comparison({"donating": donating, "plain": lambda x: x + 1}, x, seconds=0.2)
    assert not x.is_deleted()
    assert strobe.verify(jax.random.split, jax.random.split, key, guard="largest_error<=0").outcome == "held"
    waited, left = (strobe.breakdown(each, x, seconds=0.5).measurements[0] for each in (slow, keeps))
    assert left.samples.summary.median > waited.samples.summary.median / 2


def test_gradients_and_training_mode_are_told(clock: Clock):
    class Slow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside: nn.Module = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            clock.sleep(0.02)
            return self.inside(x)

    module = Slow()
    answer = run_comparison({"plain": module, "wrapped": torch.no_grad()(module.forward)}, torch.ones(2, 3), seconds=1)
    assert any(note.startswith("plain records gradients") for note in answer.notes)
    assert not any(note.startswith("wrapped records gradients") for note in answer.notes)
    assert any(note.startswith("plain has modules in training mode") for note in answer.caveats)
    module.inside = torch.jit.freeze(torch.jit.script(module.eval().inside))  # has no flag `training`
    quiet = run_comparison({"a": module, "b": module}, (torch.ones(2, 3),), seconds=1)
    assert not any("training mode" in note for note in quiet.notes)


def test_an_interrupt_keeps_what_was_measured(clock: Clock):
    calls = iter(range(10**6))

    def interrupt_call(x: Any) -> Any:
        clock.sleep(0.02)
        if next(calls) == 30:
            raise KeyboardInterrupt
        return x

    answer = run_comparison({"a": taking(clock, 20.0), "b": interrupt_call})
    assert answer.status == "interrupted"
    assert 20 < len(answer.measurements[0].samples.values) < 30
    assert answer.comparisons[0].verdict.pairs == len(answer.measurements[0].samples.values)


def test_an_answer_is_kept_and_read_again_as_any_run(clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    answer = run_comparison({"eager": taking(clock, 20.0), "slow": taking(clock, 30.0)}, name="my policy", seconds=1)
    folder = answer.save(tmp_path)
    assert folder.parent == tmp_path
    assert {"result.json", "report.html", "trace.json.gz"} <= {file.name for file in folder.iterdir()}
    assert store.load(folder) == answer.result
    assert json.loads((folder / "result.json").read_text())["subject"]["name"] == "my policy"
    answer.show()
    shown = capsys.readouterr().out
    assert "slower than `eager`." in shown
    assert "show(full=True)" in shown
    assert "--full" not in shown


def test_its_figures_are_a_table(clock: Clock):
    pytest.importorskip("pandas")
    answer = run_comparison({"eager": taking(clock, 20.0), "slow": taking(clock, 30.0)}, seconds=1)
    table = answer.to_pandas()
    assert list(table["name"]) == ["eager", "slow"]
    assert table["median_ms"][1] == pytest.approx(30.0, rel=0.02)
    samples = answer.to_pandas(samples=True)
    kept = samples[(samples["name"] == "slow") & ~samples["warmup"]]
    assert list(kept["ms"]) == answer.measurement("slow").samples.values


@pytest.mark.parametrize(
    ("variants", "inputs", "words"),
    [
        ({"a": len}, "x", "two variants or more"),
        ([len, len], "x", "two variants or more"),
        ({"a": 3, "b": len}, "x", "'a' is of type int and cannot be called"),
        ({"a": len, "b": dict}, "x", "'b' is the class dict: pass an object of it"),
        ({"a": len, "b": len}, [], "no inputs"),
        ({"a": len, 3: len}, "x", "the name of a variant"),
        ({"a": len, "b": np.linalg.inv}, X, "'b' failed on input 1 of 1: LinAlgError"),
        ({"a": len, "b": len}, ["x", 5], "'a' failed on input 2 of 2: TypeError"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(variants: Any, inputs: Any, words: str):
    with pytest.raises(UserError, match=words) as refused:
        strobe.compare(variants, inputs, seconds=0.1)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("seconds", 0, "seconds=0"),
        ("interval", float("nan"), "interval=nan"),
        ("guard", "speed<=3", "no figure 'speed'"),
        ("device", "fpga", "no fpga device"),
        ("seed", -1, "seed=-1"),
    ],
)
def test_a_bad_argument_is_refused_by_its_name(argument: str, value: Any, words: str):
    with pytest.raises(UserError, match=words):
        strobe.compare({"a": len, "b": len}, "x", **{argument: value})


def test_the_cause_of_a_failure_is_the_variants_own():
    def failing(_: Any) -> None:
        raise ZeroDivisionError("by\nnought")

    with pytest.raises(UserError, match="ZeroDivisionError: by nought") as refused:
        strobe.compare({"a": failing, "b": failing}, "x")
    assert isinstance(refused.value.__cause__, ZeroDivisionError)


def test_advice_names_arguments_and_not_flags(clock: Clock):
    answer = run_comparison({"a": taking(clock, 20.0), "b": taking(clock, 20.0)}, seconds=0.2)
    few = next(finding for finding in answer.findings if finding.rule == "few-samples")
    assert few.do.startswith("Measure longer: seconds=120")


def test_progress_in_a_notebook_is_plain_lines(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("strobe.core.cli.live.Console", functools.partial(Console, force_jupyter=True))
    run_comparison({"a": taking(clock, 20.0), "b": taking(clock, 20.0)}, seconds=0.2)
    assert "… first calls of a\n… first calls of b\n… inference: a, b\n" in capsys.readouterr().err


async def _later(x: Any) -> Any:
    return x


def _one_by_one(x: Any) -> Iterator[Any]:
    yield x


def _make_promise(x: Any) -> dict[str, Any]:
    promise: concurrent.futures.Future[Any] = concurrent.futures.Future()
    promise.set_result(x)
    return {"actions": promise}


class Handle:
    def wait(self, timeout: float | None = None) -> None: ...


LAZY = {
    "coroutine": _later, "generator": _one_by_one, "map": lambda x: map(abs, x), "Future": _make_promise,
    "ApplyResult": lambda x: ThreadPool(1).apply_async(abs, (x,)), "partial": lambda x: functools.partial(abs, x),
    "Thread": lambda _: {"a": 1, "work": threading.Thread()}, "Handle": lambda x: [x, Handle()],
}  # fmt: skip


@pytest.mark.parametrize("kind", LAZY)
def test_what_has_not_run_when_it_is_returned_is_no_result(kind: str, clock: Clock):
    """A coroutine comes back at once: it was "faster by a factor of 2,455" than the same work."""
    same = taking(clock, 20.0)
    with pytest.raises(UserError, match=f"'lazy' returned a {kind}, which "):
        run_comparison({"same": same, "lazy": LAZY[kind]})
    with pytest.raises(UserError, match=kind):
        strobe.breakdown(LAZY[kind], X, seconds=1)
    assert strobe.verify(same, LAZY[kind], X, guard="largest_error<=1").outcome != "held"
