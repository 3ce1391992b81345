"""An observation's images in other forms to send: as JPEG, or resized. Their bytes and time are measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from strobe.loops.observations import jpeg, time_repeated
from strobe.servers.protocols.observations import change, leaves
from strobe.servers.results import EncodingKind, ImageEncoding, ImageSent

SIDE = 224  # pixels of a side of the images that openpi's models read
SMALLEST = 16  # least pixels of a side of an array that is an image
TRIES = 5

_Form = Callable[[np.ndarray], Any]


def images(observation: Mapping[str, object]) -> list[ImageSent]:
    """Return the images of ``observation``: arrays whose last three dimensions are those of an image."""
    return [
        ImageSent(name=name, shape=list(value.shape), dtype=str(value.dtype), sent_bytes=value.nbytes)
        for name, value in leaves(observation)
        if is_image(value)
    ]


def is_image(value: object) -> TypeGuard[np.ndarray]:
    """Return whether a value is images: (…, height, width, colours) or (…, colours, height, width)."""
    if not isinstance(value, np.ndarray) or value.ndim < 3 or value.dtype.kind not in "uf":
        return False
    shape = value.shape[-3:]
    sides = shape[:2] if shape[2] in (1, 3) else shape[1:] if shape[0] in (1, 3) else (0, 0)
    return min(sides) >= SMALLEST


def encodings(
    observation: Mapping[str, object], encode: Callable[[Any], bytes], *, recorded: bool = True
) -> list[ImageEncoding]:
    """Return each form of the images of ``observation``, the present one first; resized if one is larger than `SIDE`.

    Args:
        encode: makes the bytes of a message.
        recorded: whether the images are those of cameras. JPEG of noise says nothing, and is then left out.
    """
    sent = images(observation)
    if not sent:
        return []
    forms: dict[EncodingKind, _Form] = {}
    if any(image.dtype != "uint8" for image in sent):
        forms["as uint8"] = lambda pixels: pixels
    if recorded:
        forms["JPEG"] = jpeg
    pictures = [value for _, value in leaves(observation) if is_image(value)]
    if any(max(pixels.shape) > SIDE for value in pictures for pixels in _pixels(value)):
        forms["resized"] = _resize
        if recorded:
            forms["resized, then JPEG"] = lambda pixels: jpeg(_resize(pixels))
    rows = []
    for kind, form in {"as sent": None, **forms}.items():
        changed, made_ns = observation, 0
        if form is not None:
            changed, made_ns = time_repeated(partial(_change_images, observation, form), TRIES)
        data, took_ns = time_repeated(partial(encode, changed), TRIES)
        rows.append(
            ImageEncoding(
                kind=kind,  # type: ignore[arg-type]  # a key of the forms
                payload_bytes=len(data),
                ms=made_ns / 1e6,
                encode_ms=took_ns / 1e6,
            )
        )
    return rows


def _change_images(observation: Mapping[str, object], form: _Form) -> Mapping[str, object]:
    return change(observation, lambda _, value: _each(form, value) if is_image(value) else value)


def _each(form: _Form, images: np.ndarray) -> object:
    made = [form(pixels) for pixels in _pixels(images)]
    return made[0] if len(made) == 1 else made


def _pixels(images: np.ndarray) -> Iterator[np.ndarray]:
    """Yield (height, width, colours) in bytes of each image; numbers with a fraction are taken to lie in 0 to 1."""
    for image in images.reshape(-1, *images.shape[-3:]):
        pixels = image if image.shape[2] in (1, 3) else np.moveaxis(image, 0, 2)
        if pixels.dtype.kind == "f":
            pixels = np.nan_to_num(pixels).clip(0, 1) * 255
        yield np.ascontiguousarray(pixels.clip(0, 255).astype(np.uint8))


def _resize(pixels: np.ndarray) -> np.ndarray:
    from PIL import Image, ImageOps

    if max(pixels.shape[:2]) <= SIDE:
        return pixels
    padded = ImageOps.pad(Image.fromarray(pixels.squeeze()), (SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(padded).reshape(SIDE, SIDE, -1)
