"""A result for the tests of this folder."""

from __future__ import annotations

import pytest
from support.any_result import small

from strobe.results.answer import Result


@pytest.fixture
def result() -> Result:
    return small()
