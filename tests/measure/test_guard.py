"""The guard: what each effect must keep to, how it is written, and what a cosine alone cannot see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import UserError
from strobe.measure.guard import BY_EFFECT, FIGURES, LEAST, MARGIN, OF_FEATURES, ROUNDING, Guard, Guards, strongest
from strobe.results.agreement import Agreement, Yardstick


def seen(rms: float = 0.0, worst: float = 0.0, flips: float | None = None, **more: float) -> Agreement:
    found = {"cosine": 1.0, "largest_error": 0.0, "mean_error": 0.0, "observations": 16, **more}
    return Agreement(rms=rms, worst=worst, p99=worst, flips=flips, worst_dimension="x", **found)  # type: ignore[arg-type]


def reordered(rms: float, worst: float) -> Yardstick:
    return Yardstick(name="reordered sums", rms=rms, worst=worst, observations=4)


def test_exact_treatments_are_held_against_reordered_sums_and_not_a_constant() -> None:
    guard = Guards().of(["exact"])
    assert str(guard) == "exact"
    for size in (1e-4, 0.1):
        yardstick = reordered(size, 4 * size)
        assert guard.holds(seen(rms=0.9 * MARGIN * size, worst=3.9 * MARGIN * size), yardstick)
        assert "it is not exact" in guard.broken(seen(rms=1.1 * MARGIN * size), yardstick)
        assert guard.broken(seen(worst=4.1 * MARGIN * size), yardstick).startswith("worst")
    assert guard.holds(seen(rms=0.9 * LEAST, worst=0.9 * LEAST), reordered(0, 0)), "no float tells that from 0"
    assert not guard.holds(seen(rms=2 * LEAST), reordered(0, 0))


def test_each_effect_has_its_guard_and_the_users_word_counts_for_the_others() -> None:
    assert str(Guards().of(["exact", "rounding"])) == str(Guards().of(["lossy"])) == ROUNDING
    said = Guards.parse("rms<=0.3, worst<=3")
    assert str(said.of(["lossy"])) == "rms<=0.3, worst<=3"
    assert str(said.of(["exact"])) == "exact, rms<=0.3, worst<=3", "an exact treatment must be exact all the same"
    assert str(Guards()) == BY_EFFECT
    assert str(Guards.parse("exact").of(["rounding"])) == "exact"
    alone = Guards.parse("success_drop<=0.1").of(["lossy"])
    assert alone.holds(seen(rms=5, worst=9)), "the simulator is the judge"
    features = Guards(of_features=True)
    assert str(features.of(["exact"])) == str(features) == OF_FEATURES


def test_the_usual_limits() -> None:
    guard = Guards().of(["rounding"])
    assert guard.holds(seen(0.02, 0.2, 0.0))
    assert guard.broken(seen(0.0201)) == "rms 0.0201 σ > 0.02 σ"
    assert guard.broken(seen(0.01, 0.21)) == "worst 0.21 σ > 0.2 σ in x"
    assert guard.broken(seen(0.01, 0.1, 0.001)) == "flips 0.001 > 0"
    assert guard.holds(seen(0.01, 0.1, None)), "no dimension decides"


def test_a_limit_on_what_was_not_measured_is_not_broken() -> None:
    plain = Agreement(cosine=1, largest_error=0, mean_error=0, observations=1)
    assert Guards().of(["rounding"]).holds(plain)


def test_what_a_cosine_alone_cannot_see_is_said() -> None:
    assert "inverted gripper" in Guard.parse("cosine>=0.999").blind
    assert "inverted gripper" in Guard.parse("cosine>=0.999, success_drop<=0.1").blind
    for text in (ROUNDING, "exact", "cosine>=0.999, worst<=0.2", "success_drop<=0.1"):
        assert Guard.parse(text).blind == ""


limits = st.dictionaries(st.sampled_from([name for name in FIGURES if name != "success_drop"]), st.floats(0, 1))


@given(limits, st.booleans())
def test_what_is_written_reads_as_it_was(found: dict[str, float], exact: bool) -> None:
    guard = Guard(tuple(found.items()), exact)
    if not found and not exact:
        return
    again = Guard.parse(str(guard))
    assert again.exact == exact
    assert [name for name, _ in again.limits] == list(found)
    assert [limit for _, limit in again.limits] == pytest.approx(list(found.values()), rel=1e-9, abs=1e-11)


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "rms>=0.02": "rms is guarded by <=",
        "rms<=much": "'much' is not a number",
        "worst<=-1": "an error is 0 or more",
        "worst<=nan": "an error is 0 or more",
        "flips<=2": "a share of flipped decisions lies between 0 and 1",
        "rsm<=0.1": "did you mean 'rms'",
        "rms<=0.1, rms<=0.2": "rms is there twice",
        "exactly": "write FIGURE>=LIMIT",
        " , ": "write FIGURE>=LIMIT",
    }.items(),
)
def test_a_wrong_guard_is_one_line(text: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        Guard.parse(text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_limits_may_be_given_with_their_unit() -> None:
    assert Guard.parse("rms<=0.02σ and worst<=0.2 σ") == Guard.parse("rms<=0.02, worst<=0.2")


def test_the_strongest_effect() -> None:
    assert strongest([]) == strongest(["exact"]) == "exact"
    assert strongest(["exact", "rounding"]) == "rounding"
    assert strongest(["rounding", "lossy", "exact"]) == "lossy"
