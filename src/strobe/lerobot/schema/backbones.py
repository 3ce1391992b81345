"""Read the types of models that transformers lists, and the fields of their configs, from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import cache

from strobe.errors import UserError, nearest
from strobe.lerobot.schema.classes import Class, bases, find
from strobe.lerobot.schema.source import UnreadableSourceError, module

_AUTO = "transformers.models.auto"
FLAGS = ("path", "type", "size", "img_size", "num_frames", "dtype", "predictor")  # of --model.*, beside its fields


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


def check(kind: str, overrides: Sequence[str]) -> None:
    """Check a type of model and the names of its config's fields (``--hidden_size=64``).

    Raises:
        UserError: transformers lists no such type, or its config has no such field.
        UnreadableSourceError: the source does not show them.
    """
    if kind not in all_types():
        raise UserError(f"no model type '{kind}': {nearest(kind, vision_types())}")
    names = [override.removeprefix("--").partition("=")[0] for override in overrides]
    if names:
        check_names(names, fields_of(kind))


def check_names(names: Iterable[str], fields: Iterable[str]) -> None:
    """Raises UserError for a flag ``--model.NAME`` that is not among the fields of a model's config."""
    for name in names:
        if name not in fields:
            hint = nearest(f"--model.{name}", [f"--model.{field}" for field in {*fields, *FLAGS}])
            raise UserError(f"no flag --model.{name}: {hint}")


def fields_of(kind: str) -> frozenset[str]:
    """Return the fields of a type's config. Raises UnreadableSourceError, also for a vision tower with its own."""
    modules = _table("configuration_auto", "SPECIAL_MODEL_TYPE_TO_MODULE_NAME")
    folder = modules.get(kind, kind.replace("-", "_"))
    config = _table("configuration_auto", "CONFIG_MAPPING_NAMES")[kind]
    names = frozenset(_fields(find(f"transformers.models.{folder}.configuration_{folder}:{config}")))
    if "vision_config" in names:
        raise UnreadableSourceError(f"the vision tower of {kind}")
    return names


def _fields(of: Class) -> set[str]:
    """Return every annotated name: transformers makes each config a dataclass, decorated or not."""
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
