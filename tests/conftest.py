"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest
import torch

# A shell that runs pytest in the background lets it, and all that it starts, ignore Ctrl-C, which some tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need an accelerator are skipped where there is none."""
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
