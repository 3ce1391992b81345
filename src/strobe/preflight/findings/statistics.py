"""Rules on the statistics that a processor normalises with: are they there, are they used, are they of this data?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.results.finding import Finding
from strobe.preflight.results.wiring import FLAT, Feature, Normalisation, Place, WiredFeature, Wiring

PROCESSORS: tuple[Place, ...] = ("preprocessor", "postprocessor")
SHOWN = 4  # dimensions that are named


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
    """Dimensions without any spread: the smallest deviation becomes a huge number."""
    for wire, place, feature, norm in _normalised(wiring):
        spread = _spread(norm)
        if place != "preprocessor" or wire.kind == "image" or spread is None:
            continue
        columns = zip(*(norm.statistics[name] for name in norm.needed), strict=False)
        sizes = [max(abs(value or 0.0) for value in column) for column in columns]
        still = [
            _dimension(feature, index)
            for index, (value, size) in enumerate(zip(spread, sizes, strict=False))
            if value is not None and value <= FLAT * max(1.0, size)
        ]
        if still:
            yield Finding(
                rule="statistics-flat",
                level="info",
                title=f"{_listed(still)} of {wire.name} never moved in the training data",
                seen=f"{norm.mode} has a spread of 0 for {_listed(still)}.",
                why="If this input moves by a thousandth, the policy sees a number that it has never seen.",
                do="Train on data in which it moves, or train without it. Or hold it still on the robot.",
                evidence={"feature": wire.name, "dimensions": len(still)},
            )


def of_other_data(wiring: Wiring) -> Iterator[Finding]:
    """Statistics that are far from those of the data set that is named (FlashRT #70 is one of its kind)."""
    for wire, place, feature, _ in _normalised(wiring):
        far = [
            f"{_dimension(feature if feature.dimensions else wire.ends['dataset'], index)} is "
            f"{mean:.4g} ± {std:.2g} here and {data_mean:.4g} ± {data_std:.2g} in the data"
            for index, (mean, std, data_mean, data_std) in wire.of_other_data(place).items()
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


def _normalised(wiring: Wiring) -> Iterator[tuple[WiredFeature, Place, Feature, Normalisation]]:
    """Yield what a processor is to normalise: wire, place, feature, and how."""
    for wire in wiring.wires:
        for place in PROCESSORS:
            feature = wire.ends.get(place)
            if feature is not None and feature.normalisation is not None and feature.normalisation.needed:
                yield wire, place, feature, feature.normalisation


def _spread(norm: Normalisation) -> list[float | None] | None:
    if not all(norm.statistics.get(name) for name in norm.needed):
        return None
    if norm.mode == "MEAN_STD":
        return norm.statistics["std"]
    low, high = (norm.statistics[name] for name in norm.needed)
    return [None if a is None or b is None else b - a for a, b in zip(low, high, strict=False)]


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
