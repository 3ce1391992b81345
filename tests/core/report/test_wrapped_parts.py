"""A part that one variant wraps is shown beside the same part of a variant that runs it bare."""

from __future__ import annotations

from collections.abc import Mapping

from support.examples.findings_results import make_measurement

from strobe.core.report import tables
from strobe.core.results.measurement import Measurement


def measurement(name: str, parts: Mapping[str, float]) -> Measurement:
    return make_measurement(dict(parts), name=name, n=1)


BARE = {
    "policy": 90, "policy/prefix": 40, "policy/denoise step": 45, "policy/denoise step/expert": 41,
    "policy/denoise step/other": 4, "policy/other": 5, "other": 10,
}  # fmt: skip
WRAPPED = {
    "policy": 95, "policy/prefix": 40, "policy/RTC step": 52, "policy/RTC step/denoise step": 46,
    "policy/RTC step/denoise step/expert": 42, "policy/RTC step/denoise step/other": 4,
    "policy/RTC step/autograd correction": 2, "policy/RTC step/other": 4, "policy/other": 3, "other": 5,
}  # fmt: skip


def test_the_bare_part_moves_beside_the_wrapped_one():
    bare, wrapped = tables.side_by_side([measurement("a", BARE), measurement("b", WRAPPED)], None)
    for path, ms in {
        "policy/RTC step/denoise step": 45,
        "policy/RTC step/denoise step/expert": 41,
        "policy/RTC step/denoise step/other": 4,
        "policy/other": 5,
        "other": 10,
    }.items():
        assert bare[tuple(path.split("/"))].summary.median == ms
    assert ("policy", "RTC step") not in bare
    assert ("policy", "RTC step", "other") not in bare
    assert len(bare) == len(BARE)
    assert len(wrapped) == len(WRAPPED)


def test_the_split_of_rtc_is_relative_to_its_base_denoising():
    table = tables.guidance([measurement("a", BARE), measurement("b", WRAPPED)])
    cells = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert list(cells) == ["Base denoising", "Guidance", "Autograd correction", "RTC overhead"]
    assert cells["Base denoising"][1] == "100.0 %"
    assert cells["RTC overhead"] == ["6.00", "13.0 %"]
    assert cells["Guidance"][0] == "4.00"
    assert tables.guidance([measurement("a", BARE)]) is None
