"""The few parts that several measurements of one subject have in common, to be shown beside each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from strobe.results.measurement import Component, Measurement

Path = tuple[str, ...]

WHOLES = ("policy", "model")  # parts that are shown by what is in them
NEARLY_ALL = 0.9  # so is a part that holds this much of the whole in one call; a backbone's is opened at any share


def common_parts(measurements: Sequence[Measurement]) -> list[dict[str, float]]:
    """Part → milliseconds per iteration (medians) of each measurement; numbered parts of one kind are taken together.

    The first measurement decides which parts are opened. A part with nothing in it that could be timed (compiled code)
    stays whole.
    """
    if not measurements:
        return []
    opened = _opened(measurements[0].components)
    return [_parts(m.components, opened, lambda part: part.summary.median) for m in measurements]


def shares(measurement: Measurement) -> dict[str, float]:
    """The same parts of one measurement, each as its share of the whole, 0 to 1."""
    return _parts(measurement.components, _opened(measurement.components), lambda part: part.share)


def share(measurement: Measurement, name: str) -> float:
    """Of the part called ``name`` in the whole, 0 to 1, wherever it appears; 0 where it does not."""
    return sum(part.share for part in named(measurement, name))


def named(measurement: Measurement, name: str) -> list[Component]:
    """Return the part called ``name``, wherever it appears; not what it contains of the same name."""
    return [
        part
        for part in measurement.components
        if not part.other and part.path[-1] == name and name not in part.path[:-1]
    ]


def _opened(components: Sequence[Component]) -> set[Path]:
    found: set[Path] = set()
    for part in components:
        path = tuple(part.path)
        top = not path[:-1] or path[:-1] in found
        once = part.calls == 1 and (part.share >= NEARLY_ALL or path[0] == "model")
        whole = part.name in WHOLES or once
        if top and whole and not part.other and _inside(path, components):
            found.add(path)
    return found


def _inside(path: Path, components: Sequence[Component]) -> bool:
    return any(tuple(part.path[:-1]) == path and not part.other for part in components)


def _parts(
    components: Sequence[Component], opened: set[Path], figure: Callable[[Component], float]
) -> dict[str, float]:
    return {name: sum(map(figure, group)) for name, group in _grouped(components, opened).items()}


def grouped(measurements: Sequence[Measurement]) -> list[dict[str, list[Component]]]:
    """The same parts as `common_parts`, each as the components that it is made of."""
    opened = _opened(measurements[0].components) if measurements else set()
    return [_grouped(m.components, opened) for m in measurements]


def _grouped(components: Sequence[Component], opened: set[Path]) -> dict[str, list[Component]]:
    found: dict[str, list[Component]] = {}
    numbered: dict[str, int] = {}
    for part in components:
        path = tuple(part.path)
        if part.other or (path[:-1] and path[:-1] not in opened):
            continue
        if path in opened and _inside(path, components):
            continue
        kind = re.sub(r"[ _.]*\d+$", "", part.name) or part.name
        numbered[kind] = numbered.get(kind, 0) + (kind != part.name)
        found.setdefault(kind, []).append(part)
    return {f"{kind}s" if numbered[kind] > 1 else kind: group for kind, group in found.items()}
