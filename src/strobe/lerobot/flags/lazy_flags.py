"""Flags whose values are LeRobot's configs, such as --dataset.* and --rtc.*: checked without LeRobot, made with it.

Also draccus's decoder of flags that take several values, as in --steps=10,5,2.

A config declares such a field with LeRobot's type. While flags are read the type is a placeholder of the same name:

    if TYPE_CHECKING:
        from lerobot.configs.default import DatasetConfig
    else:
        DatasetConfig = of_lerobot("lerobot.configs.default:DatasetConfig")

`parse` then gives the field an object of the shape that LeRobot's source has, and `realise`, once a command begins to
measure, LeRobot's own. So help and a wrong flag are answered without the seconds that importing LeRobot takes.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from draccus.parsers.decoding import decode, get_decoding_fn
from draccus.utils import DecodingError, canonicalize_union

from strobe.core.cli.flags import flag_values
from strobe.core.cli.placeholders import Placeholder, groups, option_names, refusals
from strobe.core.errors import UserError, nearest
from strobe.lerobot.schema import registries, shapes
from strobe.lerobot.schema.source import Class, UnreadableSourceError


class LazyConfig(Placeholder):
    """The placeholder of one of LeRobot's configs; calling it gives its defaults."""

    where: str

    def __new__(cls) -> Any:
        return lazy_config(cls.where, {})

    @classmethod
    def options(cls, kind: str | None = None) -> list[str]:
        return options(cls.where, kind)

    @classmethod
    def config(cls, given: Mapping[str, object], path: Sequence[str] = (), before: object = None) -> object:
        return lazy_config(cls.where, given, path, before)

    @classmethod
    def values(cls, flags: Mapping[str, str]) -> dict[str, Any]:
        return shapes.nest_fields(cls.where, flags)


def lerobot_placeholder(where: str) -> object:
    """Return the placeholder of the config at ``where``, ``'module:Class'``."""
    return type(where.partition(":")[2], (LazyConfig,), {"where": where})


def options(where: str, kind: str | None = None) -> list[str]:
    """Return the names of a config's flags, without its prefix.

    Args:
        kind: the type that is chosen, of a registry; all types' flags where it is None.

    Raises:
        UserError: there is no such type.
    """
    if where not in registries.FOLDERS:
        try:
            return shapes.options(shapes.find_config(where, None))
        except UnreadableSourceError:
            return _options_of_class(_import_object(where))
    kinds = _kinds(where)
    if kind is not None:
        if kind not in kinds:
            what = "environment" if where == registries.ENVIRONMENT else "policy type"
            raise UserError(f"unknown {what} '{kind}': {nearest(kind, kinds, many=30)}")
        kinds = {kind: kinds[kind]}
    return ["type", *dict.fromkeys(name for config in kinds.values() for name in _config_options(config))]


def kinds(where: str) -> list[str]:
    """Return the types of a registry, `registries.POLICY` or `registries.ENVIRONMENT`."""
    return sorted(_kinds(where))


def _kinds(where: str) -> dict[str, object]:
    """Return type → its config: as source where that is readable, else LeRobot's class itself."""
    try:
        configs: dict[str, Any] = dict(registries.choices(where))
    except UnreadableSourceError:
        return dict(_registered_types(where))
    module, _, name = where.partition(":")
    if module in sys.modules:  # what a program has registered by itself
        configs = {**getattr(sys.modules[module], name).get_known_choices(), **configs}
    return configs


def _config_options(config: Any) -> list[str]:
    if isinstance(config, Class):
        try:
            return shapes.options(config)
        except UnreadableSourceError:
            config = _import_object(f"{config.module.name}:{config.name}")
    return _options_of_class(config)


def _options_of_class(config: object) -> list[str]:
    return [name.removeprefix("--") for name in option_names(config)]


def lazy_config(where: str, given: Mapping[str, object], path: Sequence[str] = (), before: object = None) -> object:
    """Return the config at ``where`` with ``given``, as `Placeholder.config` does."""
    if (earlier := shapes.read_request(before)) is not None:
        given = {**earlier.given, **given}
    if where in registries.FOLDERS and given.get("type") is None:
        prefix = ".".join(path)
        raise UserError(f"--{prefix}.* needs --{prefix}.type: {', '.join(kinds(where))}")
    if where in registries.FOLDERS:
        registries.require_one_package(where, str(given["type"]))
    try:
        return shapes.build(where, given, path)
    except (UnreadableSourceError, KeyError):  # the source does not show it
        return _real(shapes.Request(where, dict(given), tuple(path)))


def _decode(cls: type[LazyConfig], raw: object, path: Sequence[str] = ()) -> object:
    if not isinstance(raw, Mapping):
        prefix = ".".join(path)
        raise UserError(f"--{prefix}={raw}: give each of its fields as a flag, --{prefix}.FIELD=VALUE")
    return lazy_config(cls.where, raw, path)


_decoders: Any = decode  # draccus's decorator makes a registry of the function
_decoders.register(LazyConfig, _decode, include_subclasses=True)  # for --config_path, whose file holds all of a config
WORDS = {int: "a whole number, such as 10", float: "a number, such as 0.5", str: "", Path: ""}


def _decode_several(hint: object, raw: object, path: Sequence[str]) -> tuple[object, ...]:
    """Return the values of a flag that takes several, as in ``10,5,2``; a file may have a list, which may be empty."""
    kind, values = get_args(hint)[0], list[object]()
    given = raw if isinstance(raw, list) else str("" if raw is None else raw).split(",")
    for part in filter(None, (str(part).strip() for part in given)):
        try:
            values.append(kind(part))
        except ValueError:
            raise DecodingError((), f"--{'.'.join(path)}={raw}: '{part}' is not {WORDS[kind]}") from None
    if not values and isinstance(raw, str):
        raise DecodingError((), f"--{'.'.join(path)}={raw}: give one value or more, or leave the flag out")
    return tuple(values)


for _kind in WORDS:
    _decoders.register(canonicalize_union(tuple[_kind, ...]), _decode_several, include_subclasses=True)
get_decoding_fn.cache_clear()  # LeRobot may have asked for one of them before


def realise(config: Any) -> None:
    """Replace each placeholder by LeRobot's own config, in a config and the configs in it.

    Raises:
        UserError: a value that LeRobot refuses.
    """
    for name, value in flag_values(config).items():
        if (lazy := shapes.read_request(value)) is not None:
            with refusals():
                setattr(config, name, _real(lazy))
        elif dataclasses.is_dataclass(value) and groups(type(value)):
            realise(value)


def requests(config: Any) -> list[shapes.Request]:
    """Return what `realise` asks of LeRobot, of a config and the configs in it."""
    asked = []
    for value in flag_values(config).values():
        if (lazy := shapes.read_request(value)) is not None:
            asked.append(lazy)
        elif dataclasses.is_dataclass(value) and groups(type(value)):
            asked += requests(value)
    return asked


def _real(lazy: shapes.Request) -> object:
    if lazy.where == registries.ENVIRONMENT:
        from strobe.lerobot.envs.environments import register_plugins, require_simulator

        require_simulator(lazy.kind or "")
        register_plugins(lazy.kind or "")
    elif lazy.kind is not None:
        _registered_types(lazy.where)
    return shapes.build_real(lazy)


def _registered_types(where: str) -> dict[str, type]:
    from strobe.lerobot.policies import lerobot_policies

    lerobot_policies.known_types()
    return _import_object(where).get_known_choices()


def _import_object(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)
