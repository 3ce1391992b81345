"""Which of the anatomy's parts a module belongs to: what ``Entry.parts`` says of a treatment of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def parts_of(subject: Subject, paths: Iterable[str]) -> tuple[str, ...]:
    """The parts, as the anatomy names them, that the modules at ``paths`` belong to, each once."""
    return tuple(dict.fromkeys(part for path in paths for part in _parts(subject, path)))


def is_flow(subject: Subject) -> bool:
    """Whether it is a flow policy: a prefix pass fills a cache, denoising steps read it."""
    return isinstance(subject, PolicySubject) and subject.anatomy.name in ("pi", "smolvla")


def _parts(subject: Subject, path: str) -> Iterator[str]:
    if is_flow(subject):
        for step in path.split("."):
            if step in _FLOW:
                yield from _FLOW[step]
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
