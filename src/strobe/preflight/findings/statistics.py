"""Rules on the statistics that a processor normalises with: do they exist, are they used, do they match the data?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.findings.texts import Found, finding
from strobe.preflight.results.wiring import FLAT, Feature, Normalisation, Place, Scale, WiredFeature, Wiring, scales

PROCESSORS: tuple[Place, ...] = ("preprocessor", "postprocessor")
SHOWN = 4  # dimensions that are named
JITTER = 0.1  # degrees: a smaller spread is the encoder's noise, and 1° off is 10 σ or more


@finding("statistics-absent", "warning")
def absent(wiring: Wiring) -> Found:
    """Nothing normalises {feature}.

    Found: {file} should normalise {named.name} ({norm.mode}) and has no {lacking} for it{where}.
    Why: LeRobot raises no error: the {place} {way}. The arm then moves a centimetre, or flails.
    Do: {do}
    """
    # The normaliser returns its input unchanged (lerobot #4446, #4415).
    for wire, place, named, norm in _iter_normalised_features(wiring):
        if lacks := [name for name in norm.required_statistics if not norm.statistics.get(name)]:
            others, lacking = _elsewhere(wiring, place, named), " or ".join(lacks)
            where = f"; it has statistics for {', '.join(others)}" if others else ""
            way = "hands the policy raw numbers"
            if place == "postprocessor":
                way = "sends the policy's normalised numbers to the robot"
            file, do = _file(wiring, place), _statistics_remedy(wiring, others)
            yield {"feature": wire.name, "place": place}, locals()


@finding("statistics-in-weights", "warning")
def statistics_in_weights(wiring: Wiring) -> Found:
    """The statistics are inside the weights, where LeRobot no longer reads them.

    Found: {tensors} tensors, such as {first}, are statistics{no_processor}.
    Why: LeRobot 0.4 and later read statistics from the processors. They drop these statistics when they load the
        weights, and the policy runs without normalisation.
    Do: strobe preflight --policy.path={policy} --fix=FOLDER writes a copy with these statistics in its processors.
    """
    # lerobot #4655, #4649
    if wiring.weights is not None and (names := wiring.weights.statistics):
        no_processor = "" if "preprocessor" in wiring.sources else ", and there is no policy_preprocessor.json"
        words = {"first": names[0], "no_processor": no_processor, "policy": wiring.sources["policy"]}
        yield {"tensors": len(names)}, words


@finding("statistics-not-numbers", "warning")
def non_numeric_statistics(wiring: Wiring) -> Found:
    """Statistics of {feature} are NaN or infinite.

    Found: In {file} the statistics of {name} are NaN or infinite for {wrong}.
    Why: Every action that is computed with them is NaN.
    Do: {do}
    """
    for wire, place, named, norm in _iter_normalised_features(wiring):
        wrong = {
            _dimension(named, index)
            for name in norm.required_statistics
            for index, value in enumerate(norm.statistics.get(name, ()))
            if value is None
        }
        if wrong:
            words = {"file": _file(wiring, place), "name": named.name, "do": _statistics_remedy(wiring, [])}
            yield {"feature": wire.name, "dimensions": len(wrong)}, {**words, "wrong": _join_names(sorted(wrong))}


@finding("statistics-flat", "{level}")
def flat(wiring: Wiring) -> Found:
    """{joints} of {feature} {word} in training: {first_size}.

    Found: By the statistics ({norm.mode}) {listed}.
    Why: At another position on the robot the policy gets a number that it has never seen.
    Do: Keep the robot's joint at the position of the training: {where:list}. Or train on data in which it moves, or
        train without it.
    """
    # It stood still, or only jittered: a small motion becomes a huge number.
    for wire, place, named, norm in _iter_normalised_features(wiring):
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
        names = {at: _joint(wiring, wire, named, at) for at in (*never, *hardly)}
        sizes = [f"1{_degrees(units, at)} off is {_times(norm.mode, found[at])}" for at in names]
        listed = _join_dimensions([f"{name}: {size}" for name, size in zip(names.values(), sizes, strict=True)])
        joints, word = (
            _join_names([names[at] for at in never or hardly]),
            "never moved" if never else "had almost no range",
        )
        first_size = sizes[0]
        where = [f"{names[at]} at {found[at].centre:.4g}" for at in list(names)[:SHOWN]]
        level = "warning" if robot is not None else "info"
        yield {"feature": wire.name, "dimensions": len(names), "joint": next(iter(names.values()))}, locals()


def _joint(wiring: Wiring, wire: WiredFeature, feature: Feature, at: int) -> str:
    ends = [feature, *(wire.ends[place] for place in ("dataset", "robot") if place in wire.ends)]
    named = next((end for end in ends if at < len(end.dimensions)), None)
    order = wiring.order if len(wiring.order) == feature.shape[0] else []
    return named.dimensions[at] if named is not None else order[at] if at < len(order) else f"dimension {at}"


def _degrees(units: Sequence[str | None], at: int) -> str:
    return "°" if at < len(units) and units[at] == "degrees" else " unit"


def _times(mode: str, scale: Scale) -> str:
    size = 1 / (scale.half + 1e-8) if mode == "MEAN_STD" else 1 / max(scale.half, 0.5e-8)
    return f"{size:.2g} σ" if mode == "MEAN_STD" else f"{size:.2g} times half the range"


@finding("statistics-of-other-data", "warning")
def foreign_statistics(wiring: Wiring) -> Found:
    """The statistics of {feature} do not match this data.

    Found: In {file} {shown}.
    Why: The policy treats unusual positions as usual ones, and its actions are scaled for other data.
    Do: If the policy was trained on this data: {fix} If not, name its training data with --dataset.root=FOLDER.
    """
    # The numbers that the mode reads are compared. FlashRT #70 is one of its kind.
    for wire, place, named, norm in _iter_normalised_features(wiring):
        if wiring.absolute_where_relative(wire, place):
            continue  # that has a finding of its own
        far = [
            f"{_dimension(named if named.dimensions else wire.ends['dataset'], index)} is "
            f"{_describe_scale(norm.mode, here)}, and {_describe_scale(norm.mode, there)} in the data"
            for index, (here, there) in wire.foreign_dimensions(place).items()
        ]
        if far:
            words = {
                "file": _file(wiring, place),
                "shown": _join_dimensions(far),
                "fix": _statistics_remedy(wiring, []),
            }
            yield {"feature": wire.name, "place": place, "dimensions": len(far)}, words


def _join_dimensions(dimensions: Sequence[str]) -> str:
    return f"{'; '.join(dimensions[:SHOWN])}{' …' if len(dimensions) > SHOWN else ''}"


def _describe_scale(mode: str, scale: Scale) -> str:
    if mode == "MEAN_STD":
        return f"{scale.centre:.4g} ± {scale.half:.2g}"
    return f"{scale.centre - scale.half:.4g} to {scale.centre + scale.half:.4g}"


def _iter_normalised_features(wiring: Wiring) -> Iterator[tuple[WiredFeature, Place, Feature, Normalisation]]:
    for wire in wiring.wires:
        for place in PROCESSORS:
            feature = wire.ends.get(place)
            if feature is not None and feature.normalisation is not None and feature.normalisation.required_statistics:
                yield wire, place, feature, feature.normalisation


def _elsewhere(wiring: Wiring, place: Place, feature: Feature) -> list[str]:
    return [name for name in wiring.orphans.get(place, []) if name != feature.name]


def _statistics_remedy(wiring: Wiring, others: Sequence[str]) -> str:
    policy, data = wiring.sources["policy"], wiring.sources.get("dataset", "DATA")
    source = "" if others else f" --dataset.root={data}"
    return f"strobe preflight --policy.path={policy}{source} --fix=FOLDER writes a copy with the right statistics."


def _file(wiring: Wiring, place: Place) -> str:
    return wiring.sources.get(place, place).rpartition("/")[2]


def _dimension(feature: Feature, index: int) -> str:
    return feature.dimensions[index] if index < len(feature.dimensions) else f"dimension {index}"


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


CHECKS = (absent, statistics_in_weights, non_numeric_statistics, flat, foreign_statistics)
