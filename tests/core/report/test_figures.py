"""A plot that Plotly would not draw as it is meant is refused when it is built: unknown names, and unknown values."""

from __future__ import annotations

from typing import Any

import pytest

from strobe.core.report.charts import Plot


@pytest.mark.parametrize(
    ("trace", "layout"),
    [
        ({"type": "bar", "colour": "red"}, {}),
        ({"type": "bar", "orientation": "x"}, {}),
        ({"type": "bar"}, {"xaxis": {"tickmod": "array"}}),
        ({"type": "bar"}, {"barmode": "heap"}),
    ],
)
def test_a_property_that_plotly_does_not_know_is_refused(trace: dict[str, Any], layout: dict[str, Any]) -> None:
    assert Plot("x", "", [{"type": "bar"}], {}).data[0]["type"] == "bar"
    with pytest.raises(ValueError, match=r"Invalid|did you mean|Bad property"):
        Plot("x", "", [trace], layout)
