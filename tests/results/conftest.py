from __future__ import annotations

import pytest
from results.any_result import small

from strobe.results.schema import Result


@pytest.fixture
def result() -> Result:
    return small()
