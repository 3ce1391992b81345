"""Parameters that show one mechanism on many architectures, dtypes or cases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def matrix(values: Iterable[Any], keep: int = 1) -> list[Any]:
    """Return parameters of which `make test` runs the first ``keep``, and `make test-all` every one."""
    return [value if index < keep else _mark_matrix(value) for index, value in enumerate(values)]


def _mark_matrix(value: Any) -> Any:
    if isinstance(value, ParameterSet):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.matrix], id=value.id)
    several = type(value) is tuple  # one for each of the test's arguments
    return pytest.param(*value if several else (value,), marks=pytest.mark.matrix)
