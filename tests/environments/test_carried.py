"""The carried files: they run on Python 3.10, need no Strobe, and draw the same noise."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest
import torch

from strobe.environments.side import CARRIED

FILES = sorted(CARRIED.glob("*.py"))
ALLOWED = {*sys.stdlib_module_names, "numpy", "torch", "lerobot", *(file.stem for file in FILES)}


NUMBERS = [[-0.15583917, 1.01383793], [0.46126881, 1.52191722]]


@pytest.fixture(scope="module")
def noise():
    sys.path.insert(0, str(CARRIED))
    try:
        return importlib.import_module("carried_noise")
    finally:
        sys.path.remove(str(CARRIED))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_carried_file_is_python_3_10(file: Path):
    ast.parse(file.read_text(), feature_version=(3, 10))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_carried_file_imports_nothing_that_another_environment_may_lack(file: Path):
    """Strobe itself is imported for policies with random weights alone, inside the function that reads them."""
    tree = ast.parse(file.read_text())
    inside = {id(node) for top in tree.body if isinstance(top, ast.FunctionDef) for node in ast.walk(top)}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            root = name.partition(".")[0]
            assert root in ALLOWED or (root == "strobe" and id(node) in inside), f"{file.name} imports {name}"


def test_noise_comes_from_numpys_frozen_generator_and_torchs_functions_come_back(noise):
    """The numbers are written out: they must never change, whatever NumPy or torch is installed."""
    plain = torch.randn
    with noise.same_noise(7):
        drawn = torch.randn(2, 2)
        half = torch.randn_like(torch.empty(4, dtype=torch.float16))
    assert torch.allclose(drawn, torch.tensor(NUMBERS), atol=1e-6)
    assert half.dtype == torch.float16
    assert torch.randn is plain


def test_a_draw_of_another_shape_changes_no_other_draw(noise):
    with noise.same_noise(7):
        first, second = torch.randn(2, 3), torch.normal(0.0, 1.0, size=(2, 3))
    with noise.same_noise(7):
        torch.rand(5)
        again = torch.randn((2, 3))
        torch.randn(4)
        later = torch.randn(size=(2, 3))
    assert torch.equal(first, again)
    assert torch.equal(second, later)
    assert not torch.equal(first, second)


def test_noise_of_a_seed_is_the_same_again_and_that_of_another_is_not(noise):
    def draw_noise(seed: int) -> torch.Tensor:
        with noise.same_noise(seed):
            return torch.cat(
                [torch.rand(8), torch.normal(torch.zeros(8), torch.ones(8)), torch.nn.functional.dropout(torch.ones(8))]
            )

    assert torch.equal(draw_noise(3), draw_noise(3))
    assert not torch.equal(draw_noise(3), draw_noise(4))


def test_a_training_step_drops_nothing_and_dropout_comes_back(noise):
    plain = torch.nn.functional.dropout
    module, ones = torch.nn.Dropout(0.5).train(), torch.ones(64)
    query = torch.randn(1, 2, 8, 4)
    attended = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    with noise.disable_dropout():
        assert torch.equal(module(ones), ones)
        assert torch.equal(ones.new_empty(64).bernoulli_(0.25), ones * 0.25)
        dropped = torch.nn.functional.scaled_dot_product_attention(query, query, query, None, 0.9)
        named = torch.nn.functional.scaled_dot_product_attention(query, query, query, dropout_p=0.9)
    assert torch.allclose(dropped, attended)
    assert torch.allclose(named, attended)
    assert torch.nn.functional.dropout is plain
    assert not torch.equal(module(ones), ones)
