"""The guard: what each effect must keep to, how it is written, and what a cosine alone cannot see."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.core.errors import UserError
from strobe.core.measure.guard import BY_EFFECT, LEAST, MARGIN, METRICS, OF_FEATURES, ROUNDING, Guard, Guards, strongest
from strobe.core.results.agreement import Agreement, Yardstick


def make_agreement(rms: float = 0.0, worst: float = 0.0, flips: float | None = None, **more: float) -> Agreement:
    found = {"cosine": 1.0, "largest_error": worst, "mean_error": 0.0, "observations": 16, **more}
    return Agreement(rms=rms, worst=worst, p99=worst, flips=flips, worst_dimension="x", **found)  # type: ignore[arg-type]


def make_yardstick(rms: float, worst: float) -> Yardstick:
    return Yardstick(name="reordered sums", rms=rms, worst=worst, observations=4)


def is_held(guard: Guard, agreement: Agreement, yardstick: Yardstick | None = None) -> bool:
    return guard.judge(agreement, yardstick).outcome == "held"


def describe_broken(guard: Guard, agreement: Agreement, yardstick: Yardstick | None = None) -> str:
    judged = guard.judge(agreement, yardstick)
    assert judged.outcome == "broken"
    assert judged.words is not None
    return judged.words


def test_exact_treatments_are_held_against_reordered_sums_and_not_a_constant() -> None:
    guard = Guards().strictest_guard(["exact"])
    assert str(guard) == "exact"
    for size in (1e-5, 1e-3):
        yardstick = make_yardstick(size, 4 * size)
        assert is_held(guard, make_agreement(rms=0.9 * MARGIN * size, worst=3.9 * MARGIN * size), yardstick)
        assert "it is not exact" in describe_broken(
            guard, make_agreement(rms=1.1 * MARGIN * size, worst=4 * MARGIN * size), yardstick
        )
        assert describe_broken(guard, make_agreement(worst=4.1 * MARGIN * size), yardstick).startswith("max error")
    assert is_held(guard, make_agreement(rms=0.9 * LEAST, worst=0.9 * LEAST), make_yardstick(0, 0)), (
        "no float tells that from 0"
    )
    assert not is_held(guard, make_agreement(rms=2 * LEAST, worst=2 * LEAST), make_yardstick(0, 0))


def test_an_exact_treatment_never_may_do_more_than_rounding_may() -> None:
    """Ten times a large floating-point noise is large."""
    guard, yardstick = Guards().strictest_guard(["exact"]), make_yardstick(0.01, 0.05)
    assert is_held(guard, make_agreement(rms=0.019, worst=0.19), yardstick)
    assert "it is not exact" in describe_broken(guard, make_agreement(rms=0.021, worst=0.1), yardstick)
    assert "it is not exact" in describe_broken(guard, make_agreement(rms=0.01, worst=0.21), yardstick)
    assert describe_broken(guard, make_agreement(rms=0.01, worst=0.1, flips=0.01), yardstick) == "flips 0.01, limit 0"


def test_actions_that_jump_by_reordered_sums_cannot_judge_what_is_exact() -> None:
    """As those of a policy that takes the largest of many scores."""
    guard, jumps = Guards().strictest_guard(["exact"]), make_yardstick(0.3, 2.0)
    judged = guard.judge(make_agreement(rms=0.4, worst=3.0), jumps)
    assert judged.outcome == "not judged"
    assert "tokens" in (judged.words or "")
    assert "episodes" in (judged.words or "")
    assert is_held(guard, make_agreement(), jumps), "the same to the bit needs no yardstick"
    assert describe_broken(guard, make_agreement(rms=3.1, worst=9.0), jumps)


def test_without_a_yardstick_an_exact_treatment_is_held_to_the_limits_of_rounding_and_not_judged_within_them() -> None:
    guard = Guards().strictest_guard(["exact"])
    assert describe_broken(guard, make_agreement(rms=1.3, worst=4.0)).startswith("RMS 1.3")
    judged = guard.judge(make_agreement(rms=0.01, worst=0.1))
    assert judged.outcome == "not judged"
    assert "floating-point noise" in (judged.words or "")
    assert is_held(guard, make_agreement())


def test_each_effect_has_its_guard_and_the_users_word_counts_for_the_others() -> None:
    assert str(Guards().strictest_guard(["exact", "rounding"])) == str(Guards().strictest_guard(["lossy"])) == ROUNDING
    said = Guards.parse("rms<=0.3, worst<=3")
    assert str(said.strictest_guard(["lossy"])) == "rms<=0.3, worst<=3"
    assert str(said.strictest_guard(["exact"])) == "exact, rms<=0.3, worst<=3", (
        "an exact treatment must be exact all the same"
    )
    assert str(Guards()) == BY_EFFECT
    assert str(Guards.parse("exact").strictest_guard(["rounding"])) == "exact"
    alone = Guards.parse("success_drop<=0.1").strictest_guard(["lossy"])
    assert alone.judge(make_agreement(rms=5, worst=9)).outcome == "not judged"
    both = Guard.parse("success_drop<=0.1, rms<=0.3")
    assert describe_broken(both, make_agreement(rms=5)).startswith("RMS 5"), (
        "what is broken outweighs what is not judged"
    )
    assert is_held(alone.action_guard, make_agreement(rms=5, worst=9)), "the simulator is the judge"
    features = Guards(kind="features")
    assert str(features.strictest_guard(["rounding"])) == OF_FEATURES
    assert str(features.strictest_guard(["exact"])) == "exact"


def test_the_usual_limits() -> None:
    guard = Guards().strictest_guard(["rounding"])
    assert is_held(guard, make_agreement(0.02, 0.2, 0.0))
    assert describe_broken(guard, make_agreement(0.0201)) == "RMS 0.0201 σ, limit 0.02 σ"
    assert describe_broken(guard, make_agreement(0.01, 0.21)) == "max error 0.21 σ in x, limit 0.2 σ"
    assert describe_broken(guard, make_agreement(0.01, 0.1, 0.001)) == "flips 0.001, limit 0"
    assert is_held(guard, make_agreement(0.01, 0.1, None)), "no dimension decides"


def test_a_guard_by_flips_alone_judges_nothing_where_nothing_decides() -> None:
    guard = Guard.parse("flips<=0")
    judged = guard.judge(make_agreement(rms=1.4, worst=3.0, flips=None))
    assert judged.outcome == "not judged"
    assert "no action of this policy is on or off" in (judged.words or "")
    assert is_held(guard, make_agreement(flips=0.0))
    assert describe_broken(guard, make_agreement(flips=0.1))


def test_another_number_of_executed_actions_is_not_judged_by_chunks() -> None:
    other = make_agreement(0.0, 0.0, 0.0).model_copy(update={"changes_execution": True})
    for guard in (Guards().strictest_guard(["exact"]), Guards().strictest_guard(["rounding"])):
        judged = guard.judge(other)
        assert judged.outcome == "not judged"
        assert "play episodes" in (judged.words or "")


PLAIN = Agreement(cosine=1, largest_error=1, mean_error=0, observations=1)
SIGMAS = make_agreement(0.0, 0.0, 0.0)
FEATURES = make_agreement(0.0, 0.0, token=0.0).model_copy(update={"of": "features"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *((f"{name}<=9", PLAIN) for name in ("rms", "worst", "p99", "token")),
        ("flips<=1", PLAIN),
        ("exact", PLAIN),
        ("success_drop<=0.1", SIGMAS),
        ("cosine>=0.9, success_drop<=0.1", SIGMAS),
        ("token<=9", SIGMAS),
        ("flips<=1", FEATURES),
        ("rms<=9", SIGMAS.model_copy(update={"unjudged": "half of it was not seen"})),
    ],
)
def test_a_limit_whose_figure_is_missing_is_not_held(text: str, found: Agreement) -> None:
    judged = Guard.parse(text).judge(found)
    assert judged.outcome == "not judged"
    assert judged.words


@given(st.sampled_from(sorted(set(METRICS) - {"cosine"})), st.floats(0, 0.9), st.booleans())
def test_no_guard_holds_of_which_nothing_was_looked_at(name: str, limit: float, exact: bool) -> None:
    """Whatever is added to `METRICS` one day: a figure that is not there passes nothing."""
    nothing = Agreement(cosine=0, largest_error=1, mean_error=1, observations=1)
    assert Guard({name: limit}, exact).judge(nothing).outcome != "held"


@pytest.mark.parametrize(
    ("text", "of"), [("token<=0.1", "actions"), ("flips<=0", "features"), ("success_drop<=0.1", "features")]
)
def test_a_figure_that_is_never_there_is_refused_in_a_line(text: str, of: Any) -> None:
    with pytest.raises(UserError, match="guard") as caught:
        Guard.parse(text).require_figures(of)
    assert "\n" not in str(caught.value)
    Guard.parse("rms<=0.1, cosine>=0.9").require_figures(of)


def test_executed_actions_keep_to_the_limits_by_themselves() -> None:
    """Of a chunk of 100 one action is executed, and that one is 0.19 σ off each time."""
    guard = Guards().strictest_guard(["rounding"])
    chunk = make_agreement(0.019, 0.19, 0.0).model_copy(
        update={"executed": 1, "predicted": 100, "executed_rms": 0.19, "executed_worst": 0.19, "executed_p99": 0.19}
    )
    assert (
        describe_broken(guard, chunk)
        == "RMS 0.19 σ, limit 0.02 σ, in the executed part of the chunk (1 of 100 actions)"
    )
    calm = {"executed_rms": 0.001, "executed_worst": 0.001}
    later = make_agreement(0.03, 0.1, 0.0).model_copy(update={"executed": 8, "predicted": 100, **calm})
    assert "the executed part of the chunk (8 of 100 actions) stays within it" in describe_broken(guard, later)


def test_a_backbone_is_judged_in_its_channels_spread() -> None:
    guards = Guards(kind="features")
    for text in ("rms<=0.05", "worst<=0.5", "exact"):
        said = Guards(Guard.parse(text), kind="features").strictest_guard(["rounding"])
        wrong = FEATURES.model_copy(update={"rms": 1.4, "worst": 5.0, "token": 1.4, "largest_error": 3.0})
        assert said.judge(wrong, make_yardstick(1e-6, 1e-5)).outcome == "broken"
    assert describe_broken(
        guards.strictest_guard(["exact"]),
        FEATURES.model_copy(update={"rms": 0.01, "largest_error": 0.1}),
        make_yardstick(1e-6, 1e-5),
    )
    lost_token = FEATURES.model_copy(update={"rms": 0.03, "token": 1.4, "largest_error": 3.0})
    assert describe_broken(guards.strictest_guard(["rounding"]), lost_token).startswith("worst token")


def test_what_a_cosine_alone_cannot_see_is_said() -> None:
    assert "inverted gripper" in (Guard.parse("cosine>=0.999").blind_spots or "")
    assert "inverted gripper" in (Guard.parse("cosine>=0.999, success_drop<=0.1").blind_spots or "")
    for text in (ROUNDING, "exact", "cosine>=0.999, worst<=0.2", "success_drop<=0.1"):
        assert Guard.parse(text).blind_spots is None


limits = st.dictionaries(st.sampled_from([name for name in METRICS if name != "success_drop"]), st.floats(0, 1))


@given(limits, st.booleans())
def test_what_is_written_reads_as_it_was(found: dict[str, float], exact: bool) -> None:
    guard = Guard(found, exact)
    if not found and not exact:
        return
    again = Guard.parse(str(guard))
    assert again.exact == exact
    assert list(again.limits) == list(found)
    assert list(again.limits.values()) == pytest.approx(list(found.values()), rel=1e-9, abs=1e-11)


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "rms>=0.02": "rms is guarded by <=",
        "rms<=much": "'much' is not a number",
        "worst<=-1": "an error is 0 or more",
        "worst<=nan": "an error is 0 or more",
        "flips<=2": "a share of flipped decisions lies between 0 and 1",
        "rsm<=0.1": "did you mean 'rms'",
        "rms<=0.1, rms<=0.2": "rms is given twice",
        "exactly": "write FIGURE>=LIMIT",
        " , ": "write FIGURE>=LIMIT",
        "": "write FIGURE>=LIMIT",
        "cosine<=0.9": "cosine is guarded by >=",
        "cosine>=1.5": "between -1 and 1",
        "cosine>=nan": "between -1 and 1",
        "success_drop>=0.1": "success_drop is guarded by <=",
        "success_drop<=10": "between 0 and 1",
    }.items(),
)
def test_a_wrong_guard_is_one_line(text: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        Guard.parse(text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_limits_may_be_given_with_their_unit() -> None:
    assert Guard.parse("rms<=0.02σ and worst<=0.2 σ") == Guard.parse("rms<=0.02, worst<=0.2")
    assert str(Guard.parse("cosine >= 0.999, largest-error<=0.01")) == "cosine>=0.999, largest_error<=0.01"


def test_a_figure_has_the_digits_that_tell_it_from_its_limit() -> None:
    found = make_agreement(cosine=0.998999999)
    assert describe_broken(Guard.parse("cosine>=0.999"), found) == "cosine 0.998999999, limit 0.999"


def test_the_strongest_effect() -> None:
    assert strongest([]) == strongest(["exact"]) == "exact"
    assert strongest(["exact", "rounding"]) == "rounding"
    assert strongest(["rounding", "lossy", "exact"]) == "lossy"
