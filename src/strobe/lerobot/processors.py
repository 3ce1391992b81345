"""A checkpoint's processors against its config: features that nothing normalises, steps that are missing or moved.

LeRobot runs whatever steps a checkpoint's files list. It raises no error where one that the config asks for is not
there (lerobot #3674), and drops statistics that an old checkpoint keeps among its weights. Neither LeRobot nor torch is
imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from strobe.core.errors import UserError
from strobe.core.results import units
from strobe.core.results.data import Data

# Statistics that LeRobot's modes of normalisation read, by the names of its `NormalizationMode`; IDENTITY reads none.
# Mode → the statistics that become −1 and +1.
ENDS = {"MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99"), "QUANTILE10": ("q10", "q90")}
# Mode → the statistics of its offset and its scale. MEAN_STD has its mean at 0 and one deviation for a unit.
READ = {"MEAN_STD": ("mean", "std"), **ENDS}

Steps = Sequence[tuple[str, Mapping[str, Any]]]  # the name of each step, and its arguments

PREPROCESSOR, POSTPROCESSOR = "preprocessor", "postprocessor"
NORMALISERS = {PREPROCESSOR: "normalizer_processor", POSTPROCESSOR: "unnormalizer_processor"}
RAW = {
    PREPROCESSOR: "the policy gets raw numbers",
    POSTPROCESSOR: "the robot gets the policy's normalised numbers",
}
# What differs with the machine, the loop or the data, and not with the policy.
_FREE = ("device", "float_dtype", "rename_map", "features", "norm_map", "eps")


class Difference(Data):
    """One way in which a processor is not what LeRobot makes for the config."""

    place: str = Field(description="preprocessor or postprocessor")
    found: str = Field(description="in words, without a capital and a full stop")
    level: Literal["info", "warning", "danger"] = Field(
        default="warning", description="danger: numbers are not normalised that the config normalises"
    )


def lacking_normalisation(config: Mapping[str, Any], place: str, steps: Steps) -> Iterator[Difference]:
    """Yield features that the config normalises and a processor does not.

    A processor with a step of another name that normalises, as GR00T's has, is not judged.

    Args:
        config: the policy's, as its file is.
        steps: the processor's.
    """
    sides = ["output_features"] if place == POSTPROCESSOR else ["input_features"]
    modes = config.get("normalization_mapping") or {}
    asked: dict[str, str] = {}
    for side in sides:
        for name, feature in (config.get(side) or {}).items():
            mode = str(modes.get(str(feature.get("type")), "IDENTITY"))
            if mode != "IDENTITY":
                asked[name] = mode
    own = [arguments for name, arguments in steps if name == NORMALISERS[place]]
    if not asked or (not own and any("normal" in name for name, _ in steps)):
        return
    if not own:
        listed = ", ".join(f"{name} {mode}" for name, mode in asked.items())
        yield Difference(
            place=place, found=f"no step {NORMALISERS[place]}, and config.json asks for {listed}", level="danger"
        )
    for name, mode in asked.items() if own else ():
        feature = next((each["features"][name] for each in own if name in (each.get("features") or {})), None)
        has = [str((each.get("norm_map") or {}).get(str((feature or {}).get("type")), "IDENTITY")) for each in own]
        if feature is None:
            yield Difference(
                place=place,
                found=f"{NORMALISERS[place]} leaves {name} out, which config.json normalises ({mode})",
                level="danger",
            )
        elif mode not in has:
            found = f"{name} is normalised by {has[0]}, and config.json says {mode}"
            yield Difference(place=place, found=found, level="info")  # LeRobot reads the processor's


def compare_steps(place: str, steps: Steps, made: Steps) -> Iterator[Difference]:
    """Yield steps of ``made`` that are missing, in another order, or have other arguments. One more is no fault."""
    names = [name for name, _ in steps]
    missing = [name for name, _ in made if name not in names and name not in NORMALISERS.values()]
    yield from (
        Difference(place=place, found=f"no step {name}, which LeRobot makes for this config") for name in missing
    )
    common = [name for name, _ in made if name in names]
    if (order := [name for name in dict.fromkeys(names) if name in common]) != list(dict.fromkeys(common)):
        yield Difference(
            place=place, found=f"its steps come as {', '.join(order)}; LeRobot makes them as {', '.join(common)}"
        )
    for name in NORMALISERS.values():
        if names.count(name) > 1:
            yield Difference(place=place, found=f"{units.count(names.count(name), 'step')} {name}, one after the other")
    for name, arguments in made:
        own = next((each for step, each in steps if step == name), {})
        for key in sorted(set(own) & set(arguments) - set(_FREE)):
            if _plain(own[key]) != _plain(arguments[key]):
                yield Difference(
                    place=place, found=f"{name} has {key}={own[key]!r}, and LeRobot makes it {arguments[key]!r}"
                )


def refuse_unnormalised(differences: Sequence[Difference], source: str) -> list[str]:
    """Return the differences in words.

    Raises:
        UserError: one of them is that numbers are not normalised.
    """
    if serious := next((each for each in differences if each.level == "danger"), None):
        raise UserError(
            f"the {serious.place} of {source} has {serious.found}: {RAW[serious.place]}; strobe preflight "
            f"--policy.path={source} --dataset.root=DATA --fix=FOLDER writes a copy that normalises"
        )
    return [f"the {each.place} of {source}: {each.found}" for each in differences]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple, set)) else value
