"""The nearest of valid names, for a name that is none of them."""

from hypothesis import given
from hypothesis import strategies as st

from strobe.core.errors import nearest

words = st.text(st.characters(categories=["Ll", "Nd"]), min_size=1, max_size=12)
names = st.lists(words, unique=True, max_size=30)


def test_a_misspelt_name_is_answered_with_the_one_meant_or_with_the_list():
    assert nearest("difusion", ["act", "diffusion"]) == "did you mean 'diffusion'?"
    assert nearest("zzz", ["pi0", "act"]) == "known: act, pi0"
    assert nearest("zzz", ["a", "b", "c"], many=2) == "known: a, b, …"


@given(names, st.data())
def test_a_valid_name_is_its_own_nearest(valid: list[str], data: st.DataObject):
    if valid:
        name = data.draw(st.sampled_from(valid))
        assert nearest(name, valid) == f"did you mean '{name}'?"


@given(st.text(max_size=12), names)
def test_the_answer_is_one_line_naming_only_valid_names(name: str, valid: list[str]):
    answer = nearest(name, iter(valid))
    assert "\n" not in answer
    if answer.startswith("did you mean"):
        assert answer.split("'")[1] in valid
    else:
        shown = answer.removeprefix("known: ").removesuffix(", …")
        assert shown == ", ".join(sorted(valid)[:12])
