"""The catalogue's entry of engines: which parts of a policy are offered in which precision."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress

import torch

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Parts
from strobe.core.measure.ceiling import faster_in_bfloat16
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.room import numbers
from strobe.core.treatments.switch import entry
from strobe.core.treatments.treatment import Spec
from strobe.lerobot.families.flow_parts import EXPERT, PREFIX
from strobe.lerobot.sampling import denoising_steps
from strobe.treatments.engines.backends import ENGINES, FP8
from strobe.treatments.engines.engine import PartInEngine
from strobe.treatments.parts import dominant, named_parts

LARGE = 1e9  # numbers of a part's weights, from which it is tried by itself
FEW_STEPS = 20  # denoising steps, up to which a program of all of them takes 40 s to build on two cores (Diffusion)


def _make(spec: Spec) -> PartInEngine:
    engine, part, precision = str(spec["engine"]), str(spec.get("engine.part", "")), spec.get("engine.precision", "")
    if (steps := spec.get("engine.steps", "each")) not in ("each", "all"):
        raise UserError(f"engine.steps={steps}: use each (a call for each denoising step) or all (one call)")
    return PartInEngine(engine, part, str(precision), all_steps=steps == "all")


def find_engine(device: torch.device) -> tuple[str, Sequence[str]]:
    """Return the engine that can be had for ``device``, with its precisions; none of them where there is none."""
    engine = {"cpu": "openvino", "cuda": "tensorrt"}.get(device.type, "")
    with suppress(UserError, KeyError):
        made = ENGINES[engine]()
        made.require(device)
        return engine, made.precisions(device)
    return "", ()


def _candidates(subject: Subject) -> list[Spec]:
    engine, able = find_engine(subject.device)
    order = ("fp16", "bf16", FP8) if engine == "tensorrt" else ("bf16", "fp32")
    precisions = [name for name in order if name in able]
    networks = _networks(subject) if engine == "openvino" else []  # such parts have not been tried in TensorRT
    own = Parts.from_family(subject.family) if engine == "openvino" else Parts()
    one_form = ["bf16" if "bf16" in able and own.caching and faster_in_bfloat16() else "fp32"]  # enough of large ones

    def make(paths: Iterable[str], forms: Sequence[str]) -> list[Spec]:
        each = itertools.product(paths, forms)
        return [{"engine": engine, "engine.part": path, "engine.precision": form} for path, form in each]

    whole = make(own.sampling, one_form if own.caching else precisions)
    parts = make((*networks, *list_cacheless_parts(subject)), precisions)
    # First, as a program of all steps has timesteps for constants. In bfloat16 a call of each rounds their phases.
    return [*({**spec, "engine.steps": "all"} for spec in whole), *parts, *make(own.caching, one_form)]


def _networks(subject: Subject) -> list[str]:
    inside = list_cacheless_parts(subject)
    called = [path for path, method in subject.compiled_methods if path and method == "forward"]
    return [path for path in called if sum(part.startswith(f"{path}.") for part in inside) > 1]


def list_cacheless_parts(subject: Subject) -> list[str]:
    """Return the paths of the parts that most time goes to, without those that a key-value cache goes through."""
    return [path for path in dominant(subject) if not {PREFIX, EXPERT} & set(named_parts(subject, [path]))]


def _path(spec: Spec) -> str:
    return next((str(value) for key, value in spec.items() if key.endswith(".part")), "")


def _parts(subject: Subject, spec: Spec) -> Sequence[str]:
    path = _path(spec)
    return Parts.from_family(subject.family).caching.get(path) or named_parts(subject, [path])


def slow_to_build(subject: Subject, spec: Spec, large: float = LARGE) -> bool:
    """Return whether it takes a minute or more to build: language models, many steps, and what has two shapes."""
    path, config = _path(spec), getattr(subject.module, "config", None)
    all_steps, caching = spec.get("engine.steps") == "all", Parts.from_family(subject.family).caching
    part = dict(subject.module.named_modules()).get(path)
    return (
        (all_steps and (bool(caching) or (denoising_steps(config) or FEW_STEPS + 1) > FEW_STEPS))
        or path in caching
        or (part is not None and numbers(part.parameters()) > large)
    )


ENTRY = entry("engine", _make, candidates=_candidates, parts=_parts, replaces=True, alone=slow_to_build)
