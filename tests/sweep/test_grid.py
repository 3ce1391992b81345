"""The grid: axes as users write them, cells that keep their identity, an order that survives growth."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.core.errors import UserError
from strobe.sweep import grid

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789_x.-", min_size=1, max_size=8)


@given(st.lists(WORDS, min_size=1, max_size=6, unique=True))
def test_an_axis_is_read_as_it_was_written(values: list[str]) -> None:
    assert grid.parse_axis(f"policy.thing={','.join(values)}") == ("policy.thing", values)
    assert grid.parse_axis("phases=[inference, training step],[inference]")[1] == [
        "[inference, training step]",
        "[inference]",
    ]
    assert grid.parse_axis("variant='a: x=1, y=2',b")[1] == ["a: x=1, y=2", "b"]


@pytest.mark.parametrize("text", ["batch_size", "batch_size=", "=1,2", "batch_size=1,,2", "batch_size=1,", "a=1,1"])
def test_what_cannot_be_read_is_told_in_one_line(text: str) -> None:
    with pytest.raises(UserError) as told:
        grid.parse_axis(text)
    assert "\n" not in str(told.value)
    assert "--grid" in str(told.value)


def test_cells_are_all_combinations_and_none_twice_whatever_its_settings_came_from() -> None:
    more = [{"a": "1", "b": "x"}, {"a": "9", "b": "x"}]
    cells = grid.cells("breakdown", ["--policy.type=act"], {"a": ["1", "2"], "b": ["x", "y"]}, more)
    assert [dict(cell.settings) for cell in cells] == [
        {"a": "1", "b": "x"},
        {"a": "1", "b": "y"},
        {"a": "2", "b": "x"},
        {"a": "2", "b": "y"},
        {"a": "9", "b": "x"},
    ]
    assert cells[0].argv == ("--policy.type=act", "--a=1", "--b=x")
    chain = grid.cells("breakdown", [], {"a": ["1", "2"], "b": ["x", "y", "z"]}, chain=True)
    assert [" ".join(cell.settings.values()) for cell in chain] == ["1 x", "2 x", "2 y", "2 z"]
    # Whether a setting is a flag or an axis.
    one = grid.cells("breakdown", ["--policy.type=act", "--b=x"], {"a": ["1"]})
    other = grid.cells("breakdown", ["--policy.type=act"], {"a": ["1"], "b": ["x"]})
    assert one[0].key == other[0].key
    assert grid.cells("compare", ["--policy.type=act", "--b=x"], {"a": ["1"]})[0].key != one[0].key


def test_a_checkpoint_or_a_factory_that_changed_is_another_cell(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"12")
    before = grid.cells("breakdown", [f"--policy.path={tmp_path}"], {"a": ["1"]})
    assert grid.cells("breakdown", [f"--policy.path={tmp_path}"], {"a": ["1"]})[0].key == before[0].key
    (tmp_path / "model.safetensors").write_bytes(b"123")
    assert grid.cells("breakdown", [f"--policy.path={tmp_path}"], {"a": ["1"]})[0].key != before[0].key

    flag = f"--policy.factory={tmp_path / 'mine.py'}:make"

    def key() -> str:
        return grid.cells("breakdown", [flag], {"a": ["1"]})[0].key

    (tmp_path / "mine.py").write_text("")
    keys = [key(), key()]
    (tmp_path / "helper.py").write_text("WIDTH = 1")
    keys.append(key())
    (tmp_path / "helper.py").write_text("WIDTH = 2")
    keys.append(key())
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert grid.swept_subject(grid.cells("breakdown", [flag], {"a": ["1"]})) == "mine"
    of_module = grid.cells("breakdown", ["--policy.factory=mine.policies:make"], {"a": ["1"]})
    assert grid.swept_subject(of_module) == "mine.policies"
    assert grid.swept_subject(grid.cells("breakdown", [], {"policy.factory": ["a.py:make", "b.py:make"]})) == "policies"


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 5))
def test_blocks_hold_every_cell_once_and_stay_when_the_grid_grows(count: int, repeats: int, seed: int) -> None:
    few = grid.cells("breakdown", [], {"a": [str(i) for i in range(count)]})
    many = grid.cells("breakdown", [], {"a": [str(i) for i in range(count + 5)]})
    order = grid.shuffle_in_blocks(few, repeats, seed)
    for block in range(repeats):
        of_block = order[block * count : (block + 1) * count]
        assert {repeat for _, repeat in of_block} == {block + 1}
        assert {cell.key for cell, _ in of_block} == {cell.key for cell in few}
    keys = {cell.key for cell in few}
    grown = [(cell.key, repeat) for cell, repeat in grid.shuffle_in_blocks(many, repeats, seed) if cell.key in keys]
    assert grown == [(cell.key, repeat) for cell, repeat in order]


def test_blocks_are_shuffled_each_in_its_own_way() -> None:
    made = grid.cells("breakdown", [], {"a": [str(i) for i in range(12)]})
    order = [cell.settings["a"] for cell, _ in grid.shuffle_in_blocks(made, 2)]
    assert order[:12] != [str(i) for i in range(12)]
    assert order[:12] != order[12:]


def test_numbers_of_axes() -> None:
    cells = grid.cells("breakdown", [], {"image_size": ["240x320", "480x640"], "policy.vision_backbone": ["resnet18"]})
    size, backbone = grid.grid_axes(cells)
    assert size.numbers == [76800.0, 307200.0]
    assert size.unit == "pixels"
    assert backbone.numbers is None
    assert grid.axis_number("1e-4") == pytest.approx(1e-4)
    assert grid.axis_number("1:2") is None


def test_a_file_says_the_same_as_flags(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(
        "study: breakdown\nflags: {policy.type: act, phases: [training forward], compile: true}\n"
        "grid: {batch_size: [8, 16]}\ncells: [{batch_size: 64, image_size: 240x320}]\nsweep: {repeats: 2}\n"
    )
    read = grid.read_file(file)
    assert read["flags"] == ["--policy.type=act", "--phases=[training forward]", "--compile=true"]
    assert read["grid"] == {"batch_size": ["8", "16"]}
    assert read["cells"] == [{"batch_size": "64", "image_size": "240x320"}]
    assert read["sweep"] == ["--repeats=2"]
    # What the command line says stands in the file's place, whatever the file has.
    file.write_text("flags: {policy.path: evil, seed: 1}\ngrid: {recipe: [evil]}\nsweep: {sweep_dir: evil}\n")
    assert grid.read_file(file, {"policy.path", "recipe", "sweep_dir"})["flags"] == ["--seed=1"]


def test_a_file_sets_values_and_names_no_code(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    for text in (
        "flags: {policy.factory: 'evil:make'}", "flags: {policy-path: evil}", "flags: {env.hub_path: evil}",
        "flags: {policy.discover_packages_path: evil}", "flags: {env: {package_name: evil}}", "grid: {recipe: [evil]}",
        "flags: {policy.vlm_base: evil}", "flags: {policy.vlm_model_name: a/b}", "flags: {profile_functions: 'evil:f'}",
        "flags: {variant: ['a: precision=bf16', 'b: python = evil']}", "grid: {variant: ['a: exported=evil']}",
        "cells: [{seed: 1, policy.path: evil}]", "sweep: {launcher: ray}", "sweep: {ray.address: 'evil:6379'}",
        "sweep: {sweep_dir: evil}", "sweep: {grid: 'policy.factory=evil.py:make'}",
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(UserError, match="names code, a file or an address, which only your own command line may"):
            grid.read_file(file)
    file.write_text(
        "flags: {policy.type: pi05, policy.dtype: bfloat16, phases: [training forward], policy.scheduler_name: cosine,"
        "  policy.pretrained_backbone_weights: ResNet18_Weights.IMAGENET1K_V1, env.type: pusht,"
        "  rename_map: {observation.image: observation.images.top}, policy.prompt_template: 'do {x}',"
        "  variant: ['a: precision=bf16, precision.part=model.backbone', 'b: rtc.execution_horizon=10']}\n"
        "grid: {image_size: [240x320], learning_rate: [1e-4, .5]}\n"
        "sweep: {best: throughput where policy.vision_backbone=resnet18, memory_gib: 8, order_seed: 3}\n"
    )
    assert len(grid.read_file(file)["flags"]) == 9


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grid: [1, 2", "not YAML"),
        ("- 1", "expected keys"),
        ("gird: {a: [1]}", "did you mean 'grid'"),
        ("grid: {a: 1}", "list of values"),
        ("grid: {a: [1, 1]}", "given twice"),
        ("cells: [3]", "must be settings"),
        ("flags: 3", "must be a dict"),
        ("grid: {seed: &a [1, 2], threads: *a}", "anchors are not read"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=says) as told:
        grid.read_file(file)
    assert "\n" not in str(told.value)
