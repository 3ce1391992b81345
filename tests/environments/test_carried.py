"""What is carried to another environment: it runs on Python 3.10, needs no Strobe, draws the same noise."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from strobe.environments.side import CARRIED

FILES = sorted(CARRIED.glob("*.py"))
ALLOWED = {*sys.stdlib_module_names, "numpy", "torch", "lerobot", *(file.stem for file in FILES)}


@pytest.fixture(scope="module")
def noise():
    sys.path.insert(0, str(CARRIED))
    try:
        import carried_noise
    finally:
        sys.path.remove(str(CARRIED))
    return carried_noise


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


def test_noise_is_numpys_frozen_stream_and_torchs_functions_come_back(noise):
    plain = torch.randn
    expected = np.random.RandomState(7)
    with noise.same_noise(7):
        drawn = [torch.randn(2, 3), torch.randn((2, 3)), torch.normal(0.0, 1.0, size=(2, 3))]
        like = torch.randn_like(torch.empty(4, dtype=torch.float16))
    for one in drawn:
        assert np.allclose(one.numpy(), expected.standard_normal((2, 3)))
        assert one.dtype == torch.float32
    assert np.allclose(like.float().numpy(), expected.standard_normal(4), atol=1e-3)
    assert like.dtype == torch.float16
    assert torch.randn is plain


def test_noise_of_a_seed_is_the_same_again_and_that_of_another_is_not(noise):
    def drawn(seed: int) -> torch.Tensor:
        with noise.same_noise(seed):
            return torch.cat(
                [torch.rand(8), torch.normal(torch.zeros(8), torch.ones(8)), torch.nn.functional.dropout(torch.ones(8))]
            )

    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(4))
