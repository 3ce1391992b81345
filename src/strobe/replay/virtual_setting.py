"""The requested settings of a replay, from flags in LeRobot's spelling, and the latencies of its calls."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from strobe.core.errors import UserError, nearest
from strobe.loops.recorded_run import RecordedRun, load
from strobe.loops.virtual_rollout import Setting, rtc_config
from strobe.replay.results import OF_POLICY, PLAIN, Changes

N = TypeVar("N", int, float)


def requested_setting(run: RecordedRun, changes: Changes) -> Setting:
    """Return the run's setting with ``changes``.

    Raises:
        UserError: a flag that a replay cannot change, or a value that it does not take.
    """
    setting, flags = run.setting, changes.lerobot
    new: dict[str, object] = {"pr_4454": changes.fixed, "delay": _delay(changes.delay)}
    rtc = dict(setting.rtc)
    for name, value in flags.items():
        if name in _FIELDS:
            field, kind, bounds = _FIELDS[name]
            new[field] = _number(name, value, kind, **bounds)
        elif name == "inference.type":
            if value not in ("sync", "rtc"):
                raise UserError(f"--inference.type={value}: must be sync or rtc")
            new["engine"] = value
        elif name.startswith("inference.rtc."):
            _change(rtc, name.removeprefix("inference.rtc."), value)
        elif name.startswith("inference."):
            known = _flag_names(
                [*(flag for flag in PLAIN if flag.startswith("inference.")), *_rtc_fields(prefixed=True)]
            )
            raise UserError(f"lerobot-rollout has no flag --{name}: {nearest(f'--{name}', known)}")
    chunk = new.pop("chunk", None)  # --policy.n_action_steps, which the sync engine alone executes
    if new.get("engine", setting.engine) == "rtc":
        new |= _rtc_changes(run)
        rtc_config(rtc)
    else:
        _refuse_rtc(changes)
        new |= _sync_changes(run) | ({} if chunk is None else {"chunk": chunk})
    return dataclasses.replace(setting, rtc=rtc, **new)


# Flag → field of the setting, kind of number, its bounds.
_FIELDS: dict[str, tuple[str, type[int] | type[float], dict[str, float]]] = {
    "fps": ("fps", float, {"above": 0}),
    "interpolation_multiplier": ("multiplier", int, {"least": 1}),
    "inference.queue_threshold": ("threshold", int, {"least": 0}),
    "policy.n_action_steps": ("chunk", int, {"least": 1}),
}


def _rtc_changes(run: RecordedRun) -> dict[str, object]:
    """Return what Real-Time Chunking changes in the run's setting. Raises UserError where the policy cannot have it."""
    if run.setting.engine == "rtc":
        return {}
    if not run.header.can_rtc:
        raise UserError(f"LeRobot's Real-Time Chunking cannot guide the policy {run.header.subject.kind}")
    return {"chunk": run.header.chunk or run.setting.chunk}


def _sync_changes(run: RecordedRun) -> dict[str, object]:
    return {} if run.setting.engine == "sync" else {"chunk": run.header.executed or run.setting.chunk, "warmups": 0}


def _refuse_rtc(changes: Changes) -> None:
    """Raises UserError for flags that are about Real-Time Chunking."""
    flags = [name for name in changes.lerobot if name.startswith("inference.") and name != "inference.type"]
    flags += ["inference_delay"] * (changes.delay is not None) + ["rtc_version"] * changes.fixed
    if flags:
        raise UserError(f"--{flags[0]} needs --inference.type=rtc, and this run has sync")


def _change(rtc: dict[str, object], name: str, value: str) -> None:
    kinds = _rtc_fields()
    if name not in kinds:
        raise UserError(
            f"lerobot-rollout has no flag --inference.rtc.{name}: "
            f"{nearest(f'--inference.rtc.{name}', _flag_names(_rtc_fields(prefixed=True)))}"
        )
    flag = f"inference.rtc.{name}"
    if isinstance(kinds[name], bool):
        if value not in ("true", "false"):
            raise UserError(f"--{flag}={value}: must be true or false")
        rtc[name] = value == "true"
    elif isinstance(kinds[name], int):
        rtc[name] = _number(flag, value, int, least=1)
    elif isinstance(kinds[name], float):
        rtc[name] = _number(flag, value, float, above=0)
    else:
        rtc[name] = value.upper()


def _rtc_fields(*, prefixed: bool = False) -> dict[str, object]:
    defaults = vars(rtc_config({}))
    return {f"inference.rtc.{name}" if prefixed else name: value for name, value in defaults.items()}


def _flag_names(names: Iterable[str]) -> list[str]:
    return [f"--{name}" for name in names]


def _delay(value: str | None) -> str:
    if value is None or value in ("max", "p95"):
        return value or "max"
    if not value.isdecimal():
        raise UserError(f"--inference_delay={value}: must be max (LeRobot's own), p95, or a number of actions")
    return value


def _number(name: str, value: str, kind: type[N], *, least: float = -math.inf, above: float = -math.inf) -> N:
    try:
        number = kind(value)
    except ValueError:
        raise UserError(f"--{name}={value}: not a {'whole ' if kind is int else ''}number") from None
    if not math.isfinite(number) or number < least or number <= above:
        bound = f"at least {least:g}" if math.isfinite(least) else f"above {above:g}"
        raise UserError(f"--{name}={value}: must be {bound}")
    return number


def requested_latencies(run: RecordedRun, text: str) -> list[int]:
    """Return the latencies of the calls, in nanoseconds, under ``--latency=text``.

    Raises:
        UserError: it is neither a change of the recorded ones nor a recorded rollout.
    """
    if text == "recorded":
        return run.latencies
    sign, rest = (text[0], text[1:]) if text[:1] in "x×*+-" else ("", text)
    try:
        number = float(rest)
    except ValueError:
        if sign or not Path(text).exists():
            raise UserError(
                f"--latency={text}: must be recorded, x0.5, +20 or 120 (in ms), or the folder of another rollout"
            ) from None
        other = load(Path(text))
        if other.record.lost:
            raise UserError(f"--latency={text}: that recording is damaged: {other.record.lost}") from None
        return other.latencies
    if not math.isfinite(number) or number < 0:
        raise UserError(f"--latency={text}: must be a finite number, 0 or more")
    if sign in ("x", "×", "*"):
        return [round(latency * number) for latency in run.latencies]
    if sign:
        shift = round(number * 1e6) * (1 if sign == "+" else -1)
        return [max(0, latency + shift) for latency in run.latencies]
    return [round(number * 1e6)]


def non_setting_changes(changes: Changes) -> dict[str, str]:
    """Return the changes that are no part of a `Setting`, by flag."""
    shown = {}
    if changes.latency != "recorded":
        shown["latency"] = changes.latency
    if changes.recipe:
        shown["recipe"] = changes.recipe
    return shown | {
        name: value for name, value in changes.lerobot.items() if name.startswith(OF_POLICY) and name not in PLAIN
    }
