"""A result for the tests of this folder."""

from __future__ import annotations

import pytest
from support.examples.findings_results import make_measurement
from support.examples.findings_results import result as breakdown

from strobe.core.results.answer import Result


@pytest.fixture
def result() -> Result:
    return breakdown(make_measurement({}, n=2))
