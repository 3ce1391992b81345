"""A part that one variant wraps is shown beside the same part of a variant that runs it bare."""

from __future__ import annotations

from collections.abc import Mapping

from strobe.report import tables
from strobe.results.data import Samples, Summary
from strobe.results.measurement import Component, Measurement


def summary(ms: float) -> Summary:
    return Summary(n=1, median=ms, mean=ms, std=0, min=ms, max=ms, p95=ms)


def measurement(name: str, parts: Mapping[str, float]) -> Measurement:
    components = [
        Component(
            path=path.split("/"),
            other=path.endswith("other"),
            calls=1,
            values=[ms],
            summary=summary(ms),
            share=ms / 100,
        )
        for path, ms in parts.items()
    ]
    return Measurement(
        name=name, phase="inference", samples=Samples(values=[100], summary=summary(100)), components=components
    )


BARE = {
    "policy": 90,
    "policy/prefix": 40,
    "policy/denoise step": 45,
    "policy/denoise step/expert": 41,
    "policy/denoise step/other": 4,
    "policy/other": 5,
    "other": 10,
}
WRAPPED = {
    "policy": 95,
    "policy/prefix": 40,
    "policy/RTC step": 52,
    "policy/RTC step/denoise step": 46,
    "policy/RTC step/denoise step/expert": 42,
    "policy/RTC step/denoise step/other": 4,
    "policy/RTC step/autograd correction": 2,
    "policy/RTC step/other": 4,
    "policy/other": 3,
    "other": 5,
}


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
