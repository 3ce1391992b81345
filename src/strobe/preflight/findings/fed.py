"""Rules on the images of a run's first observation, compared with the statistics of the training's images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from strobe.core.results.finding import Finding, warning
from strobe.preflight.findings.machine import joints_outside_training
from strobe.preflight.results.wiring import FedImage, Wiring

BLACK = 0.02  # the mean of every channel, as a share of full brightness
FLAT = 0.01  # spread of an image of one colour: less than a camera's noise in any scene
TRAINED_FLAT = 0.05  # the training's spread, below which its images have one colour as well
FULL = 1.5  # a mean above it is one of 0 to 255, not of 0 to 1
FAR = 1.5  # σ of the training's pixels by which the mean of an image may lie off
REDDER = 0.06  # least difference of the training's red and blue means that shows a swap
NEARER = 3.0  # how many times nearer a swapped reading has to be than the present one


def images(wiring: Wiring) -> Iterator[Finding]:
    """Images of the first observation that are empty, or unlike those of the training."""
    seen = [image for image in wiring.fed_images or [] if not image.pattern]
    exchanged = {image.name for pair in _find_exchanged_pairs(seen) for image in pair}
    for image in seen:
        if image.name not in exchanged and (fault := _fault(image)):
            kind, what, why, do = fault
            trained = f"; in the training they were {_join_numbers(image.trained_mean)}" if image.trained_mean else ""
            yield warning(
                rule=f"image-{kind}",
                title=f"Camera {image.camera} {what}",
                found="The red, green and blue means of the first observation are "
                f"{_join_numbers(image.mean)}{trained}.",
                why=why,
                do=do,
            )
    for one, other in _find_exchanged_pairs(seen):
        yield warning(
            rule="images-exchanged",
            title=f"Cameras {one.camera} and {other.camera} look swapped: each is like the other's training images",
            found=f"The means of {one.camera} are {_join_numbers(one.mean)}, of {other.camera} "
            f"{_join_numbers(other.mean)}. In the training they were {_join_numbers(one.trained_mean)} and "
            f"{_join_numbers(other.trained_mean)}.",
            why="The policy reads each image as that of the other camera.",
            do="Swap index_or_path of the two in --robot.cameras.",
        )


def _fault(image: FedImage) -> tuple[str, str, str, str] | None:
    """Return the kind of fault, its title, why it matters and the advice."""
    look = "Look at the camera's picture: lerobot-find-cameras saves one of each camera."
    blind = "The policy sees nothing through this camera."
    bright, trained = np.array(image.mean), np.array(image.trained_mean)
    if trained.size and (bright.max() > FULL) != (trained.max() > FULL):
        given, meant = ("0 to 255", "0 to 1") if bright.max() > FULL else ("0 to 1", "0 to 255")
        what = f"gives values from {given}, and the training had {meant}"
        why = "The policy normalises with the wrong scale."
        cure = "Give images as bytes: LeRobot divides them by 255. Statistics from 0 to 255 come from a conversion."
        return "range", what, why, cure
    if not trained.size and bright.max() > FULL:
        return None
    full = 255.0 if bright.max() > FULL else 1.0
    bright, trained = bright / full, trained / full
    spread, wide = np.array(image.spread) / full, np.array(image.trained_spread) / full
    if bright.max() < BLACK and (not trained.size or trained.max() > 2 * BLACK):
        return "black", "is black", blind, f"Take the lens cap off, or add light. {look}"
    if spread.max() < FLAT and (not trained.size or wide.max() > TRAINED_FLAT):
        return "one-colour", "shows one colour", blind, look
    if not trained.size:
        return None
    as_is, turned = np.abs(bright - trained)[[0, 2]].max(), np.abs(bright[::-1] - trained)[[0, 2]].max()
    if abs(trained[0] - trained[2]) > REDDER and as_is > REDDER and as_is > NEARER * turned:
        return "red-blue", "looks as if red and blue were swapped", (
            "The policy sees other colours than in its training. Light of another colour looks alike."), (
            "Set color_mode of this camera to that of the recording.")  # fmt: skip
    off = np.abs(bright - trained) / np.maximum(wide, FLAT)
    if off.max() > FAR:
        return "unlike-training", f"shows images unlike those of the training, {off.max():.1f} σ off", (
            "The policy was trained on images with another brightness, or of another scene."), look  # fmt: skip
    return None


def _find_exchanged_pairs(seen: Sequence[FedImage]) -> list[tuple[FedImage, FedImage]]:
    known = [image for image in seen if image.trained_mean]
    return [
        (one, other)
        for at, one in enumerate(known)
        for other in known[at + 1 :]
        if min(_distance(one, one), _distance(other, other)) > REDDER
        and min(_distance(one, one), _distance(other, other))
        > NEARER * max(_distance(one, other), _distance(other, one))
    ]


def _distance(image: FedImage, training: FedImage) -> float:
    return float(np.abs(np.array(image.mean) - np.array(training.trained_mean)).max())


def _join_numbers(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


def first_observation_findings(wiring: Wiring) -> list[Finding]:
    """Return the findings on the first observation alone."""
    return [each for each in joints_outside_training(wiring) if each.rule == "starts-outside-training"] + list(
        images(wiring)
    )


CHECKS = (images,)
