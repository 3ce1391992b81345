"""The types of models that transformers lists, read from its source."""

from __future__ import annotations

import ast
from functools import cache

from strobe.subjects.schema.source import Unreadable, module

_AUTO = "transformers.models.auto"


@cache
def known() -> frozenset[str]:
    """The types of all models. Raises Unreadable."""
    return frozenset(_keys("configuration_auto", "CONFIG_MAPPING_NAMES"))


@cache
def seeing() -> tuple[str, ...]:
    """The types that take images or video, as far as transformers lists them, in order. Raises Unreadable."""
    listed = {
        *_keys("modeling_auto", "MODEL_FOR_IMAGE_MAPPING_NAMES"),
        *_keys("modeling_auto", "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES"),
    }
    return tuple(sorted({*listed, "clip_vision_model"}))


def _keys(name: str, table: str) -> list[str]:
    """The keys of ``TABLE = OrderedDict([(key, …), …])``, of a later update too where it is written so."""
    node = module(f"{_AUTO}.{name}").names.get(table)
    if not (isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.List)):
        raise Unreadable(f"{table} is not written out")
    rows = node.args[0].elts
    keys = [row.elts[0].value for row in rows if isinstance(row, ast.Tuple) and isinstance(row.elts[0], ast.Constant)]
    if len(keys) < len(rows):
        raise Unreadable(f"{table} is not written out")
    return [str(key) for key in keys]
