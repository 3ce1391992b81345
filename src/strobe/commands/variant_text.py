"""A variant as written on the command line, split into its parts and checked by its words. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError, nearest
from strobe.core.treatments import known, words
from strobe.lerobot.schema import shapes
from strobe.lerobot.schema.source import UnreadableSourceError, find

NAMED = ("recipe", "exported")  # keys that are no treatments, but files
RTC = "lerobot.policies.rtc.configuration_rtc:RTCConfig"


@dataclass(frozen=True)
class VariantText:
    """The parts of ``'NAME: key=value, key=value'``.

    Args:
        name: of the variant.
        rtc: its pairs ``rtc.FIELD=value``.
        treatments: its other pairs, joined by commas.
        recipe: the file that it names.
        exported: the folder of an exported policy, which stands in the place of the policy.
    """

    name: str
    rtc: tuple[str, ...] = ()
    treatments: str = ""
    recipe: Path | None = None
    exported: Path | None = None


def split_variant(text: str) -> VariantText:
    """Split ``'NAME: key=value, key=value'``; without a name it is called as written. Raises UserError."""
    name, colon, body = text.partition(":")
    if not colon and "=" in text:
        name, colon, body = text, ":", text
    pairs = [pair.strip() for pair in body.split(",") if pair.strip()]
    if not colon or not name.strip() or not pairs:
        raise UserError(f"--variant '{text}': write 'NAME: key=value, key=value', e.g. '5 steps: policy.num_steps=5'")
    guided = [pair for pair in pairs if pair.startswith("rtc.")]
    named = {key: [pair for pair in pairs if pair.partition("=")[0].strip() == key] for key in NAMED}
    for key, found in named.items():
        if len(found) > 1:
            raise UserError(f"--variant '{text}': one {key}, not {len(found)}")
    value = {key: found[0].partition("=")[2].strip() for key, found in named.items() if found}
    others = [pair for pair in pairs if pair not in guided and not any(pair in found for found in named.values())]
    if "exported" in value and (others or guided or "recipe" in value):
        raise UserError(f"--variant '{text}': exported=FOLDER stands in the policy's place, so nothing goes with it")
    recipe, exported = (Path(value[key]) if key in value else None for key in ("recipe", "exported"))
    return VariantText(name.strip(), tuple(guided), ", ".join(others), recipe, exported)


def check_words(text: str) -> VariantText:
    """Check what a variant's words say: its form, its keys, values of treatments that take one. Raises UserError.

    All other values are checked where the treatments are made.
    """
    parts = split_variant(text)
    try:
        check_treatments(parts.treatments)
        known = {name.partition(".")[0] for name in shapes.options(find(RTC))} if parts.rtc else ()
        for pair in parts.rtc:
            check_rtc(pair.partition("=")[0].strip().removeprefix("rtc."), known)
    except UserError as error:
        raise UserError(f"--variant '{text}': {error}") from None
    except UnreadableSourceError:  # LeRobot's own class says it, later
        pass
    return parts


def check_treatments(text: str) -> None:
    """Check the keys of ``'key=value, key=value'``, and values of treatments that take one. Raises UserError."""
    for spec in words.parse(text, known.known_words()):
        known.check_words(spec)


def check_rtc(name: str, known: set[str] | tuple[str, ...]) -> None:
    """Raises UserError for a setting that is not among those ``known`` of Real-Time Chunking."""
    if name not in known:
        raise UserError(f"no setting 'rtc.{name}': {nearest(name, known)}")


def check_levers(text: str, phase: str, *, other_flags: bool) -> None:
    """Check ``--levers`` by its words.

    Args:
        phase: what is compared.
        other_flags: whether flags are given that are about inference.

    Raises:
        UserError: another phase than a training step, other flags, or an unknown lever.
    """
    if phase != "training step":
        raise UserError(f"--levers only applies to training steps, not to '{phase}': leave out --phase")
    if other_flags:
        raise UserError("--levers are about training: leave out --precision, --recipe, --closed_form and --rtc")
    if text not in ("", words.AUTO):
        words.levers(text)
