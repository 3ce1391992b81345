"""Rules on the statistics that a processor normalises with: are they there, are they used, are they of this data?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.results.finding import Finding
from strobe.preflight.results.wiring import FLAT, Feature, Normalisation, Place, Scale, WiredFeature, Wiring, scales

PROCESSORS: tuple[Place, ...] = ("preprocessor", "postprocessor")
SHOWN = 4  # dimensions that are named
JITTER = 0.1  # degrees: a spread below it is the encoder's noise, and 1° beside it is 10 σ and more


def absent(wiring: Wiring) -> Iterator[Finding]:
    """Statistics that a normaliser needs and has not: it returns its input as it is (lerobot #4446, #4415)."""
    for wire, place, feature, norm in _normalised(wiring):
        lacking = [name for name in norm.needed if not norm.statistics.get(name)]
        if not lacking:
            continue
        others = _elsewhere(wiring, place, feature)
        where = f"; it has some for {', '.join(others)}" if others else ""
        way = "hands the policy raw numbers"
        if place == "postprocessor":
            way = "sends the policy's normalised numbers to the robot"
        yield Finding(
            rule="statistics-absent",
            level="warning",
            title=f"Nothing normalises {wire.name}",
            seen=f"{_file(wiring, place)} should normalise {feature.name} ({norm.mode}) and has no "
                 f"{' or '.join(lacking)} for it{where}.",
            why=f"LeRobot raises no error: the {place} {way}. The arm then moves a centimetre, or flails.",
            do=_mend(wiring, others),
            evidence={"feature": wire.name, "place": place},
        )  # fmt: skip


def in_weights(wiring: Wiring) -> Iterator[Finding]:
    """Statistics inside the weights, as LeRobot before 0.4 saved them (lerobot #4655, #4649)."""
    if wiring.weights is None or not wiring.weights.statistics:
        return
    names = wiring.weights.statistics
    yield Finding(
        rule="statistics-in-weights",
        level="warning",
        title="The statistics are inside the weights, where LeRobot no longer reads them",
        seen=f"{len(names)} tensors such as {names[0]} are statistics"
        + ("." if "preprocessor" in wiring.sources else ", and there is no policy_preprocessor.json."),
        why="LeRobot 0.4 and later read statistics from the processors. They drop these statistics when they load "
            "the weights, and the policy runs without normalisation.",
        do=f"strobe preflight --policy.path={wiring.sources['policy']} --mend=NEW writes a copy with processors that "
        "have them.",
        evidence={"tensors": len(names)},
    )  # fmt: skip


def not_numbers(wiring: Wiring) -> Iterator[Finding]:
    """Statistics that are NaN or infinite where the normaliser reads them."""
    for wire, place, feature, norm in _normalised(wiring):
        wrong = sorted(
            {
                _dimension(feature, index)
                for name in norm.needed
                for index, value in enumerate(norm.statistics.get(name, ()))
                if value is None
            }
        )
        if wrong:
            yield Finding(
                rule="statistics-not-numbers",
                level="warning",
                title=f"Statistics of {wire.name} are not numbers",
                seen=f"In {_file(wiring, place)} the statistics {_listed(wrong)} of {feature.name} are NaN or "
                     "infinite.",
                why="Every action that is computed with them is NaN.",
                do=_mend(wiring, []),
                evidence={"feature": wire.name, "dimensions": len(wrong)},
            )  # fmt: skip


def flat(wiring: Wiring) -> Iterator[Finding]:
    """Inputs that stood still in the training data, or only jittered: a small motion becomes a huge number."""
    for wire, place, feature, norm in _normalised(wiring):
        if place != "preprocessor" or wire.kind in ("image", "action"):
            continue
        found = {at: scale for at, scale in enumerate(scales(norm.mode, norm.statistics)) if scale is not None}
        robot, end = wire.ends.get("robot"), wire.ends.get("dataset")
        truth = wiring.truth.vector(end.name) if wiring.truth is not None and end is not None else None
        still = truth.still if truth is not None else []
        units = (robot.units or [robot.unit] * len(found)) if robot is not None else []
        never = [at for at, scale in found.items() if scale.half <= FLAT * max(1.0, abs(scale.centre) + scale.half)]
        noisy = {at for at, jitters in enumerate(still) if jitters}
        noisy |= {at for at, scale in found.items() if units[at : at + 1] == ["degrees"] and scale.half < JITTER}
        hardly = [at for at in found if at in noisy and at not in never]
        if not never and not hardly:
            continue
        names = {at: _joint(wiring, wire, feature, at) for at in (*never, *hardly)}
        sizes = [f"1{_degrees(units, at)} beside it is {_times(norm.mode, found[at])}" for at in names]
        listed = [f"{names[at]}: {size}" for at, size in zip(names, sizes, strict=True)]
        word = "never" if never else "hardly"
        yield Finding(
            rule="statistics-flat",
            level="warning" if robot is not None else "info",
            title=f"{_listed([names[at] for at in never or hardly])} of {wire.name} {word} moved in the training data: "
            f"{sizes[0]}",
            seen=f"By the statistics ({norm.mode}) {'; '.join(listed[:SHOWN])}{' …' if len(listed) > SHOWN else ''}.",
            why="If it stands elsewhere on the robot, the policy sees a number that it has never seen.",
            do="Train on data in which it moves, or train without it. Or hold it on the robot where it was: "
            f"{', '.join(f'{names[at]} at {found[at].centre:.4g}' for at in list(names)[:SHOWN])}.",
            evidence={"feature": wire.name, "dimensions": len(names), "joint": next(iter(names.values()))},
        )


def _joint(wiring: Wiring, wire: WiredFeature, feature: Feature, at: int) -> str:
    """Return the name of a dimension, from the first place that has one."""
    ends = [feature, *(wire.ends[place] for place in ("dataset", "robot") if place in wire.ends)]
    named = next((end for end in ends if at < len(end.dimensions)), None)
    order = wiring.order if len(wiring.order) == feature.shape[0] else []
    return named.dimensions[at] if named is not None else order[at] if at < len(order) else f"dimension {at}"


def _degrees(units: Sequence[str], at: int) -> str:
    return "°" if at < len(units) and units[at] == "degrees" else " unit"


def _times(mode: str, scale: Scale) -> str:
    """Return in words what one unit is in normalised numbers, as LeRobot divides."""
    size = 1 / (scale.half + 1e-8) if mode == "MEAN_STD" else 1 / max(scale.half, 0.5e-8)
    return f"{size:.2g} σ" if mode == "MEAN_STD" else f"{size:.2g} times the range's half"


def of_other_data(wiring: Wiring) -> Iterator[Finding]:
    """Statistics that are far from those of the data set that is named (FlashRT #70 is one of its kind).

    Held against each other are the numbers that the mode reads.
    """
    for wire, place, feature, norm in _normalised(wiring):
        if wiring.absolute_where_relative(wire, place):
            continue  # that has a finding of its own
        far = [
            f"{_dimension(feature if feature.dimensions else wire.ends['dataset'], index)} is "
            f"{_in_words(norm.mode, here)} here and {_in_words(norm.mode, there)} in the data"
            for index, (here, there) in wire.of_other_data(place).items()
        ]
        if far:
            yield Finding(
                rule="statistics-of-other-data",
                level="warning",
                title=f"The statistics of {wire.name} are not those of this data",
                seen=f"{_file(wiring, place)}: {'; '.join(far[:SHOWN])}{' …' if len(far) > SHOWN else ''}.",
                why="The policy treats unusual positions as usual ones, and its actions are scaled for other data.",
                do=f"If the policy was trained on this data: {_mend(wiring, [])} If not, name the data that it was "
                "trained on.",
                evidence={"feature": wire.name, "place": place, "dimensions": len(far)},
            )  # fmt: skip


def _in_words(mode: str, scale: Scale) -> str:
    if mode == "MEAN_STD":
        return f"{scale.centre:.4g} ± {scale.half:.2g}"
    return f"{scale.centre - scale.half:.4g} to {scale.centre + scale.half:.4g}"


def _normalised(wiring: Wiring) -> Iterator[tuple[WiredFeature, Place, Feature, Normalisation]]:
    """Yield what a processor is to normalise: wire, place, feature, and how."""
    for wire in wiring.wires:
        for place in PROCESSORS:
            feature = wire.ends.get(place)
            if feature is not None and feature.normalisation is not None and feature.normalisation.needed:
                yield wire, place, feature, feature.normalisation


def _elsewhere(wiring: Wiring, place: Place, feature: Feature) -> list[str]:
    """Return names for which the processor has statistics and no feature."""
    return [name for name in wiring.orphans.get(place, []) if name != feature.name]


def _mend(wiring: Wiring, others: Sequence[str]) -> str:
    policy, data = wiring.sources["policy"], wiring.sources.get("dataset", "DATA")
    source = "" if others else f" --dataset.root={data}"
    return f"strobe preflight --policy.path={policy}{source} --mend=NEW writes a copy with them."


def _file(wiring: Wiring, place: Place) -> str:
    return wiring.sources.get(place, place).rpartition("/")[2]


def _dimension(feature: Feature, index: int) -> str:
    return feature.dimensions[index] if index < len(feature.dimensions) else f"dimension {index}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


CHECKS = (absent, in_weights, not_numbers, flat, of_other_data)
