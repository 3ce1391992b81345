"""strobe-zoo: its records are found by entry points, loaded when their type is asked for, and named where missing."""

import importlib
import json
from importlib.metadata import distribution, distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.builders.tiny_policies import load_tiny_subject

from strobe.core.families import registry
from strobe.core.families.capabilities import Backbone, Calls
from strobe.core.families.family import Family
from strobe.environments import parcel
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.policies.standins import TOKENIZERS, ZOO, missing_zoo_line, stand_ins


def test_strobe_knows_the_types_of_the_package_and_which_look_seldom() -> None:
    assert {entry.name for entry in distribution("strobe-zoo").entry_points.select(group=registry.GROUP)} == ZOO
    towers = ZOO & set(registry.list_types_having(Backbone))
    assert towers == {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "siglip2_vision_model"}
    assert set(registry.list_types_having(lambda family: family.tiny)) > ZOO - towers
    assert {name for kind in ZOO for name in registry.record_package(kind)} == {"strobe-zoo"}
    seldom = set(registry.list_types_having(lambda family: Calls.from_family(family).seldom_looks))
    assert ZOO - towers - seldom == {"gaussian_actor", "lingbot_va"}
    assert seldom - ZOO == {"act", "diffusion", "pi0", "pi05", "smolvla"}


def test_no_entry_point_is_read_for_a_type_of_strobes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_family_entry_points", lambda: pytest.fail("not asked for"))
    load_subject(PolicyOptions(type="smolvla", size="tiny", overrides=["--device=cpu"]))


def test_another_policy_may_use_a_tokenizer_that_one_of_its_records_knows() -> None:
    module: Any = importlib.import_module(TOKENIZERS[0])
    with stand_ins("act", random_weights=True, tiny=True) as notes:
        module.AutoTokenizer.from_pretrained("facebook/bart-large")
    assert notes == ["tokenizer facebook/bart-large: a local placeholder, because the tiny size has its own vocabulary"]


def test_it_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_zoo_line("xvla") is None is missing_zoo_line("act")
    monkeypatch.delitem(registry.records(), "xvla")
    monkeypatch.setattr(registry, "_family_entry_points", dict)
    assert "strobe-zoo, which names the parts of xvla" in str(missing_zoo_line("xvla"))


def test_types_may_share_a_record_and_one_that_lacks_a_library_is_left_out(monkeypatch, recwarn) -> None:
    shared = Family("shared", ("made_up_a", "made_up_b"))
    entry = SimpleNamespace(load=lambda: shared, dist=SimpleNamespace(name="made-up", version="3"), module="made_up")
    lacking = SimpleNamespace(**vars(entry) | {"load": lambda: importlib.import_module("made_up_library")})
    offered = {"made_up_a": [entry], "made_up_b": [entry], "made_up_c": [lacking]}
    monkeypatch.setattr(registry, "_family_entry_points", lambda: offered)
    monkeypatch.setattr(registry, "_brought", {})
    known = dict(registry.records())
    monkeypatch.setattr(registry, "records", lambda: known)
    assert registry.find_family("made_up_b") is shared
    assert registry.record_package("made_up_a") == registry.record_package("made_up_b") == {"made-up": "3"}
    assert registry.find_family("made_up_c") is None
    assert not recwarn.list


def test_the_record_of_another_package_travels_to_another_environment(tmp_path: Path) -> None:
    parcel.pack(load_tiny_subject("vqbet"), tmp_path, overridden=False, tiny=True, batch_size=1, checks=2)
    source = Path(json.loads((tmp_path / "parcel.json").read_text())["strobe"])
    (found,) = distributions(path=[str(source)])
    assert [(entry.group, entry.name, entry.module) for entry in found.entry_points] == [
        (registry.GROUP, "vqbet", "strobe_zoo.vqbet")
    ]
    assert (source / "strobe_zoo" / "vqbet.py").is_file()
