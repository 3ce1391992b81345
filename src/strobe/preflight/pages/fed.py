"""What a run fed the policy, on the run's page: each joint's position beside the range of the training data."""

from __future__ import annotations

from strobe.core.report.document import Columns, Section, figure, listing, words
from strobe.core.results import units
from strobe.preflight.results.wiring import FedJoint, Wiring
from strobe.rollout.results.rollout import RolloutResult

FIGURES = units.figures(4)
JOINTS: Columns[FedJoint] = [
    words("Joint", lambda joint: joint.joint),
    words("In the training data", lambda joint: f"{FIGURES(joint.low)} to {FIGURES(joint.high)}"),
    figure("First observation", lambda joint: joint.first, FIGURES),
    figure("Normalised", lambda joint: joint.normalised, lambda size: f"{size:+.2g}"),
    figure("Ticks outside", lambda joint: joint.outside, lambda share: f"{100 * share:.1f} %"),
]


def sections(result: RolloutResult) -> list[Section]:
    """Return the table of joints; none where the policy's statistics or the positions are not known."""
    wiring = result.wiring
    if not isinstance(wiring, Wiring) or not wiring.fed:
        return []
    return listing("fed", "What the arm fed the policy", wiring.fed, JOINTS)
