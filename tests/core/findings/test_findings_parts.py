"""Findings on parts: the biggest, the backbone, the processors."""

import re
from typing import Any

from support.examples.findings_results import approve_findings, make_measurement, result, rules

from strobe.core import kinds
from strobe.core.findings import Thresholds

A, B = {"policy": 100.0, "policy/a": 40.0, "policy/b": 60.0}, {"vision": 60.0, "vision/0": 30.0, "vision/2": 30.0}


def make_repeated_parts(parts: dict[str, float], *twice: int) -> Any:
    """An inference in which parts at the places ``twice`` run once more."""
    made = make_measurement(parts)
    made.components += [made.components[place].model_copy() for place in twice]
    return result(made)


def forward(ms: float, whole: float = 200.0) -> Any:
    parts = {"preprocessing": whole - 100, "forward": 100.0, "forward/backbone": ms, "forward/encoder": 100.0 - ms}
    return result(make_measurement(parts, phase="training forward", whole=whole))


def test_what_is_found() -> None:
    approve_findings("parts", {
        "biggest-part": {
            "the part that could give most": ("biggest-part", make_repeated_parts(
                {"preprocessing": 5.0, "policy": 95.0, "policy/backbone": 60.0, "policy/encoder": 35.0})),
            "blocks below the first cut do not hide it": ("biggest-part", make_repeated_parts(
                {"policy": 100.0, "policy/encoder": 60.0, "policy/encoder/layer 0": 60.0, "policy/decoder": 40.0})),
            "a part that runs twice is summed": ("biggest-part", make_repeated_parts(A, 1)),
            "numbered modules of two sequences are not one": ("biggest-part", make_repeated_parts(
                B | {"denoiser": 40.0, "denoiser/2": 40.0})),
            "no parts": ("", make_repeated_parts({})),
        },
        "backbone-.*": {  # by its share of the forward alone
            "backbone 70 %": ("backbone-dominates", forward(70.0)),
            "backbone 69.9 %": ("backbone-undecided", forward(69.9)),
            "backbone 50 %": ("backbone-undecided", forward(50.0)),
            "backbone 49.9 %": ("backbone-small", forward(49.9)),
            "ten delays": ("backbone-dominates", forward(80.0, 100.0), Thresholds(delays=10)),
            "another limit": ("backbone-dominates", forward(60.0), Thresholds(backbone_dominates=0.6)),
            "at inference": ("", make_repeated_parts({"policy": 100.0, "policy/backbone": 80.0})),
        },
        "preprocessing-heavy": {
            "preprocessing 20 %": ("", make_repeated_parts({"preprocessing": 20.0, "policy": 80.0})),
            "preprocessing 20.1 %": ("preprocessing-heavy",
                                     make_repeated_parts({"preprocessing": 20.1, "policy": 79.9})),
        },
    })  # fmt: skip


def test_a_share_is_that_of_the_times_next_to_it() -> None:
    made = make_measurement({"preprocessing": 3.0, "policy": 8.0, "policy/backbone": 7.0}, whole=11.0)
    for part in made.components:  # few calls in which the processors take long
        part.values[:3] = [90.0 if part.name == "preprocessing" else part.values[0]] * 3
        part.share = sum(part.values) / (17 * 11.0 + 3 * 98.0)
    answer = result(made)
    texts = [f"{found.title}: {found.found}" for found in rules(answer).values()]
    texts += [" ".join(kinds.document(answer).answers)]
    of = re.compile(r"([\d.]+) %.*?(?:([\d.]+) ms of ([\d.]+) ms|([\d.]+) ms per chunk.*? ([\d.]+) ms of it there)")
    seen = [found.groups() for text in texts if (found := of.search(text))]
    for share, part_ms, whole_ms, per_chunk, there in seen:
        assert abs(float(share) - 100 * float(part_ms or there) / float(whole_ms or per_chunk)) < 0.6
    assert len(seen) >= 3
