"""Rounds of samples: their order, their warm-up, and when they stop."""

from collections.abc import Callable

import numpy as np
import pytest

from strobe.core.measure.sampling import Progress, SamplingBudget, collect
from strobe.core.measure.verdicts import paired_verdict


class Bench:
    """Calls that take fake time: each name's times come from a function of how often it was called."""

    def __init__(self, **times: Callable[[int], float]) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self.calls = {name: self._call(name, took) for name, took in times.items()}

    def _call(self, name: str, took: Callable[[int], float]) -> Callable[[], float]:
        def call() -> float:
            ms = took(self.order.count(name))
            self.order.append(name)
            self.now += ms / 1e3
            return ms

        return call

    def collect(self, budget: SamplingBudget, progress: Callable[[Progress], None] | None = None):
        return collect(self.calls, budget, progress, clock=lambda: self.now)


def noisy(seed: int, centre: float = 10.0, spread: float = 0.02) -> Callable[[int], float]:
    random = np.random.default_rng(seed)
    return lambda _: centre * float(random.lognormal(0, spread))


def interrupting(at: int) -> Callable[[int], float]:
    def took(count: int) -> float:
        if count == at:
            raise KeyboardInterrupt
        return 10.0 + count

    return took


def test_two_names_alternate():
    bench = Bench(a=noisy(0), b=noisy(1))
    bench.collect(SamplingBudget(iterations=5))
    assert "".join(bench.order) == "abba" * 3


def test_more_names_are_shuffled_and_mirrored():
    bench = Bench(a=noisy(0), b=noisy(1), c=noisy(2))
    collected = bench.collect(SamplingBudget(iterations=59))
    rounds = np.array(bench.order).reshape(-1, 3)
    assert all(sorted(entry) == ["a", "b", "c"] for entry in rounds)
    assert all((rounds[at] == rounds[at + 1][::-1]).all() for at in range(0, len(rounds) - 1, 2))
    assert len({tuple(entry) for entry in rounds}) == 6
    assert list(collected.samples) == ["a", "b", "c"]
    again = Bench(a=noisy(0), b=noisy(1), c=noisy(2))
    again.collect(SamplingBudget(iterations=59))
    assert again.order == bench.order


def test_fixed_iterations_are_kept_beside_the_warmup():
    bench = Bench(a=lambda count: 200.0 if count < 3 else 10 + 0.01 * (count % 5), b=lambda _: 10.0)
    collected = bench.collect(SamplingBudget(iterations=30))
    assert collected.warmup_rounds == 3
    assert collected.rounds == 33
    assert collected.stopped_because == "30 iterations were measured"
    assert not collected.interrupted
    for samples in collected.samples.values():
        assert (len(samples.warmup), len(samples.values)) == (3, 30)
        assert samples.summary.n == 30
    quiet = Bench(a=lambda _: 10.0).collect(SamplingBudget(iterations=4))
    assert (quiet.warmup_rounds, quiet.rounds) == (1, 5), "the first round is always warm-up"


def test_stops_once_the_interval_is_narrow():
    quiet = Bench(a=noisy(0, spread=0.005)).collect(SamplingBudget(settle_s=0))
    rough = Bench(a=noisy(0, spread=0.05)).collect(SamplingBudget(settle_s=0))
    assert quiet.stopped_because == rough.stopped_because == "the intervals are narrower than ±1 %"
    assert quiet.rounds < 30 < rough.rounds
    summary = rough.samples["a"].summary
    assert summary.interval is not None
    assert (summary.interval.high - summary.interval.low) / 2 <= 0.01 * summary.median


def test_a_comparison_goes_on_until_the_ratio_is_narrow():
    bench = Bench(a=noisy(0, spread=0.05), b=noisy(1, 10.4, spread=0.05))
    collected = bench.collect(SamplingBudget())
    verdict = paired_verdict(collected.samples["a"].values, collected.samples["b"].values)
    assert (verdict.interval.high - verdict.interval.low) / 2 <= 0.01 * verdict.ratio
    assert verdict.kind == "slower"


