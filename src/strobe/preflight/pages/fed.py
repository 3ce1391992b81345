"""What a run fed the policy, on the run's page: joints and images next to those of the training data."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report.document import Columns, Section, figure, listing, words
from strobe.core.results import units
from strobe.loops.results.rollout import RolloutResult
from strobe.preflight.results.wiring import FedImage, FedJoint, Wiring

FIGURES = units.figures(4)
JOINTS: Columns[FedJoint] = [
    words("Joint", lambda joint: joint.joint),
    words("In the training data", lambda joint: f"{FIGURES(joint.low)} to {FIGURES(joint.high)}"),
    figure("First observation", lambda joint: joint.first, FIGURES),
    figure("Normalised", lambda joint: joint.normalised, lambda size: f"{size:+.2g}"),
    figure("Ticks outside", lambda joint: joint.outside, lambda share: f"{100 * share:.1f} %"),
]
IMAGES: Columns[FedImage] = [
    words("Camera", lambda image: image.camera),
    words("Mean of red, green, blue", lambda image: _join_numbers(image.mean)),
    words("Spread", lambda image: _join_numbers(image.spread)),
    words("Mean in the training", lambda image: _join_numbers(image.trained_mean) or f"not judged: {image.unjudged}"),
]


def sections(result: RolloutResult) -> list[Section]:
    """Return the tables of joints and images; none where the policy's statistics or the positions are not known."""
    wiring = result.wiring
    if not isinstance(wiring, Wiring):
        return []
    shown = listing("fed", "What the arm fed the policy", wiring.fed, JOINTS) if wiring.fed else []
    images = wiring.fed_images
    return shown + (listing("fed-images", "The first images of the run", images, IMAGES) if images else [])


def _join_numbers(numbers: Sequence[float]) -> str:
    return ", ".join(FIGURES(number) or "" for number in numbers)
