"""CUDA graphs: the prefix pass, the denoising loop or the whole sampling recorded once and replayed as one launch.

A denoising step of a flow policy is hundreds of small kernels, and on a fast device most of its time is Python and
launches. A graph has the same kernels in the same order, reads its inputs from fixed places and writes its outputs to
fixed places; so inputs are copied in and outputs copied out (`Regions`). What the host does in between (numbers sent
to the device, noise) is in `host_work`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from strobe.devices.accelerators import Pool
from strobe.errors import UserError, nearest
from strobe.policies.families.registry import types_with
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject
from strobe.results.traits import TreatmentTraits
from strobe.treatments.graphs.calls import always, chunk, loop, prefix
from strobe.treatments.graphs.cuda import Cuda
from strobe.treatments.graphs.regions import Capture, Regions
from strobe.treatments.parts import EXPERT, PREFIX, STEP, VISION, is_flow
from strobe.treatments.patch import Patches
from strobe.treatments.switch import entry
from strobe.treatments.treatment import FOR_INFERENCE, Spec, Treatment, Undo, policy_of
from strobe.treatments.words import GRAPHS


@dataclass
class CudaGraph(Treatment, key="graph"):
    """``what``: prefix (embedding and KV cache), loop (all denoising steps), or chunk (the policy's whole sampling)."""

    what: str
    capture: Capture = field(default_factory=Cuda)
    _regions: Regions | None = field(default=None, init=False, repr=False)
    _module: nn.Module | None = field(default=None, init=False, repr=False)
    phases = FOR_INFERENCE
    builds = "captured"

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self.what, builds=self.builds)

    def pools(self, device: torch.device) -> Sequence[Pool]:
        return self.capture.pools

    def apply(self, subject: Subject) -> Undo:
        policy = policy_of(subject)
        self.capture.require(subject, self.what)
        if self._regions is None or self._module is not subject.module:
            self._regions, self._module = Regions(self.what, policy, self.capture), subject.module
        regions = self._regions
        regions.look()
        patches = Patches()
        try:
            self._put(policy, regions, patches)
        except BaseException:
            patches.undo()
            raise
        return patches.undo

    def _put(self, subject: PolicySubject, regions: Regions, patches: Patches) -> None:
        family, kind = subject.family, subject.info.kind
        if self.what == "chunk":
            if family.whole is None:
                raise UserError(f"graph=chunk: the whole sampling of '{kind}' cannot be captured; {_others(subject)}")
            path, method = family.whole
            patches.wrap(attrgetter(path)(subject.policy), method, lambda call: chunk(call, regions, subject))
        elif family.flow is None:
            types = ", ".join(types_with(lambda family: family.flow))
            raise UserError(f"graph={self.what} is for flow policies ({types}); {_others(subject)}")
        elif self.what == "prefix":
            if family.embedding is not None:
                path, method, label = family.embedding
                patches.wrap(attrgetter(path)(subject.policy), method, lambda call: always(call, regions, label))
            joint = attrgetter(family.flow.joint)(subject.policy)
            patches.wrap(joint, "forward", lambda call: prefix(call, regions))
        else:
            model: Any = subject.policy.model
            modeling = sys.modules[type(model).__module__]
            if not hasattr(modeling, "euler_integrate"):
                raise UserError("graph=loop: this LeRobot has another denoising loop than 0.6.1")
            patches.share(modeling, "euler_integrate", lambda call: loop(call, regions, subject))
        patches.wrap(subject.policy, "predict_action_chunk", regions.watched)


def _others(subject: PolicySubject) -> str:
    possible = [str(spec["graph"]) for spec in _possible(subject)]
    return f"possible here: {', '.join(possible)}" if possible else "none of its kind can be"


def _make(spec: Spec) -> CudaGraph:
    if spec["graph"] not in GRAPHS:
        raise UserError(f"graph={spec['graph']}: {nearest(str(spec['graph']), GRAPHS)}")
    return CudaGraph(str(spec["graph"]))


def _possible(subject: Subject) -> list[Spec]:
    if not isinstance(subject, PolicySubject):
        return []
    found: list[Spec] = [{"graph": "loop"}, {"graph": "prefix"}] if is_flow(subject) else []
    return [*found, {"graph": "chunk"}] if subject.family.whole is not None else found


def _candidates(subject: Subject) -> list[Spec]:
    return _possible(subject) if subject.device.type == "cuda" else []


def _parts(_: Subject, spec: Spec) -> Sequence[str]:
    return {"prefix": (VISION, PREFIX), "loop": (STEP, EXPERT)}.get(str(spec["graph"]), ())


ENTRY = entry("graph", _make, candidates=_candidates, parts=_parts)
