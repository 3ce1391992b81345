"""Findings from what profilers saw: none on a healthy run, and none that the profiler's own cost explains."""

from __future__ import annotations

from support.findings_results import measured, result, rules

from strobe.results.profiles import GapCause, Gaps, LongGap, OperatorProfile, PythonFunction, PythonProfile

MINE = {"device-idle", "host-delay", "many-small-operators", "python-time"}


def gaps(idle: float, span: float = 100.0, exposed: float = 1.0, long: float = 0.0) -> Gaps:
    causes = [GapCause(cause="nothing was launched yet", gaps=120, ms=idle)]
    return Gaps(
        span_ms=span,
        busy_ms=span - idle,
        idle_ms=idle,
        threshold_us=10,
        gaps=120,
        gaps_ms=idle,
        causes=causes,
        exposed=exposed,
        long_ms=long,
        longest=[LongGap(ms=long, after="aten::add", before="")] if long else [],
    )


def operators(**fields) -> OperatorProfile:
    return OperatorProfile(measurement="inference", iteration_ms=100, operator_calls=5000, **fields)


def python(**fields) -> PythonProfile:
    functions = [
        PythonFunction(name="torch.conv2d", where="built in", calls=4, own_ms=50, cumulative_ms=50),
        PythonFunction(name="forward", where="lerobot/policies/x.py:10", calls=1, own_ms=31.5, cumulative_ms=90),
    ]
    return PythonProfile(
        tool="cprofile", measurement="inference", iterations=3, iteration_ms=120, functions=functions, **fields
    )


def found(device="cpu", whole=100.0, **profiles):
    drawn = rules(result(measured({"policy": 0.9 * whole}, whole=whole), device=device, **profiles))
    return {rule: finding for rule, finding in drawn.items() if rule in MINE or rule == "rule-failed"}


def test_a_healthy_run_has_none():
    assert found() == {}
    assert found(operators=operators(host=gaps(19)), python=python(host=gaps(19))) == {}
    healthy = operators(host=gaps(90), device=gaps(19), kernel_median_us=9, kernel_calls=1000)
    assert found("cuda:0", operators=healthy, python=python(host=gaps(90), device=gaps(19))) == {}


def test_a_device_that_waits():
    drawn = found("cuda:0", operators=operators(host=gaps(5), device=gaps(35)))
    assert list(drawn) == ["device-idle"]
    finding = drawn["device-idle"]
    assert "35 %" in finding.title
    assert "nothing was launched yet 35 ms" in finding.seen
    assert finding.evidence["idle_share"] == 0.35


def test_what_the_profiler_added_is_not_held_against_the_run():
    slowed = gaps(60, span=150)
    assert "20 %" in found("cuda:0", operators=operators(device=gaps(70, span=150)))["device-idle"].title
    assert found("cuda:0", operators=operators(device=slowed)) == {}
    assert found(operators=operators(host=slowed), python=None) == {}
    assert found(python=python(host=slowed)) == {}
    nested = gaps(60, span=150, exposed=0.5)  # half of what was added lies inside operators
    assert found(operators=operators(host=nested))["many-small-operators"].evidence["between_share"] == 0.35


def test_many_small_kernels():
    drawn = found("cuda:0", operators=operators(device=gaps(5), kernel_median_us=3.2, kernel_calls=4321))
    assert list(drawn) == ["many-small-operators"]
    assert "4,321" in drawn["many-small-operators"].seen
    assert "3.2 µs" in drawn["many-small-operators"].seen


def test_time_between_operators_on_a_cpu():
    assert list(found(operators=operators(host=gaps(30)))) == ["many-small-operators"]
    assert found("mps", operators=operators(host=gaps(90))) == {}  # its operators only launch work


def test_a_few_long_gaps_on_a_cpu_are_a_host_that_is_held_up():
    drawn = found(operators=operators(host=gaps(30, long=16)))
    assert list(drawn) == ["host-delay"]
    assert "The longest gap: 16 ms after aten::add." in drawn["host-delay"].seen
    assert drawn["host-delay"].evidence["between_share"] == 0.3
    assert list(found(operators=operators(host=gaps(30, long=14)))) == ["many-small-operators"]
    assert found(operators=operators(host=gaps(19, long=18))) == {}
    assert found("cuda:0", operators=operators(host=gaps(90, long=90))) == {}
    assert list(found(operators=operators(host=gaps(30, long=30)), python=python(host=gaps(30)))) == ["python-time"]


def test_the_longest_gap_of_a_device_is_named():
    drawn = found("cuda:0", operators=operators(device=gaps(35, long=30)))
    assert "The longest gap: 30 ms after aten::add." in drawn["device-idle"].seen


def test_decoding_is_not_held_against_the_operators():
    whole = measured({"decode": 30.0, "model": 70.0})
    assert not MINE & rules(result(whole, operators=operators(host=gaps(35, long=30)))).keys()
    assert "host-delay" in rules(result(whole, operators=operators(host=gaps(55, long=50))))


def test_python_that_sets_the_pace_is_named_with_its_functions():
    drawn = found(operators=operators(host=gaps(30)), python=python(host=gaps(30)))
    assert list(drawn) == ["python-time"]  # once, not as many small operators too
    seen = drawn["python-time"].seen
    assert "forward (lerobot/policies/x.py:10) 31.5 ms" in seen
    assert "conv2d" not in seen
    assert list(found("cuda:0", python=python(host=gaps(60), device=gaps(40)))) == ["python-time"]
