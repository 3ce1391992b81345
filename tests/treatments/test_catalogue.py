"""The catalogue: how treatments are written down."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import UserError
from strobe.treatments import catalogue

DOCS = Path(__file__).parents[2] / "docs" / "treatments.md"


def test_the_docs_name_every_treatment_with_its_effect():
    rows = [line.split("|") for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    told = {row[1]: row[4].strip() for row in rows}
    for entry in catalogue.ENTRIES:
        effects = [effect for written, effect in told.items() if f"`{entry.key}" in written]
        assert effects == [entry.effect], entry.key


def test_options_belong_to_the_treatment_before_them():
    assert catalogue.parse("precision=bf16, precision.part=a.b, precision=fp32, precision.part=c, cameras=batched") == [
        {"precision": "bf16", "precision.part": "a.b"},
        {"precision": "fp32", "precision.part": "c"},
        {"cameras": "batched"},
    ]
    assert catalogue.parse("policy.num_steps=5, policy.use_amp=true") == [
        {"policy.num_steps": 5, "policy.use_amp": True}
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("precision.part=a", "'precision.part' is an option of 'precision'"),
        ("camera=batched", "did you mean 'cameras'"),
        ("cameras", "write KEY=VALUE"),
        ("cameras=", "write KEY=VALUE"),
        ("cameras={", "cannot be read"),
    ],
)
def test_what_is_not_written_right_is_told(text, words):
    with pytest.raises(UserError, match=words):
        catalogue.parse(text)


SPECS = (
    {"cameras": "batched"},
    {"precision": "bf16", "precision.part": "model.backbone"},
    {"policy.num_steps": 5},
    {"channels_last": True},
    {"compile": "default"},
    {"padding": "trimmed", "padding.multiple": 8},
)


@given(st.permutations(SPECS))
def test_what_is_told_is_read_back_and_the_order_is_no_matter(specs):
    assert catalogue.parse(", ".join(map(catalogue.told, specs))) == list(specs)
    ranks = [catalogue.entry_of(next(iter(spec))).rank for spec in catalogue.ordered(specs)]
    assert ranks == sorted(ranks)
    assert next(iter(catalogue.ordered(specs)[-1])) == "compile"
