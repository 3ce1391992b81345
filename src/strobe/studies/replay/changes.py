"""The settings that a replay is asked for, from flags in LeRobot's spelling, and the latencies of its calls."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strobe.errors import UserError, nearest
from strobe.studies.replay.asked import OF_POLICY, PLAIN, Changes
from strobe.studies.replay.recorded import Recorded, load
from strobe.studies.replay.settings import Setting, rtc_config


def asked_setting(found: Recorded, changes: Changes) -> Setting:
    """The run's setting with ``changes``.

    Raises:
        UserError: a flag that a replay cannot change, or a value that it does not take.
    """
    setting, header, given = found.setting, found.header, changes.lerobot
    new: dict[str, Any] = {"mended": changes.mended, "delay": _delay(changes.delay)}
    rtc = dict(setting.rtc)
    for name, value in given.items():
        if name == "fps":
            new["fps"] = _number(name, value, float, above=0)
        elif name == "interpolation_multiplier":
            new["multiplier"] = _number(name, value, int, least=1)
        elif name == "inference.queue_threshold":
            new["threshold"] = _number(name, value, int, least=0)
        elif name == "inference.type":
            if value not in ("sync", "rtc"):
                raise UserError(f"--inference.type={value}: sync or rtc")
            new["engine"] = value
        elif name.startswith("inference.rtc."):
            _change(rtc, name.removeprefix("inference.rtc."), value)
        elif name.startswith("inference."):
            known = _spelt([*(one for one in PLAIN if one.startswith("inference.")), *_fields(prefixed=True)])
            raise UserError(f"lerobot-rollout has no flag --{name}: {nearest(f'--{name}', known)}")
        elif name == "policy.n_action_steps":
            _number(name, value, int, least=1)
    engine = new.get("engine", setting.engine)
    if engine == "rtc":
        if engine != setting.engine:
            new["chunk"] = header.get("chunk") or setting.chunk
            if not header["can_rtc"]:
                raise UserError(f"LeRobot's Real-Time Chunking cannot guide the policy {header['subject']['kind']}")
        rtc_config(rtc)
    else:
        if engine != setting.engine:
            new["chunk"] = header.get("executed") or setting.chunk
            new["warmups"] = 0
        steps = given.get("policy.n_action_steps")
        new["chunk"] = new.get("chunk", setting.chunk) if steps is None else int(steps)
        wrong = [name for name in given if name.startswith("inference.") and name != "inference.type"]
        if wrong or changes.delay is not None or changes.mended:
            name = wrong[0] if wrong else "inference_delay" if changes.delay is not None else "rtc_version"
            raise UserError(f"--{name} is about --inference.type=rtc, and this is sync")
    return dataclasses.replace(setting, rtc=rtc, **new)


def _change(rtc: dict[str, Any], name: str, value: str) -> None:
    kinds = _fields()
    if name not in kinds:
        raise UserError(
            f"lerobot-rollout has no flag --inference.rtc.{name}: "
            f"{nearest(f'--inference.rtc.{name}', _spelt(_fields(prefixed=True)))}"
        )
    flag = f"inference.rtc.{name}"
    if isinstance(kinds[name], bool):
        if value not in ("true", "false"):
            raise UserError(f"--{flag}={value}: true or false")
        rtc[name] = value == "true"
    elif isinstance(kinds[name], int):
        rtc[name] = _number(flag, value, int, least=1)
    elif isinstance(kinds[name], float):
        rtc[name] = _number(flag, value, float, above=0)
    else:
        rtc[name] = value.upper()


def _fields(*, prefixed: bool = False) -> dict[str, Any]:
    found = vars(rtc_config({}))
    return {f"inference.rtc.{name}" if prefixed else name: value for name, value in found.items()}


def _spelt(names: Iterable[str]) -> list[str]:
    return [f"--{name}" for name in names]


def _delay(value: str | None) -> str:
    if value is None or value in ("max", "p95"):
        return value or "max"
    if not value.isdecimal():
        raise UserError(f"--inference_delay={value}: max (LeRobot's own), p95, or a number of actions")
    return value


def _number[N: (int, float)](
    name: str, value: str, kind: type[N], *, least: float = -math.inf, above: float = -math.inf
) -> N:
    try:
        number = kind(value)
    except ValueError:
        raise UserError(f"--{name}={value}: not a {'whole ' if kind is int else ''}number") from None
    if not math.isfinite(number) or number < least or number <= above:
        bound = f"at least {least:g}" if math.isfinite(least) else f"above {above:g}"
        raise UserError(f"--{name}={value}: must be {bound}")
    return number


def asked_latencies(found: Recorded, text: str) -> list[int]:
    """The latencies of the calls, in nanoseconds, under ``--latency=text``.

    Raises:
        UserError: it is neither a change of the recorded ones nor a kept rollout.
    """
    if text == "recorded":
        return found.latencies
    sign, rest = (text[0], text[1:]) if text[:1] in "x×*+-" else ("", text)
    try:
        number = float(rest)
    except ValueError:
        if sign or not Path(text).exists():
            said = "recorded, x0.5, +20 or 120 (in ms), or the folder of another rollout"
            raise UserError(f"--latency={text}: {said}") from None
        return load(Path(text)).latencies
    if not math.isfinite(number) or number < 0:
        raise UserError(f"--latency={text}: must be a finite number, 0 or more")
    if sign in ("x", "×", "*") and sign:
        return [round(latency * number) for latency in found.latencies]
    if sign:
        shift = round(number * 1e6) * (1 if sign == "+" else -1)
        return [max(0, latency + shift) for latency in found.latencies]
    return [round(number * 1e6)]


def shown(changes: Changes) -> dict[str, str]:
    """Changes beside the setting."""
    said = {}
    if changes.latency != "recorded":
        said["latency"] = changes.latency
    if changes.recipe:
        said["recipe"] = changes.recipe
    return said | {
        name: value for name, value in changes.lerobot.items() if name.startswith(OF_POLICY) and name not in PLAIN
    }
