"""Summaries, intervals, warm-up and drift, on numbers with known properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from strobe.core.measure.statistics import describe, find_warmup, steps_line, summarise

times = st.lists(st.floats(0, 1e9), min_size=1, max_size=60)


def spiky(random: np.random.Generator, count: int) -> np.ndarray:
    return 10 * random.lognormal(0, 0.03, count) + (random.random(count) < 0.02) * random.exponential(30, count)


def normal(random: np.random.Generator, count: int) -> np.ndarray:
    return random.normal(10, 0.3, count)


@given(times)
def test_summary_is_ordered_and_finite(values):
    summary = summarise(values)
    assert summary.n == len(values)
    assert summary.min <= summary.median <= summary.max
    assert summary.min <= summary.mean <= summary.max
    assert summary.median <= summary.p95 <= summary.max
    assert summary.std >= 0 if len(values) > 1 else summary.std == 0
    assert (summary.interval is None) == (len(values) < 6)
    if summary.interval is not None:
        assert 0 <= summary.interval.low <= summary.median <= summary.interval.high


@given(times, st.randoms())
def test_only_the_interval_depends_on_order(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    one, other = summarise(values), summarise(shuffled)
    of_order = {"mean", "std", "interval"}
    assert one.model_dump(exclude=of_order) == other.model_dump(exclude=of_order)
    assert (one.mean, one.std) == pytest.approx((other.mean, other.std), rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(0.001, 1e6), min_size=6, max_size=60), st.floats(0.01, 100))
def test_summary_scales_with_the_samples(values, factor):
    one, other = summarise(values), summarise([value * factor for value in values])
    assert one.interval
    assert other.interval
    before = [one.median, one.mean, one.min, one.max, one.p95, one.interval.low, one.interval.high]
    after = [other.median, other.mean, other.min, other.max, other.p95, other.interval.low, other.interval.high]
    assert after == pytest.approx([value * factor for value in before])


@pytest.mark.long
@pytest.mark.parametrize(("count", "memory"), [(25, 0.0), (20, 0.5), (60, 0.5), (300, 0.5)])
def test_median_interval_covers_the_median_also_where_neighbours_resemble_each_other(count, memory):
    random = np.random.default_rng(9)
    covered = 0
    for _ in range(300):
        noise = np.asarray(lfilter([0.75**0.5], [1, -memory], random.normal(size=count + 50)))[50:]
        interval = summarise(30 * np.exp(0.03 * noise)).interval
        covered += interval is not None and interval.low <= 30 <= interval.high
    assert covered >= 0.93 * 300


@pytest.mark.parametrize("read", [summarise, find_warmup, describe])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "non-empty"),
        ([1.0, -2.0], "cannot be negative, but value 1 is -2"),
        ([1.0, float("nan")], "finite, but value 1 is nan"),
        ([float("inf")], "finite, but value 0 is inf"),
        ([[1.0, 2.0]], "shape"),
    ],
)
def test_bad_samples_are_named(read, values, message):
    with pytest.raises(ValueError, match=message):
        read(values)


@given(times)
def test_warmup_is_at_most_half(values):
    assert 0 <= find_warmup(values) <= len(values) // 2


@pytest.mark.long
@pytest.mark.parametrize("noise", [normal, spiky])
@pytest.mark.parametrize("count", [20, 50, 200])
def test_stationary_noise_is_not_warmup(noise, count):
    random = np.random.default_rng(count)
    cuts = np.array([find_warmup(noise(random, count)) for _ in range(300)])
    assert (cuts > 0).mean() <= 0.06
    assert (cuts > 0.2 * count).mean() <= 0.02


@pytest.mark.long
@pytest.mark.parametrize(("slower_by", "rounds", "least", "most"), [(3, 2, 6, 30), (1, 5, 10, 40)])
def test_exponential_decay_is_found(slower_by, rounds, least, most):
    random = np.random.default_rng(1)
    decay = 1 + slower_by * np.exp(-np.arange(100) / rounds)
    cuts = np.array([find_warmup(spiky(random, 100) * decay) for _ in range(100)])
    assert least <= np.quantile(cuts, 0.05)
    assert np.quantile(cuts, 0.95) <= most


def test_one_cold_call_is_found_and_a_late_spike_is_not_warmup():
    random = np.random.default_rng(2)
    steady = random.normal(10, 0.2, 40)
    cold, spiked = steady.copy(), steady.copy()
    cold[0], spiked[30] = 500, 500
    assert find_warmup(cold) == 1
    assert find_warmup(spiked) == 0
    assert find_warmup([10.0] * 30) == 0


@pytest.mark.long
@pytest.mark.parametrize("count", [20, 60, 300])
def test_a_quiet_run_has_no_notes(count):
    random = np.random.default_rng(count)
    noted = sum(bool(describe(normal(random, count))) for _ in range(150))
    assert noted <= 3
    assert describe([10.0] * count) == []


@pytest.mark.long
def test_neighbours_that_resemble_each_other_are_not_called_drift():
    random = np.random.default_rng(5)
    fired = 0
    for _ in range(60):
        noise = np.zeros(200)
        for at in range(1, 200):
            noise[at] = 0.6 * noise[at - 1] + random.normal()
        fired += bool(describe(10 + 0.25 * noise))
    assert fired <= 2


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (lambda at: 1 + 0.15 * at, "times drift up by 1"),
        (lambda at: 1 - 0.15 * at, "times drift down by 1"),
        (lambda at: 1 + 0.08 * (at > 0.6), "a step up of 8"),
        (lambda at: np.where(np.arange(len(at)) % 5 < 2, 1.4, 1.0), "120 of 200 near 10.01 ms and 80 near 14.01 ms"),
        (lambda at: np.where(np.arange(len(at)) % 50 == 7, 9.0, 1.0), "4 of 200 samples took more than twice"),
    ],
)
def test_what_was_planted_is_noted(shape, says):
    random = np.random.default_rng(6)
    notes = " ".join(describe(10 * shape(np.arange(200) / 200) * random.lognormal(0, 0.005, 200)))
    assert says in notes


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (lambda at: at > 0.5, "a step up after 50 % of the run, from 0 to "),
        (lambda at: at > 0.7, "a step up after 70 % of the run, from 0 to "),  # its median is 0
        (lambda at: at, "times drift up from 0"),
        (lambda at: at <= 0.5, "a step down of 100.0 % after 50 %"),
        (lambda at: np.maximum(1e-130, at > 0.5), "e-130 to "),
    ],
)
def test_a_change_from_nothing_is_noted_and_is_no_ratio(shape, says):
    random = np.random.default_rng(7)
    [note, *_] = describe(10 * shape(np.arange(200) / 199) * random.lognormal(0, 0.02, 200))
    assert says in note
    assert len(note) < 120
    assert describe([0.0] * 40) == []


def test_wide_noise_is_noted_and_long_runs_are_described():
    notes = describe(np.random.default_rng(7).uniform(5, 15, 100))
    assert any(note.startswith("noisy: the middle half") for note in notes)
    random = np.random.default_rng(8)
    assert "drift up by 20" in " ".join(describe(normal(random, 30_000) * np.linspace(1, 1.2, 30_000)))


STEPS = (1, 2, 5, 10)


def test_it_finds_the_line_that_the_medians_lie_on():
    found = steps_line("chunk", {count: [20 + 3.0 * count, 20 + 3.0 * count, 500.0] for count in STEPS})
    assert found.fixed_ms == pytest.approx(20)
    assert found.per_step_ms == pytest.approx(3)
    assert found.one_step_ms == pytest.approx(23)
    assert found.predicted[5] == pytest.approx(35)
    assert found.fixed_interval is None, "three rounds show no spread"
    assert steps_line("chunk", {4: [1.0] * 9}) is None
    with pytest.raises(ValueError, match="as many samples"):
        steps_line("chunk", {1: [], 2: []})


def test_its_intervals_hold_the_truth_and_what_slows_a_round_alike_is_no_slope():
    random, held = np.random.default_rng(3), []
    for _ in range(100):
        shared = random.exponential(2.0, size=15) - 2.0 * np.log(2)  # median 0, the same for all in a round
        made = {count: 20 + 3 * count + shared + random.normal(0, 0.2, 15) for count in STEPS}
        found = steps_line("chunk", made, resamples=400)
        fixed, each = found.fixed_interval, found.per_step_interval
        held.append((fixed.low <= 20 <= fixed.high, each.low <= 3 <= each.high, each.high - each.low))
    assert np.mean([one[0] for one in held]) > 0.88
    assert np.mean([one[1] for one in held]) > 0.88
    assert np.median([one[2] for one in held]) < 0.25, "rounds drawn apart from each other would make it 0.6 wide"
