"""The families of openpi's and Isaac-GR00T's own policies, which LeRobot's are ports of. Needs neither, nor LeRobot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from strobe.core.families.family import Family, list_no_probes
from strobe.core.families.modules import build_module_family
from strobe.core.families.registry import find_family
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families import pi

# Policies of openpi and Isaac-GR00T, known by the names of their classes and modules; neither project is imported.
#
# LeRobot's pi0, pi0.5 and GR00T N1.7 are ports of them that keep these names, so that both have the same parts. The
# names are those of openpi's ``models_pytorch/pi0_pytorch.py`` and ``policies/policy.py``, and of Isaac-GR00T's
# ``model/gr00t_n1d7/gr00t_n1d7.py`` and ``policy/gr00t_policy.py``.

_WRAPPER = {"pi": "model", "groot": "_groot_model"}  # LeRobot's attribute that holds what the other project passes


def _inside(probes: Sequence[Probe], family: str) -> list[Probe]:
    wrapper = _WRAPPER[family]
    return [
        replace(probe, path=probe.path.removeprefix(wrapper).removeprefix("."), optional=True)
        for probe in probes
        if f"{probe.path}.".startswith(f"{wrapper}.")
    ]


def _pi_probes(module: Any) -> Sequence[Probe]:
    resize = Probe.method("", "_preprocess_observation", "image resize", optional=True)
    return [resize, *_inside([*pi.probes(module), *pi.inference(module)], "pi")]


def _groot_probes(module: Any) -> Sequence[Probe]:
    family = find_family("groot")  # in strobe-zoo; without it the module is divided along its modules
    if family is not None and family.probes is not None:
        return _inside(family.probes(module), "groot")
    return (build_module_family(module).probes or list_no_probes)(module)


def _openpi_policy(_: Any) -> Sequence[Probe]:
    return [
        Probe.method("", "_input_transform", "preprocessing", optional=True),
        Probe.method("", "_sample_actions", "policy", optional=True),
        Probe.method("", "_output_transform", "postprocessing", optional=True),
    ]


def _groot_policy(_: Any) -> Sequence[Probe]:
    """Return probes on what `Gr00tPolicy.get_action` calls. Python looks up a processor's ``__call__`` in its class."""
    return [
        Probe.method("processor.__class__", "__call__", "preprocessing", optional=True),
        Probe.method("", "collate_fn", "collation", optional=True),
        Probe.method("model", "get_action", "policy", optional=True),
        Probe.method("processor", "decode_action", "postprocessing", optional=True),
    ]


# The last steps of a class's full name → its record. A subclass is what its base is.
_MODULES = {
    "pi0_pytorch.PI0Pytorch": Family("pi", (), _pi_probes),
    "gr00t_n1d7.Gr00tN1d7": Family("groot", (), _groot_probes),
}
_POLICIES = {
    "openpi.policies.policy.Policy": Family("openpi policy", (), _openpi_policy),
    "gr00t_policy.Gr00tPolicy": Family("groot policy", (), _groot_policy),
}


def module_of_other_project(module: object) -> Family | None:
    """Return the record of a torch module of openpi or Isaac-GR00T; None of any other object."""
    return _find_family(module, _MODULES)


def policy_of_other_project(policy: object) -> Family | None:
    """Return the record of an object of theirs that holds such a module: its probes are around it. Else None."""
    return _find_family(policy, _POLICIES)


def _find_family(thing: object, records: dict[str, Family]) -> Family | None:
    for kind in type(thing).__mro__:
        full = f".{kind.__module__}.{kind.__qualname__}"
        for name, record in records.items():
            if full.endswith(f".{name}"):
                return record
    return None
