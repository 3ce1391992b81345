"""The order of a check's calls: each observation is returned to, and the special calls are among them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strobe.core.sameness.visits import describe, plan


@given(count=st.integers(1, 40), rtc=st.booleans(), passes=st.integers(1, 3))
def test_every_observation_is_seen_and_all_but_the_last_are_returned_to(count: int, rtc: bool, passes: int) -> None:
    visits = plan(count, rtc=rtc, passes=passes)
    plain = [visit.observation for visit in visits if not (visit.rtc or visit.isolated)]
    assert set(plain) == set(range(count))
    for pair in range(count - 1):
        assert plain[2 * pair + 2] == pair, "A B A: an earlier observation comes after a newer one"
        assert plain[2 * pair + 1] == pair + 1
    assert any(visit.reset for visit in visits)
    assert any(visit.isolated for visit in visits)
    assert any(visit.rtc for visit in visits) == rtc
    assert all(0 <= visit.observation < count for visit in visits)


def test_a_call_without_rtc_follows_each_call_with_it() -> None:
    visits = plan(16, rtc=True)
    guided = [index for index, visit in enumerate(visits) if visit.rtc]
    assert len(guided) == 4
    for index in guided:
        assert not visits[index + 1].rtc
        assert visits[index + 1].observation != visits[index].observation


def test_it_is_told_in_a_line() -> None:
    assert describe(plan(16, rtc=True)) == (
        "43 calls on 16 observations: 15 on returning to an earlier one, 4 with RTC, 4 with the treatments applied for "
        "the call alone"
    )
