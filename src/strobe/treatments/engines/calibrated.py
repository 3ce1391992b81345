"""A part of the subject in an OpenVINO engine in int8, calibrated on the subject's own observations.

A product of 8-bit integers takes half the time of one in bfloat16 where the processor has the instructions (AVX-512
VNNI, AMX), convolutions included. What it takes is scales, and these are of the observations that they were measured
on. So an engine is kept under the name of the observations. A robot's program loads the policy before it has seen
anything: it takes the newest engine that was calibrated on data, and never makes one of made-up pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from strobe.core.errors import UserError
from strobe.core.subjects.subject import InputSource, Subject
from strobe.core.treatments.room import numbers
from strobe.core.treatments.switch import entry
from strobe.core.treatments.treatment import Spec
from strobe.treatments.engines.backends import ENGINES, INT8, Run, require_nncf
from strobe.treatments.engines.engine import ENTRY as ENGINE
from strobe.treatments.engines.engine import PartInEngine, without_caches
from strobe.treatments.engines.recorded import Call

LARGE = 2e8  # numbers of a part's weights, from which calibrating takes a minute or more


@dataclass
class CalibratedPart(PartInEngine, key="int8_engine"):
    """The module at the path ``part`` in an engine in int8; what does not gain from it stays in bfloat16 or float32.

    Shapes that no observation had are torch's.
    """

    precision: str = INT8
    inferences = 4
    recorded = 32
    grows = False

    def __post_init__(self) -> None:
        if self.engine != "openvino":
            raise UserError(f"int8_engine={self.engine}: only openvino has it")
        super().__post_init__()

    def _named(self, precision: str) -> str:
        return precision

    def _require(self, device: torch.device) -> None:
        super()._require(device)
        require_nncf()

    def _cached_file(self, file: Path, subject: Subject) -> Path:
        fed = subject.input_source
        if fed.kind != "pending":
            return file.with_name(f"{file.stem}.{fed.name}{file.suffix}")
        made_up = InputSource("made up").name
        of_data = [engine for engine in file.parent.glob(f"{file.stem}.*{file.suffix}") if made_up not in engine.name]
        return max(of_data, key=lambda engine: engine.stat().st_mtime, default=file)

    def _least(self, subject: Subject) -> float:
        # Pictures that are made up may be brighter than any that it was calibrated on.
        return 0.0 if subject.input_source.kind == "pending" else super()._least(subject)

    def _made(self, subject: Subject, part: nn.Module, calls: Sequence[Call], places: Sequence[int], keep: Path) -> Run:
        if subject.input_source.kind == "pending":
            raise UserError(
                f"'{self.part}' in int8 is calibrated on observations, and this machine keeps no engine that was: run "
                f"strobe verify RECIPE with --dataset.root=FOLDER here first"
            )
        return super()._made(subject, part, calls, places, keep)


def _make(spec: Spec) -> CalibratedPart:
    return CalibratedPart(str(spec["int8_engine"]), str(spec.get("int8_engine.part", "")))


def _candidates(subject: Subject) -> list[Spec]:
    """Return each part that time goes to and that is called as a module."""
    if subject.device.type != "cpu":
        return []
    try:
        made = ENGINES["openvino"]()
        made.require(subject.device)
        require_nncf()
    except UserError:
        return []
    if INT8 not in made.precisions(subject.device):
        return []
    return [{"int8_engine": "openvino", "int8_engine.part": path} for path in without_caches(subject)]


def _as_engine(spec: Spec) -> Spec:
    return {"engine": "openvino", "engine.part": spec.get("int8_engine.part", "")}


def _slow_to_calibrate(subject: Subject, spec: Spec) -> bool:
    part = dict(subject.module.named_modules()).get(str(spec.get("int8_engine.part", "")))
    return part is not None and numbers(part.parameters()) > LARGE


ENTRY = entry(
    "int8_engine",
    _make,
    candidates=_candidates,
    parts=lambda subject, spec: ENGINE.parts(subject, _as_engine(spec)),
    replaces=True,
    alone=_slow_to_calibrate,
    slot="engine",
)
