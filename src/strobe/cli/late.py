"""Flags whose values are LeRobot's configs, such as --dataset.* and --rtc.*: checked without LeRobot, made with it.

A config declares such a field with LeRobot's type. While flags are read the type is a stand-in of the same name:

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
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from draccus.parsers.decoding import decode

from strobe.cli.refused import option_names, refusals
from strobe.errors import UserError, nearest
from strobe.lerobot.schema import registries, shapes
from strobe.lerobot.schema.classes import Class
from strobe.lerobot.schema.source import Unreadable


class Late:
    """The stand-in of one of LeRobot's configs; calling it gives its defaults."""

    where: str

    def __new__(cls) -> Any:
        return asked_for(cls.where, {})


def of_lerobot(where: str) -> Any:
    """The stand-in of the config at ``where``, ``'module:Class'``."""
    return type(where.partition(":")[2], (Late,), {"where": where})


def groups(config_class: Any) -> dict[str, str]:
    """Prefix of flags → the config that they are fields of, such as 'inference.rtc' → '…:RTCConfig'."""
    found = {}
    for name, hint in typing.get_type_hints(config_class).items():
        for one in (hint, *typing.get_args(hint)):
            if isinstance(one, type) and issubclass(one, Late):
                found[name] = one.where
            elif one is hint and dataclasses.is_dataclass(one):
                found |= {f"{name}.{inner}": where for inner, where in groups(one).items()}
    return found


def options(where: str, kind: str | None = None) -> list[str]:
    """The names of a config's flags, without its prefix.

    Args:
        kind: the type that is chosen, of a registry; all types' flags where it is None.

    Raises:
        UserError: there is no such type.
    """
    if where not in registries.FOLDERS:
        try:
            return shapes.options(shapes.chosen(where, None))
        except Unreadable:
            return _of_class(_imported(where))
    kinds = _kinds(where)
    if kind is not None:
        if kind not in kinds:
            what = "environment" if where == registries.ENVIRONMENT else "policy type"
            raise UserError(f"unknown {what} '{kind}': {nearest(kind, kinds, many=30)}")
        kinds = {kind: kinds[kind]}
    return ["type", *dict.fromkeys(name for one in kinds.values() for name in _of(one))]


def kinds(where: str) -> list[str]:
    """The types of a registry, `registries.POLICY` or `registries.ENVIRONMENT`."""
    return sorted(_kinds(where))


def _kinds(where: str) -> dict[str, Any]:
    """Type → its config, as source where that says it, else LeRobot's class itself."""
    try:
        found: dict[str, Any] = dict(registries.choices(where))
    except Unreadable:
        return dict(_registered(where))
    module, _, name = where.partition(":")
    if module in sys.modules:  # what a program has registered by itself
        found = {**getattr(sys.modules[module], name).get_known_choices(), **found}
    return found


def _of(config: Any) -> list[str]:
    if isinstance(config, Class):
        try:
            return shapes.options(config)
        except Unreadable:
            config = _imported(f"{config.module.name}:{config.name}")
    return _of_class(config)


def _of_class(config: Any) -> list[str]:
    return [name.removeprefix("--") for name in option_names(config)]


def asked_for(where: str, given: Mapping[str, Any], path: Sequence[str] = (), before: Any = None) -> Any:
    """Return the config at ``where`` with ``given`` (field → value, as YAML has them).

    Args:
        path: the parts of the flags' prefix.
        before: what was asked for before, by a file, to which ``given`` is added.

    Raises:
        UserError: no type where one has to be chosen.
        Exception: what draccus raises for a value of the wrong kind.
    """
    if (earlier := shapes.asked(before)) is not None:
        given = {**earlier.given, **given}
    if where in registries.FOLDERS and given.get("type") is None:
        prefix = ".".join(path)
        raise UserError(f"--{prefix}.* needs --{prefix}.type: {', '.join(kinds(where))}")
    try:
        return shapes.made(where, given, path)
    except (Unreadable, KeyError):  # the source does not show it
        return _real(shapes.Asked(where, dict(given), tuple(path)))


def _decode(cls: type[Late], raw: Any, path: Sequence[str] = ()) -> Any:
    if not isinstance(raw, Mapping):
        prefix = ".".join(path)
        raise UserError(f"--{prefix}={raw}: its fields are flags of their own, --{prefix}.FIELD=VALUE")
    return asked_for(cls.where, raw, path)


_decoders: Any = decode  # draccus's decorator makes a registry of the function
_decoders.register(Late, _decode, include_subclasses=True)  # for --config_path, whose file holds all of a config


def realise(config: Any) -> None:
    """Put LeRobot's own configs in the place of those that were asked for, in a config and the configs in it.

    Raises:
        UserError: a value that LeRobot refuses.
    """
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if (asked := shapes.asked(value)) is not None:
            with refusals():
                setattr(config, item.name, _real(asked))
        elif dataclasses.is_dataclass(value) and groups(type(value)):
            realise(value)


def _real(asked: shapes.Asked) -> Any:
    if asked.where == registries.ENVIRONMENT:
        from strobe.simulators.environments import know

        know(asked.kind or "")
    elif asked.kind is not None:
        _registered(asked.where)
    return shapes.real(asked)


def _registered(where: str) -> dict[str, type]:
    """LeRobot's own registry, with the plug-ins' types in it."""
    from strobe.policies import lerobot_policies

    lerobot_policies.known_types()
    return _imported(where).get_known_choices()


def _imported(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)
