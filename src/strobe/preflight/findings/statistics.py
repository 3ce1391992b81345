"""Rules on the statistics that a processor normalises with: do they exist, are they used, do they match the data?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.results import units
from strobe.core.results.finding import Finding, warning
from strobe.lerobot.processors import RAW
from strobe.preflight.results.wiring import FLAT, Feature, Normalisation, Place, Scale, WiredFeature, Wiring, scales

PROCESSORS: tuple[Place, ...] = ("preprocessor", "postprocessor")
SHOWN = 4  # dimensions that are named
CLIPPED = 1.1  # times the range: less than a tenth beyond is a part of the motion's last percent
JITTER = 0.1  # degrees: a smaller spread is the encoder's noise, and 1° off is 10 σ or more


def absent(wiring: Wiring) -> Iterator[Finding]:
    # The normaliser returns its input unchanged (lerobot #4446, #4415).
    for wire, place, named, norm in _iter_normalised_features(wiring):
        if lacks := [name for name in norm.required_statistics if not norm.statistics.get(name)]:
            others = [name for name in wiring.orphans.get(place, []) if name != named.name]
            where = f"; it has statistics for {', '.join(others)}" if others else ""
            yield warning(
                rule="statistics-absent",
                title=f"Nothing normalises {wire.name}",
                found=f"{_file(wiring, place)} should normalise {named.name} ({norm.mode}) and has no "
                f"{' or '.join(lacks)} for it{where}.",
                why=f"LeRobot raises no error: {RAW[place]}. The arm then moves a centimetre, or flails.",
                do=_statistics_remedy(wiring, others),
                evidence={"feature": wire.name, "place": place},
            )


def missing_normaliser(wiring: Wiring) -> Iterator[Finding]:
    # lerobot #3674
    for place in PROCESSORS:
        if serious := [each for each in wiring.differences if each.level == "danger" and each.place == place]:
            yield warning(
                rule="normaliser-missing",
                title=f"The {place} does not normalise what config.json says",
                found=f"{_file(wiring, place)} has {'; '.join(each.found for each in serious)}.",
                why=f"LeRobot raises no error: {RAW[place]}. The arm then moves a centimetre, or flails.",
                do=f"strobe preflight --policy.path={wiring.sources['policy']} --dataset.root="
                f"{wiring.sources.get('dataset', 'DATA')} --fix=FOLDER writes a copy with the processors that LeRobot "
                "makes for this config. Name the policy's training data.",
            )


def other_processors(wiring: Wiring) -> Iterator[Finding]:
    if others := [each for each in wiring.differences if each.level != "danger"]:
        yield Finding(
            rule="processors-differ",
            level="warning" if any(each.level == "warning" for each in others) else "info",
            title="The processors are not those that LeRobot makes for this config",
            found=f"{'; '.join(f'{each.place}: {each.found}' for each in others)}.",
            why="LeRobot runs what the processors' files say. If they or config.json were edited after the training, "
            "the policy gets other inputs than it was trained with.",
            do="Compare both with those of the training run's checkpoint, and use its files.",
        )


def statistics_in_weights(wiring: Wiring) -> Iterator[Finding]:
    # lerobot #4655, #4649. Where the processors have them too, they change nothing.
    complete = all(place in wiring.sources for place in PROCESSORS)
    if complete and not any(True for check in (missing_normaliser, absent) for _ in check(wiring)):
        return
    if wiring.weights is not None and (names := wiring.weights.statistics):
        no_processor = "" if "preprocessor" in wiring.sources else ", and there is no policy_preprocessor.json"
        yield warning(
            rule="statistics-in-weights",
            title="The statistics are inside the weights, where LeRobot no longer reads them",
            found=f"{len(names)} tensors, such as {names[0]}, are statistics{no_processor}.",
            why="LeRobot 0.4 and later read statistics from the processors. They drop these statistics when they load "
            "the weights, and the policy runs without normalisation.",
            do=f"strobe preflight --policy.path={wiring.sources['policy']} --fix=FOLDER writes a copy with these "
            "statistics in its processors.",
        )


def non_numeric_statistics(wiring: Wiring) -> Iterator[Finding]:
    for wire, place, named, norm in _iter_normalised_features(wiring):
        wrong = {
            _dimension(named, index)
            for name in norm.required_statistics
            for index, value in enumerate(norm.statistics.get(name, ()))
            if value is None
        }
        if wrong:
            yield warning(
                rule="statistics-not-numbers",
                title=f"Statistics of {wire.name} are NaN or infinite",
                found=f"In {_file(wiring, place)} the statistics of {named.name} are NaN or infinite for "
                f"{units.join_names(sorted(wrong), SHOWN)}.",
                why="Every action that is computed with them is NaN.",
                do=_statistics_remedy(wiring, []),
                evidence={"feature": wire.name, "dimensions": len(wrong)},
            )


def flat(wiring: Wiring) -> Iterator[Finding]:
    # It stood still, or only jittered: a small motion becomes a huge number.
    for wire, place, named, norm in _iter_normalised_features(wiring):
        if place != "preprocessor" or wire.kind in ("image", "action"):
            continue
        found = {at: scale for at, scale in enumerate(scales(norm.mode, norm.statistics)) if scale is not None}
        robot, end = wire.ends.get("robot"), wire.ends.get("dataset")
        truth = wiring.truth.vector(end.name) if wiring.truth is not None and end is not None else None
        still = truth.still if truth is not None else []
        same = robot is not None and len(robot.dimensions) == named.shape[0]
        kinds = (robot.units or [robot.unit] * len(found)) if robot is not None and same else []
        never = [at for at, scale in found.items() if scale.half <= FLAT * max(1.0, abs(scale.centre) + scale.half)]
        noisy = {at for at, jitters in enumerate(still) if jitters}
        noisy |= {at for at, scale in found.items() if kinds[at : at + 1] == ["degrees"] and scale.half < JITTER}
        hardly = [at for at in found if at in noisy and at not in never]
        if not never and not hardly:
            continue
        names = {at: _joint(wiring, wire, named, at) for at in (*never, *hardly)}
        marks = ["°" if kinds[at : at + 1] == ["degrees"] else " unit" for at in names]
        sizes = [f"1{mark} off is {_times(norm.mode, found[at])}" for at, mark in zip(names, marks, strict=True)]
        listed = _join_dimensions([f"{name}: {size}" for name, size in zip(names.values(), sizes, strict=True)])
        joints = units.join_names([names[at] for at in never or hardly], SHOWN)
        word = "never moved" if never else "had almost no range"
        where = [f"{names[at]} at {found[at].centre:.4g}" for at in list(names)[:SHOWN]]
        yield Finding(
            rule="statistics-flat",
            level="warning" if robot is not None else "info",
            title=f"{joints} of {wire.name} {word} in training: {sizes[0]}",
            found=f"By the statistics ({norm.mode}) {listed}.",
            why="At another position on the robot the policy gets a number that it has never seen.",
            do=f"Keep the robot's joint at the position of the training: {', '.join(where)}. Or train on data in "
            "which it moves, or train without it.",
            evidence={"feature": wire.name, "dimensions": len(names), "joint": next(iter(names.values()))},
        )


def _joint(wiring: Wiring, wire: WiredFeature, feature: Feature, at: int) -> str:
    ends = [feature, *(wire.ends[place] for place in ("dataset", "robot") if place in wire.ends)]
    named = next((end for end in ends if len(end.dimensions) == feature.shape[0]), None)  # else its places are others
    order = wiring.order if len(wiring.order) == feature.shape[0] else []
    return named.dimensions[at] if named is not None else order[at] if at < len(order) else f"dimension {at}"


def _times(mode: str, scale: Scale) -> str:
    size = 1 / (scale.half + 1e-8) if mode == "MEAN_STD" else 1 / max(scale.half, 0.5e-8)
    return f"{size:.2g} σ" if mode == "MEAN_STD" else f"{size:.2g} times half the range"


def clipped_actions(wiring: Wiring) -> Iterator[Finding]:
    """Actions of the data that the policy cannot give, because it clips its output."""
    wire = wiring.wire("action")
    norm = wire.ends["postprocessor"].normalisation if wire is not None and "postprocessor" in wire.ends else None
    if wire is None or norm is None or wiring.clips is None:
        return
    data = wire.ends["dataset"].normalisation if "dataset" in wire.ends else None
    sources = (wire.frames, data.statistics if data is not None else {}, norm.statistics)
    known = next((each for each in sources if each.get("q01") or each.get("min")), {})
    low, high = (known.get(name) or known.get(end) or [] for name, end in (("q01", "min"), ("q99", "max")))
    far = {}
    for at, (scale, one, two) in enumerate(zip(scales(norm.mode, norm.statistics), low, high, strict=False)):
        if scale is not None and one is not None and two is not None and scale.half > FLAT:
            ends = (one - scale.centre) / scale.half, (two - scale.centre) / scale.half
            if max(abs(end) for end in ends) > CLIPPED * wiring.clips:
                far[_joint(wiring, wire, wire.ends["postprocessor"], at)] = ends
    if far:
        ends = [f"{name} from {one:.2g} to {two:.2g}" for name, (one, two) in far.items()]
        unit = "σ" if norm.mode == "MEAN_STD" else "times half the range"
        yield warning(
            rule="actions-clipped",
            title=f"The policy cannot give the far actions of {units.join_names(list(far), SHOWN)}: it clips them",
            found=f"Its output ends at ± {wiring.clips:g} {unit} ({norm.mode}), by clip_sample, a clamp or a tanh. In "
            f"the data the 1st to 99th percentile is, in that unit: {_join_dimensions(ends)}.",
            why="The arm stops short of the ends of the motions that it was shown, however long the training was.",
            do="Train with MIN_MAX for ACTION. A clip_sample may also be false, or have a wider clip_sample_range.",
        )


def foreign_statistics(wiring: Wiring) -> Iterator[Finding]:
    # The numbers that the mode reads are compared. FlashRT #70 is one of its kind.
    for wire, place, named, norm in _iter_normalised_features(wiring):
        if wiring.absolute_where_relative(wire, place):
            continue  # that has a finding of its own
        far = [
            f"{_dimension(named if named.dimensions else wire.ends['dataset'], index)} is "
            f"{_describe_scale(norm.mode, here)}, and {_describe_scale(norm.mode, there)} in the data"
            for index, (here, there) in wire.foreign_dimensions(place).items()
        ]
        if order := wire.other_order(place):
            theirs = wire.ends.get("dataset", named)
            training = [_dimension(theirs, order.get(at, at)) for at in range(theirs.shape[-1])]
            yield warning(
                rule="statistics-in-other-order",
                title=f"The statistics of {wire.name} fit this data in another order of its dimensions",
                found=f"In {_file(wiring, place)} {_join_dimensions(far)}. Each fits another dimension of the data.",
                why="The policy takes one dimension for another, so its actions are wrong, or go to other joints.",
                do=f"The order of its training is, by the data set's names: {', '.join(training)}. Bring state and "
                "action into it, in the data and in the program that runs the policy. The statistics are right.",
                evidence={"feature": wire.name, "place": place, "dimensions": len(far)},
            )
        elif far:
            yield warning(
                rule="statistics-of-other-data",
                title=f"The statistics of {wire.name} do not match this data",
                found=f"In {_file(wiring, place)} {_join_dimensions(far)}.",
                why="The policy treats unusual positions as usual ones, and its actions are scaled for other data.",
                do=f"If the policy was trained on this data: {_statistics_remedy(wiring, [])} If not, name its "
                "training data with --dataset.root=FOLDER.",
                evidence={"feature": wire.name, "place": place, "dimensions": len(far)},
            )


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


def _statistics_remedy(wiring: Wiring, others: Sequence[str]) -> str:
    policy, data = wiring.sources["policy"], wiring.sources.get("dataset", "DATA")
    source = "" if others else f" --dataset.root={data}"
    return f"strobe preflight --policy.path={policy}{source} --fix=FOLDER writes a copy with the right statistics."


def _file(wiring: Wiring, place: Place) -> str:
    return wiring.sources.get(place, place).rpartition("/")[2]


def _dimension(feature: Feature, index: int) -> str:
    return feature.dimensions[index] if index < len(feature.dimensions) else f"dimension {index}"


CHECKS = (
    missing_normaliser, other_processors, absent, statistics_in_weights, non_numeric_statistics, flat,
    clipped_actions, foreign_statistics,
)  # fmt: skip
