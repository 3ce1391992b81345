"""Modules of a subject and what its anatomy calls them: what ``Entry.parts`` says of a treatment of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from strobe.errors import UserError, nearest
from strobe.subjects.anatomies import pi, smolvla
from strobe.subjects.policy_subject import PolicySubject
from strobe.subjects.subject import Subject

VISION, PREFIX, STEP, EXPERT = "vision tower", "prefix KV cache", "denoise step", "action expert"

# The parts of flow policies are methods, which name no module: a step of a module's path → the parts it works in.
_FLOW: dict[str, tuple[str, ...]] = {
    "vision_tower": (VISION,),
    "vision_model": (VISION,),
    "multi_modal_projector": (VISION,),
    "connector": (VISION,),
    "language_model": (PREFIX,),
    "text_model": (PREFIX,),
    "gemma_expert": (STEP, EXPERT),
    "lm_expert": (STEP, EXPERT),
}

# Policy type → paths of the modules that its time goes to, the usually dearest first.
_PI = (pi.LANGUAGE, pi.VISION, pi.EXPERT)
_ACT = ("model.backbone", "model.encoder", "model.decoder")
_DOMINANT: dict[str, tuple[str, ...]] = {
    "pi0": _PI,
    "pi05": _PI,
    "smolvla": (smolvla.VISION, f"{smolvla.JOINT}.vlm.model.text_model", f"{smolvla.JOINT}.lm_expert"),
    "act": _ACT,
    "act_relative_rtc": _ACT,
    "diffusion": ("diffusion.unet", "diffusion.rgb_encoder"),
    "vjepa2": ("encoder",),
}


def dominant(subject: Subject) -> list[str]:
    """Paths of the modules that ``subject`` spends its time in."""
    kind = subject.policy.config.type if isinstance(subject, PolicySubject) else subject.info.kind
    modules = dict(subject.module.named_modules())
    found: list[str] = []
    for path in _DOMINANT.get(kind, ()):
        held = modules.get(path)
        if isinstance(held, nn.ModuleList):  # an encoder for each camera
            found += [f"{path}.{step}" for step, _ in held.named_children()]
        elif held is not None:
            found.append(path)
    return found


def parts_of(subject: Subject, paths: Iterable[str]) -> tuple[str, ...]:
    """The parts, as the anatomy names them, that the modules at ``paths`` belong to or hold, each once."""
    return tuple(dict.fromkeys(part for path in paths for part in _parts(subject, path)))


def part_of(module: nn.Module, path: str) -> nn.Module:
    """The module at ``path``, '' for all of it. Raises UserError."""
    modules = dict(module.named_modules())
    if path not in modules:
        raise UserError(f"no part '{path}' in {type(module).__name__}: {nearest(path, [n for n in modules if n])}")
    return modules[path]


def is_flow(subject: Subject) -> bool:
    """Whether it is a flow policy: a prefix pass fills a cache, denoising steps read it."""
    return isinstance(subject, PolicySubject) and subject.anatomy.name in ("pi", "smolvla")


def _parts(subject: Subject, path: str) -> list[str]:
    """Those it belongs to; where it is in none, those of the dominant modules in it."""
    return list(_around(subject, path)) or [
        part for held in dominant(subject) if held.startswith(f"{path}.") for part in _around(subject, held)
    ]


def _around(subject: Subject, path: str) -> Iterator[str]:
    if is_flow(subject):
        for step in path.split("."):
            yield from _FLOW.get(step, ())
        return
    anatomy = getattr(subject, "anatomy", None)
    for probe in anatomy.probes(subject.module) if anatomy is not None else ():
        if probe.level == 1 and probe.attribute == "forward" and (stars := _match(probe.path, path)) is not None:
            yield probe.name.format(*stars)


def _match(pattern: str, path: str) -> list[str] | None:
    """What each star of ``pattern`` stands for where ``path`` is the module that it names or one below."""
    steps, wanted = path.split("."), pattern.split(".")
    if len(steps) < len(wanted) or any(one not in ("*", step) for one, step in zip(wanted, steps, strict=False)):
        return None
    return [step for one, step in zip(wanted, steps, strict=False) if one == "*"]
