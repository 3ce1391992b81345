"""Types by which a config is chosen: those that LeRobot and its plug-ins register, and transformers' backbones."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, version
from pathlib import Path

from strobe.core import slices
from strobe.core.errors import UserError, nearest
from strobe.lerobot.schema.source import (
    Class,
    UnreadableSourceError,
    bases,
    find,
    lineage,
    module,
    module_file,
    resolve_class,
)

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
    ours = [name for each in slices.slices().values() for name in each.environments] if registry == ENVIRONMENT else []
    for package in (FOLDERS[registry], *(name.rpartition(".")[0] for name in ours), *plugins()):
        if (file := module_file(package)) is not None:  # else LeRobot cannot import it either
            configs |= _registered_types(package, file, base)
    return configs


def require_one_package(registry: str, kind: str | None) -> None:
    """Raises UserError if several packages register the type ``kind``: LeRobot would take whichever it finds first.

    Args:
        registry: `POLICY` or `ENVIRONMENT`.
    """
    if kind is None:
        return
    try:
        base = find(registry)
        packages = [FOLDERS[registry], *plugins()]
        files = {package: module_file(package) for package in packages}
        owners = [
            name for name, file in files.items() if file is not None and kind in _registered_types(name, file, base)
        ]
    except UnreadableSourceError:  # LeRobot's own registry says it then
        return
    if len(owners) > 1:
        named = " and ".join(_distribution_version(owner.partition(".")[0]) for owner in owners)
        what = "environment" if registry == ENVIRONMENT else "policy"
        raise UserError(f"{named} each register the {what} type '{kind}': uninstall one of them")


def _distribution_version(distribution: str) -> str:
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return distribution


def plugins() -> list[str]:
    """Return the names of LeRobot's installed plug-ins: a distribution and its module have the same name."""
    return list(_list_plugins(tuple(sys.path)))


@cache
def _list_plugins(folders: tuple[str, ...]) -> list[str]:
    names: list[str] = []
    for folder in dict.fromkeys(folders):
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
def _registered_types(package: str, file: Path, base: Class) -> dict[str, Class]:
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
                registry = resolve_class(source_module, called[0])
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


# Backbones: the types of models that transformers lists, and the fields of their configs.

_AUTO = "transformers.models.auto"
# Flags --model.* in addition to the fields of a backbone's config.
BACKBONE_FLAGS = (
    "path",
    "type",
    "size",
    "img_size",
    "num_frames",
    "dtype",
    "predictor",
)


@cache
def all_types() -> frozenset[str]:
    """Return the types of all models. Raises UnreadableSourceError."""
    return frozenset(_table("configuration_auto", "CONFIG_MAPPING_NAMES"))


@cache
def vision_types() -> tuple[str, ...]:
    """Return the types that transformers lists as taking images or video, sorted. Raises UnreadableSourceError."""
    listed = {
        *_table("modeling_auto", "MODEL_FOR_IMAGE_MAPPING_NAMES"),
        *_table("modeling_auto", "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES"),
    }
    return tuple(sorted({*listed, "clip_vision_model"}))


def check_backbone(kind: str, overrides: Sequence[str]) -> None:
    """Check a type of model and the names of its config's fields (``--hidden_size=64``).

    Raises:
        UserError: transformers lists no such type, or its config has no such field.
        UnreadableSourceError: the source does not show them.
    """
    if kind not in all_types():
        raise UserError(f"no model type '{kind}': {nearest(kind, vision_types())}")
    names = [override.removeprefix("--").partition("=")[0] for override in overrides]
    if names:
        check_backbone_fields(names, config_fields(kind))


def check_backbone_fields(names: Iterable[str], fields: Iterable[str]) -> None:
    """Raise UserError for a flag ``--model.NAME`` that is not among the fields of a model's config."""
    for name in names:
        if name not in fields:
            hint = nearest(f"--model.{name}", [f"--model.{field}" for field in {*fields, *BACKBONE_FLAGS}])
            raise UserError(f"no flag --model.{name}: {hint}")


def config_fields(kind: str) -> frozenset[str]:
    """Return the fields of a type's config. Raises UnreadableSourceError, also for a vision tower with its own."""
    modules = _table("configuration_auto", "SPECIAL_MODEL_TYPE_TO_MODULE_NAME")
    folder = modules.get(kind, kind.replace("-", "_"))
    config = _table("configuration_auto", "CONFIG_MAPPING_NAMES")[kind]
    names = frozenset(_fields(find(f"transformers.models.{folder}.configuration_{folder}:{config}")))
    if "vision_config" in names:
        raise UnreadableSourceError(f"the vision tower of {kind}")
    return names


def _fields(of: Class) -> set[str]:
    own = {
        node.target.id
        for node in of.node.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and "ClassVar" not in ast.unparse(node.annotation)
    }
    return own.union(*(_fields(base) for base in bases(of)))


def _table(name: str, table: str) -> dict[str, str]:
    """Return ``TABLE = OrderedDict([(key, value), …])`` as a dictionary. Raises UnreadableSourceError."""
    node = module(f"{_AUTO}.{name}").names.get(table)
    if not (isinstance(node, ast.Call) and len(node.args) == 1):
        raise UnreadableSourceError(f"{table} is not written out")
    try:
        return {str(row[0]): str(row[1]) for row in ast.literal_eval(node.args[0])}
    except (ValueError, TypeError, IndexError):
        raise UnreadableSourceError(f"{table} is not written out") from None
