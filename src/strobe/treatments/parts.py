"""The modules of a subject that its time goes to, and what its anatomy calls them: for treatments of one part."""

from __future__ import annotations

from torch import nn

from strobe.errors import UserError, nearest
from strobe.subjects.anatomies import pi, smolvla
from strobe.subjects.policy_subject import PolicySubject
from strobe.subjects.subject import Subject
from strobe.treatments.places import EXPERT, PREFIX, STEP, VISION

# Policy type → path of a module and the anatomy's parts that its time is in, the usually dearest first.
_FLOW_STEP = (STEP, EXPERT)
_PI = (
    (pi.LANGUAGE, (PREFIX,)),
    (pi.VISION, (VISION,)),
    (pi.EXPERT, _FLOW_STEP),
)
_ACT = (
    ("model.backbone", ("backbone",)),
    ("model.encoder", ("encoder",)),
    ("model.decoder", ("decoder",)),
)
_DOMINANT: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "pi0": _PI,
    "pi05": _PI,
    "smolvla": (
        (smolvla.VISION, (VISION,)),
        (f"{smolvla.JOINT}.vlm.model.text_model", (PREFIX,)),
        (f"{smolvla.JOINT}.lm_expert", _FLOW_STEP),
    ),
    "act": _ACT,
    "act_relative_rtc": _ACT,
    "diffusion": (
        ("diffusion.unet", (STEP,)),
        ("diffusion.rgb_encoder", ("image encoder",)),
    ),
    "vjepa2": (("encoder", ("encoder",)),),
}


def dominant(subject: Subject) -> list[tuple[str, tuple[str, ...]]]:
    """Paths of the modules that ``subject`` spends its time in, with their parts in the anatomy."""
    kind = subject.policy.config.type if isinstance(subject, PolicySubject) else subject.info.kind
    modules = dict(subject.module.named_modules())
    found: list[tuple[str, tuple[str, ...]]] = []
    for path, names in _DOMINANT.get(kind, ()):
        held = modules.get(path)
        if isinstance(held, nn.ModuleList):  # an encoder for each camera
            found += [(f"{path}.{step}", names) for step, _ in held.named_children()]
        elif held is not None:
            found.append((path, names))
    return found


def named(subject: Subject, path: str) -> list[str]:
    """The anatomy's parts that the module at ``path`` is in or holds; none where it has no name for them."""
    known = dominant(subject)
    for held, names in known:
        if path == held or path.startswith(f"{held}."):
            return list(names)
    return [name for held, names in known for name in names if held.startswith(f"{path}.")]


def part_of(module: nn.Module, path: str) -> nn.Module:
    """The module at ``path``, '' for all of it. Raises UserError."""
    modules = dict(module.named_modules())
    if path not in modules:
        raise UserError(f"no part '{path}' in {type(module).__name__}: {nearest(path, [n for n in modules if n])}")
    return modules[path]
