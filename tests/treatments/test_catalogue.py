"""The catalogue: how treatments are written down."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.suite.places import ROOT
from torch import nn

from strobe.commands.variants import parse_variant
from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.results.recipe import Recipe
from strobe.core.runs.recipe_file import dump
from strobe.core.treatments import catalogue, known
from strobe.core.treatments.recipe import load_rungs
from strobe.core.treatments.treatment import STRUCTURE, Entry, Treatment, Variant, switch
from strobe.ladder.candidates import Choice, candidates
from strobe.treatments import table

DOCS = ROOT / "docs" / "treatments.md"


def test_the_docs_name_every_treatment_with_its_effect():
    rows = [line.split("|") for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    told = {row[1]: row[4].strip() for row in rows}
    for entry in catalogue.own_entries():
        effects = [
            effect for written, effect in told.items() if re.search(rf"`{re.escape(entry.key)}(=|[A-Z])", written)
        ]
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
@settings(deadline=None)  # other packages are asked for theirs the first time
def test_what_is_told_is_read_back_and_the_order_is_no_matter(specs):
    assert catalogue.parse(", ".join(map(catalogue.format_spec, specs))) == list(specs)
    ranks = [catalogue.find_entry(next(iter(spec))).rank for spec in catalogue.sort_specs(specs)]
    assert ranks == sorted(ranks)
    assert next(iter(catalogue.sort_specs(specs)[-1])) == "compile"


class Halved(Treatment):
    """Another package's treatment: nothing but what every treatment needs."""

    effect = "lossy"

    def facts(self) -> dict[str, Any]:
        return {"halved": True}

    def apply(self, subject: Any) -> Any:
        subject.halved = True
        return lambda: setattr(subject, "halved", False)


def make_halved_entry(key: str) -> Entry:
    candidates = [{key: True}]
    return Entry(key, "everything by halves", "lossy", STRUCTURE, switch(key, Halved), candidates=lambda _: candidates)


ONE = make_halved_entry("halved")
SEVERAL = (make_halved_entry("thirds"), make_halved_entry("halved"))  # one of them is there already
SHADOWS = (
    make_halved_entry("precision"),
    make_halved_entry("policy.x"),
    make_halved_entry("rtc.x"),
    make_halved_entry("fifths"),
)
NO_ENTRY = "halved"


@pytest.fixture
def install_plugins(monkeypatch: pytest.MonkeyPatch):
    def install(*names: str) -> None:
        points = [EntryPoint(name, f"{__name__}:{name}", "strobe.treatments") for name in names]
        asked: list[str] = []
        monkeypatch.setattr(catalogue, "entry_points", lambda group: asked.append(group) or points)
        catalogue.plug_in_entries.cache_clear()
        catalogue.entries()
        catalogue.entries()
        assert asked == ["strobe.treatments"], "packages are asked once"

    yield install
    catalogue.plug_in_entries.cache_clear()


def test_another_package_brings_a_treatment(install_plugins, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    install_plugins("ONE")
    assert catalogue.entries() == (*catalogue.own_entries(), ONE)
    subject: Any = SimpleNamespace(info=SimpleNamespace(kind="act"), module=nn.Linear(1, 1))
    (treatment,) = parse_variant("a: halved=true", 4).variant().treatments
    undo = treatment.apply(subject)
    assert subject.halved
    undo()
    assert not subject.halved
    with pytest.raises(UserError, match="did you mean 'halved'"):
        catalogue.parse("halfed=true")
    found = candidates(subject, Choice(effects=("lossy",), only=("halved",)))
    assert [candidate.text for candidate in found] == ["halved=true"]
    path = tmp_path / "x.yaml"
    dump(Recipe(policy="act", treatments=[{"halved": True}]), path)
    (rung,) = load_rungs(subject, path)
    assert Variant("x", (rung,)).traits().labelled_values() == {"recipe": "x.yaml", "halved": True}
    assert main(["compare", "--help=treatments"]) == 0
    assert "\n  halved (lossy)\n      everything by halves\n" in capsys.readouterr().out


def test_what_another_package_brings_wrongly_costs_a_warning_each(install_plugins):
    with pytest.warns(UserWarning, match="left out") as caught:
        install_plugins("ONE", "MISSING", "SEVERAL", "SHADOWS", "NO_ENTRY")
    assert [entry.key for entry in catalogue.entries()[len(catalogue.own_entries()) :]] == [
        "halved",
        "thirds",
        "fifths",
    ]
    told = [str(warning.message) for warning in caught]
    assert [one.split(":")[1].split(" ")[0] for one in told] == [
        "MISSING", "SEVERAL", "SHADOWS", "SHADOWS", "SHADOWS", "NO_ENTRY",
    ]  # fmt: skip
    assert [one.rsplit("'")[1] for one in told[1:5]] == ["halved", "precision", "policy", "rtc"]
    assert "TypeError: an Entry or a tuple of them, not str" in told[-1]
    assert not any("\n" in one for one in told)


def test_the_words_of_the_table_are_those_of_the_entries() -> None:
    assert [words.key for words in known.known_words()] == [entry.key for entry in catalogue.entries()]
    for words, entry in zip(table.TABLE, catalogue.own_entries(), strict=True):
        names = ("key", "help", "effect", "rank", "only", "options", "untried")
        assert [getattr(words, name) for name in names] == [getattr(entry, name) for name in names]


def test_a_treatment_of_one_value_refuses_others_in_the_same_words() -> None:
    single = [words for words in table.TABLE if words.only is not None]
    assert {"channels_last", "cameras", "fused", "padding"} <= {words.key for words in single}
    for words in single:
        made = catalogue.make({words.key: words.only})
        assert (made.key, made.effect, made.traits().value) == (words.key, words.effect, words.only)
        known.check_words({words.key: words.only})
        with pytest.raises(UserError) as refused:
            catalogue.make({words.key: "another"})
        with pytest.raises(UserError) as read:
            known.check_words({words.key: "another"})
        assert str(read.value) == str(refused.value)
