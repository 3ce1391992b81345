"""A recipe is read back as it was written, and what is no recipe is told in a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples.any_result import NUMBER, TEXT, model_strategy
from support.suite.example_count import scale_count

from strobe.core.errors import UserError
from strobe.core.results.recipe import VERSION, Recipe, RecipeRung
from strobe.core.runs.recipe_file import dump, load

KEY = st.text(min_size=1, max_size=12)
# What YAML would take for something else, were it not quoted.
ODD = st.sampled_from(
    ["true", "no", "1e3", "1.0", "0x1f", "null", "~", "2026-01-01", "closed form", "a: b", "#", "", " "]
)
VALUES = st.one_of(ODD, TEXT, st.integers(), NUMBER, st.booleans())
recipes = model_strategy(
    Recipe,
    version=st.just(VERSION),
    size=st.sampled_from(["full", "tiny"]),
    treatments=st.lists(st.dictionaries(KEY, VALUES, min_size=1, max_size=3), min_size=1, max_size=4),
    versions=st.dictionaries(KEY, TEXT, max_size=3),
)


def type_treatments(recipe: Recipe) -> list[list[tuple[str, type, object]]]:
    """True equals 1 in Python; as a treatment's value they are not the same."""
    return [[(key, type(value), value) for key, value in spec.items()] for spec in recipe.treatments]


@settings(deadline=None, max_examples=scale_count(60))
@given(recipe=recipes)
def test_what_is_written_is_read_back(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    dump(recipe, path)
    again = load(path)
    assert again == recipe
    assert type_treatments(again) == type_treatments(recipe)  # and in the same order


def test_a_file_reads_well(tmp_path: Path) -> None:
    recipe = Recipe(
        policy="pi05",
        treatments=[{"precision": "bf16", "precision.part": "model.vision"}, {"compile": True}],
        guard="cosine>=0.999",
        rungs=[RecipeRung(name="precision=bf16", ms=83.5, hz=12, times=2.1, effect="rounding", cosine=0.9995)],
        command="strobe optimize --policy.type=pi05",
    )
    dump(recipe, tmp_path / "fast.yaml")
    header, _, body = (tmp_path / "fast.yaml").read_text().partition("\n\n")
    assert all(line.startswith("#") for line in header.splitlines())
    assert "pi05" in header
    assert 'strobe.load_policy("FOLDER_OR_HUB_ID", "fast.yaml")' in header
    assert "--recipe=fast.yaml" in header
    lines = body.splitlines()
    assert lines[:7] == [
        "version: 1",
        "policy: pi05",
        "size: full",
        "treatments:",
        "- precision: bf16",
        "  precision.part: model.vision",
        "- compile: true",
    ]
    assert "- {name: precision=bf16, ms: 83.5, hz: 12.0, times: 2.1, effect: rounding, cosine: 0.9995}" in lines


GOOD = "policy: act\ntreatments:\n- precision: bf16\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("policy: [", "is not YAML: line 1: expected the node content"),
        ("\x00", "is not YAML"),
        ("policy: act\nmade: 2026-99-99\n" + GOOD[12:], "is not YAML: month must be in 1..12"),
        ("just words", "no fields such as policy and treatments"),
        ("", "no fields such as"),
        (GOOD + "version: 2\n", "version: this Strobe cannot read 2, it reads 1"),
        (GOOD + "version: true\n", "version: this Strobe cannot read True"),
        (GOOD + "gaurd: cosine>=0.9\n", "gaurd: no such field: did you mean 'guard'?"),
        (GOOD + "agreement: {cosin: 1}\n", "agreement.cosin: no such field: did you mean 'cosine'?"),
        (GOOD + "policy: pi05\n", "is not YAML: line 1: 'policy' is given twice"),
        (GOOD + "  precision: fp16\n", "'precision' is given twice"),
        ("policy: act\n", "treatments: missing"),
        ("policy: act\ntreatments: []\n", "treatments: list should have at least 1 item"),
        ("policy: act\ntreatments: [precision=bf16]\n", "treatments.1: a treatment is KEY: VALUE"),
        (GOOD + "- compile: [a]\n", "treatments.2.compile: a treatment is KEY: VALUE"),
        (GOOD + "- compile: null\n", "treatments.2.compile: a treatment is KEY: VALUE"),
        (GOOD + "ms: fast\n", "ms: input should be a valid number"),
        (GOOD + "ms: .nan\n", "ms: input should be a finite number"),
    ],
)
def test_what_is_no_recipe_is_one_line_with_path_and_field(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the recipe .*none\.yaml: no such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="is a directory"):
        load(tmp_path)
