"""Results of every kind that earlier versions wrote: each loads, and nothing in it is lost when it is saved again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from support.checks.golden import ALL, result_name
from support.examples import any_result

from strobe.core.results.traits import Traits, TreatmentTraits
from strobe.core.runs import store


def find_lost_places(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yield the places of ``before`` whose values ``after`` has not. It may have more fields."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            # A field that was shared by all studies once may be left out where it is empty.
            if name in after or value not in (None, [], {}, ""):
                yield from find_lost_places(value, after.get(name), f"{where}.{name}" if where else name)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from find_lost_places(one, other, f"{where}[{index}]")
    elif before != after:
        yield f"{where}: {before!r:.60} became {after!r:.60}"


@pytest.mark.parametrize("file", ALL, ids=result_name)
def test_a_result_is_whole_after_it_was_saved_again(file: Path, tmp_path: Path):
    answer = store.load_answer(file)
    store.save(answer, tmp_path)
    assert store.load_answer(tmp_path) == answer
    written = json.loads((tmp_path / store.RESULT).read_bytes())
    assert list(find_lost_places(json.loads(file.read_bytes()), written)) == []


def test_what_a_run_finds_by_itself_makes_no_difference() -> None:
    def make_traits(seconds: float) -> Traits:
        engine = TreatmentTraits(key="engine", value="openvino", build_s=seconds, from_cache=seconds < 1)
        return Traits(treatments=[engine], build_s=seconds)

    assert make_traits(0.1) != make_traits(9.0)
    assert make_traits(0.1).drop_treatments() == make_traits(9.0).drop_treatments()


@given(any_result.model_strategy(Traits))
@settings(deadline=None)
def test_json_leaves_out_defaults_and_loses_nothing(traits: Traits) -> None:
    assert Traits.model_validate_json(traits.model_dump_json()) == traits