def test_one_ratio_may_be_the_one_that_counts():
    calls = {"a": noisy(0, spread=0.005), "b": noisy(1, spread=0.2), "c": noisy(2, spread=0.005)}
    whole = Bench(**calls).collect(SamplingBudget(settle_s=0))
    last = Bench(**calls).collect(SamplingBudget(of="c", settle_s=0))
    assert last.rounds < 40 < whole.rounds
    verdict = paired_verdict(last.samples["a"].values, last.samples["c"].values)
    assert (verdict.interval.high - verdict.interval.low) / 2 <= 0.01 * verdict.ratio
    alone = Bench(a=calls["a"]).collect(SamplingBudget(of="a"))
    assert alone.stopped_because == "the intervals are narrower than ±1 %"


@pytest.mark.parametrize("slow_calls", [30, 76, 95])
def test_a_slow_state_at_the_beginning_does_not_end_the_run(slow_calls):
    usual = noisy(0, 31.8, spread=0.002)
    bench = Bench(a=lambda count: usual(count) * (1.055 if count < slow_calls else 1))
    samples = bench.collect(SamplingBudget()).samples["a"]
    assert samples.summary.median == pytest.approx(31.8, rel=0.005)
    assert bench.now < 15


def test_a_state_of_one_variant_alone_makes_no_difference():
    usual, other = noisy(0, 20.0, spread=0.005), noisy(1, 20.0, spread=0.005)
    bench = Bench(a=usual, b=lambda count: other(count) * (1.05 if count < 40 else 1))
    collected = bench.collect(SamplingBudget())
    verdict = paired_verdict(collected.samples["a"].values, collected.samples["b"].values)
    assert verdict.kind == "no difference shown"


def test_the_longest_state_that_would_be_seen_is_kept():
    samples = Bench(a=lambda count: 500.0 if not count else 100.0).collect(SamplingBudget(iterations=30)).samples["a"]
    assert samples.longest_state_s == pytest.approx(2.3)


def test_times_that_drift_are_sampled_until_the_seconds_are_spent():
    usual = noisy(0, 20.0, spread=0.002)
    drifting = Bench(a=lambda count: usual(count) * (1 + count * 1e-4)).collect(SamplingBudget(seconds=20))
    assert drifting.stopped_because == "the budget of 20 s was spent"


@pytest.mark.long
def test_stopping_early_keeps_the_level():
    claims = 0
    for seed in range(100):
        collected = Bench(a=noisy(seed, spread=0.04), b=noisy(1000 + seed, spread=0.04)).collect(
            SamplingBudget(precision=0.02)
        )
        values = [samples.values for samples in collected.samples.values()]
        claims += paired_verdict(*values).kind in ("faster", "slower")
    assert claims <= 4


def test_a_machine_that_became_busy_still_gives_the_fewest_rounds():
    def slow_down(count: int) -> float:
        return 1000.0 if count < 2 else 2500.0

    budget = SamplingBudget(seconds=12.0, fewest=8)
    collected = Bench(a=slow_down).collect(budget)
    assert len(collected.samples["a"].values) == 8
    assert collected.stopped_because == "the budget of 12 s was spent"
    assert len(Bench(a=slow_down).collect(SamplingBudget(seconds=12.0)).samples["a"].values) < 6

    def get_stuck(count: int) -> float:
        return 1000.0 if count < 2 else 10_000.0

    bench = Bench(a=get_stuck)
    bench.collect(budget)
    assert bench.now <= 36.0, "its patience has an end"


