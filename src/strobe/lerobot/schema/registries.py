"""Types that LeRobot and its plug-ins register: policies, environments, and others that are chosen by a `type`."""

from __future__ import annotations

import ast
import os
import sys
from functools import cache
from importlib.metadata import Distribution
from pathlib import Path

from strobe.lerobot.schema.classes import Class, class_of, find, lineage
from strobe.lerobot.schema.source import UnreadableSourceError, file_of, module

# LeRobot's own rule for the distributions that it imports (lerobot.utils.import_utils.register_third_party_plugins).
PLUGINS = ("lerobot_robot_", "lerobot_camera_", "lerobot_teleoperator_", "lerobot_policy_", "lerobot_env_")

POLICY = "lerobot.configs.policies:PreTrainedConfig"
ENVIRONMENT = "lerobot.envs.configs:EnvConfig"

# Registry → the package where LeRobot registers its own.
FOLDERS = {POLICY: "lerobot.policies", ENVIRONMENT: "lerobot.envs"}


def choices(registry: str) -> dict[str, Class]:
    """Return type → its config, for all types that LeRobot and the installed plug-ins register.

    Args:
        registry: `POLICY` or `ENVIRONMENT`.

    Raises:
        UnreadableSourceError: the source of a plug-in does not show how it registers.
    """
    base = find(registry)
    configs: dict[str, Class] = {}
    for package in (FOLDERS[registry], *plugins()):
        if (file := file_of(package)) is not None:  # else LeRobot cannot import it either
            configs |= _registered(package, file, base)
    return configs


def plugins() -> list[str]:
    """Return the names of LeRobot's installed plug-ins: a distribution and its module have the same name."""
    names = []
    for folder in dict.fromkeys(sys.path):
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            if entry.endswith((".dist-info", ".egg-info")) and entry.lower().replace("-", "_").startswith(PLUGINS):
                name = Distribution.at(Path(folder or ".", entry)).metadata["Name"]
                if name and name.startswith(PLUGINS) and name not in names:
                    names.append(name)
    return names


@cache
def _registered(package: str, file: Path, base: Class) -> dict[str, Class]:
    """Return the types that the modules of ``package``, whose own file is ``file``, register with ``base``."""
    configs: dict[str, Class] = {}
    folder = file.parent
    for source in sorted(folder.rglob("*.py")) if file.name == "__init__.py" else [file]:
        text = source.read_bytes()
        if b"register_subclass" not in text:
            continue
        name = ".".join([package, *source.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__")
        source_module = module(name)
        shown = 0
        for node in source_module.classes():
            for decorator in node.decorator_list:
                called = _registration(decorator)
                if called is None:
                    continue
                shown += 1
                registry = class_of(source_module, called[0])
                if registry is not None and any(cls.key == base.key for cls in lineage(registry)):
                    configs[called[1]] = Class(source_module, node)
        if not package.startswith("lerobot.") and shown < text.count(b".register_subclass"):
            raise UnreadableSourceError(f"{source} registers in a way of its own")
    return configs


def _registration(decorator: ast.expr) -> tuple[ast.expr, str] | None:
    """Return registry and type of ``@Registry.register_subclass("type")``; None for another decorator."""
    if not (isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute)):
        return None
    if decorator.func.attr != "register_subclass":
        return None
    values = [*decorator.args, *(keyword.value for keyword in decorator.keywords if keyword.arg == "name")]
    if len(values) == 1 and isinstance(values[0], ast.Constant) and isinstance(values[0].value, str):
        return decorator.func.value, values[0].value
    return None
