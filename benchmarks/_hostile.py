"""Mutations of a file: cut, flipped, of odd types, huge, hostile."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

# What a reader that trusts a file would run, follow, or allocate. CANARY is a file that nothing may make.
CANARY = "canary-of-hostile-files"
RUNS = [
    {"class": "subprocess.Popen", "config": {"args": ["touch", CANARY]}},
    {"registry_name": "os.system", "config": {"command": f"touch {CANARY}"}},
    {"__reduce__": ["os.system", [f"touch {CANARY}"]]},
    f"__import__('os').system('touch {CANARY}')",
    f"$(touch {CANARY})", f"`touch {CANARY}`", f"; touch {CANARY}", f"package.module:os.system('touch {CANARY}')",
]  # fmt: skip
ODD = [
    None, True, -1, 0, 2**63, 10**30, -(10**30), 1e308, float("nan"), float("-inf"), "", "5", [], {}, [[]], [None],
    {"": 0}, "../../../../etc/passwd", "/dev/zero", "https://example.invalid/evil", "evil/policy",
    "\x1b[31m\x07<script>alert(1)</script>", "\ud800",
    "x" * 100_000, [0] * 50_000, [10**9, 10**9], {"shape": [10**9, 10**9]}, *RUNS,
]  # fmt: skip
OF_YAML = [
    f"!!python/object/apply:os.system ['touch {CANARY}']\n",
    "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
    "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
]
Mutation = Callable[[bytes], bytes]


def unpacked(content: bytes) -> bytes:
    """Return what gzip packed, or the content itself."""
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def like(content: bytes, sound: bytes) -> bytes:
    """Return ``content`` packed as ``sound`` is."""
    return gzip.compress(content, 1) if sound[:2] == b"\x1f\x8b" else content


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, Mutation]:
    """Draw a mutation, and what it is in words."""
    where, amount = draw(st.floats(0, 1)), draw(st.integers(1, 64))
    odd = draw(st.sampled_from(ODD))
    kind = draw(st.sampled_from(list(KINDS)))
    return f"{kind} at {where:.3f}, {amount}: {str(odd)[:40]!r}", lambda sound: KINDS[kind](sound, where, amount, odd)


def _cut(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    return sound[: int(where * len(sound))]


def _cut_inside(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    inside = unpacked(sound)
    return like(inside[: int(where * len(inside))], sound)


def _flipped(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    changed = bytearray(sound)
    for step in range(min(amount, 8)):
        at = int((where + 0.13 * step) % 1 * len(changed))
        changed[at] ^= 1 << (amount + step) % 8
    return bytes(changed)


def _flipped_inside(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    return like(_flipped(unpacked(sound), where, amount, odd), sound)


def _doubled(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    inside = unpacked(sound)
    at = int(where * len(inside))
    return like(inside[:at] + inside[max(0, at - 50 * amount) :], sound)


def _lines_lost(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    lines = unpacked(sound).splitlines(keepends=True)
    at = int(where * len(lines))
    return like(b"".join(lines[:at] + lines[at + amount :]), sound)


def _odd_value(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    """One value of a document in JSON, or of one of its lines, is another."""
    inside = unpacked(sound)
    try:
        return like(_changed(inside, where, amount, odd), sound)
    except ValueError:
        pass
    lines = inside.splitlines(keepends=True)
    at = min(int(where * len(lines)), len(lines) - 1)
    try:
        lines[at] = _changed(lines[at], where * 7 % 1, amount, odd) + b"\n"
    except ValueError:
        text = str(odd).encode("utf-8", "replace")
        lines[at] = lines[at][: amount % max(len(lines[at]), 1)] + text + b"\n"
    return like(b"".join(lines), sound)


def _changed(text: bytes, where: float, amount: int, odd: Any) -> bytes:
    document = json.loads(text)
    places = list(_places(document))
    if not places:
        raise ValueError
    holder, key = places[min(int(where * len(places)), len(places) - 1)]
    if amount % 8 == 0 and isinstance(holder, dict):
        del holder[key]
    elif amount % 8 == 1 and isinstance(holder, dict):
        holder["unknown"] = odd
    else:
        holder[key] = odd
    return json.dumps(document).encode("utf-8", "surrogatepass")


def _places(value: Any) -> Any:
    if isinstance(value, dict | list):
        for key, inside in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from _places(inside)


def _deep(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    return like(b"[" * 200_000 if amount % 2 else b'{"a":' * 100_000, sound)


def _yaml(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    text = OF_YAML[amount % len(OF_YAML)].encode()
    return like(text + unpacked(sound) if amount % 3 else text, sound)


def _other(sound: bytes, where: float, amount: int, odd: Any) -> bytes:
    return like(json.dumps(odd).encode("utf-8", "surrogatepass"), sound)


KINDS: dict[str, Callable[[bytes, float, int, Any], bytes]] = {
    "cut": _cut, "cut inside": _cut_inside, "flipped": _flipped, "flipped inside": _flipped_inside, "doubled": _doubled,
    "lines lost": _lines_lost, "odd value": _odd_value, "odd value ": _odd_value, "odd value  ": _odd_value,
    "deep": _deep, "yaml": _yaml, "other document": _other,
}  # fmt: skip