@pytest.mark.parametrize("call_s", [2.5, 5.0, 10.0, 60.0])
def test_only_seconds_of_the_users_own_end_a_run_that_cannot_be_judged(call_s):
    seen: list[Progress] = []
    bench = Bench(a=lambda _: 1000 * call_s, b=lambda _: 800 * call_s)
    assert bench.collect(SamplingBudget.make_requested(None, None), seen.append).rounds == 7
    assert (seen[1].expected, seen[1].seconds_left) == (7, pytest.approx(5 * 1.8 * call_s))
    assert seen[1].unit == "rounds (7 are the fewest that can be judged)"
    own = bench.collect(SamplingBudget.make_requested(None, 30.0))
    assert own.rounds == max(3, 30 // (1.8 * call_s)), "their own seconds end it, after a warm-up and two samples"
    few = f"only {own.rounds - 1} samples after warm-up (the budget of 30 s was spent)"
    assert [note.startswith(few) for note in own.samples["a"].notes[:1]] == [True]


def test_a_long_first_call_does_not_end_the_sampling():
    collected = Bench(a=lambda count: 50_000.0 if count == 0 else noisy(count)(0)).collect(SamplingBudget(seconds=60))
    assert collected.stopped_because.startswith("the intervals")


@pytest.mark.parametrize("culprit", ["a", "b"])
def test_ctrl_c_keeps_the_complete_rounds(culprit):
    other = "b" if culprit == "a" else "a"
    bench = Bench(**dict(sorted({culprit: interrupting(8), other: lambda _: 20.0}.items())))
    collected = bench.collect(SamplingBudget(iterations=100))
    assert collected.interrupted
    assert collected.stopped_because == "interrupted"
    assert collected.rounds == 8
    for samples in collected.samples.values():
        assert len(samples.warmup) + len(samples.values) == 8


def test_ctrl_c_in_the_progress_keeps_the_round():
    def progress(state: Progress) -> None:
        if state.done == 4:
            raise KeyboardInterrupt

    assert Bench(a=noisy(0)).collect(SamplingBudget(iterations=9), progress).rounds == 4


def test_ctrl_c_after_one_round_keeps_it_and_says_so_and_before_it_passes_through():
    collected = Bench(a=interrupting(1)).collect(SamplingBudget(iterations=9))
    assert (collected.rounds, collected.warmup_rounds) == (1, 0)
    assert any("first call" in note for note in collected.samples["a"].notes)
    with pytest.raises(KeyboardInterrupt):
        Bench(a=interrupting(0)).collect(SamplingBudget(iterations=9))


def test_other_errors_pass_through():
    def raise_out_of_memory() -> float:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        collect({"a": raise_out_of_memory}, SamplingBudget())
    with pytest.raises(ValueError, match="no calls"):
        collect({}, SamplingBudget())


def test_progress_counts_up_to_what_it_expects():
    seen: list[Progress] = []
    collected = Bench(a=noisy(0)).collect(SamplingBudget(iterations=12), seen.append)
    assert [state.done for state in seen] == list(range(1, collected.rounds + 1))
    assert seen[3].expected == 13
    assert seen[3].seconds_left == pytest.approx(9 * 0.01, rel=0.2)
    assert (seen[-1].expected, seen[-1].seconds_left) == (collected.rounds, 0)


def test_progress_expects_no_more_than_the_seconds_allow():
    seen: list[Progress] = []
    Bench(a=lambda _: 1000.0).collect(SamplingBudget(iterations=1000, seconds=20), seen.append)
    assert seen[5].expected == 20
    assert seen[5].seconds_left == pytest.approx(14)


@pytest.mark.parametrize("ms", [-1.0, float("nan"), float("inf")])
def test_impossible_times_are_refused(ms):
    with pytest.raises(ValueError, match="slowpoke: "):
        collect({"slowpoke": lambda: ms}, SamplingBudget())


@pytest.mark.parametrize(
    "wrong",
    [{"iterations": 0}, {"seconds": 0.0}, {"precision": float("nan")}, {"min_iterations": 0}, {"settle_s": -1.0}],
)
def test_impossible_budgets_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplingBudget(**wrong)
