"""The conditions that every family's record must hold to, on a tiny policy of it."""

from __future__ import annotations

import torch

from strobe.core.measure.accounting import Accounting
from strobe.core.subjects.subject import ITERATION, Phase
from strobe.core.timeline import Timeline
from strobe.core.timeline.probe import Attached
from strobe.lerobot.policies.policy_subject import PolicySubject


def section_paths(subject: PolicySubject, phase: Phase, depth: int = 1) -> list[tuple[str, ...]]:
    """Return the paths of the sections of one call of ``phase``, in their order."""
    with Attached(subject.hooks(phase, depth)), Timeline() as timeline:
        subject.call(phase, 2)(0)
    return [section.path for section in timeline.sections()]


def part_names(subject: PolicySubject, phase: Phase, depth: int = 1) -> list[str]:
    """Return the names of the sections inside the policy."""
    whole = (ITERATION, "policy" if phase == "inference" else "forward")
    return [path[-1] for path in section_paths(subject, phase, depth) if path[:2] == whole and len(path) > 2]


def require_parts(subject: PolicySubject, phase: Phase, parts: set[str]) -> None:
    """Fail unless ``phase`` shows ``parts``, and all of its FLOP but 1 % are inside of parts of the first level."""
    assert parts <= set(part_names(subject, phase))
    accounting = Accounting()
    with Attached(subject.hooks(phase, 1)):
        accounting.run(lambda: subject.call(phase, 2)(0))
    whole = (ITERATION, "policy" if phase == "inference" else "forward")
    inside = sum(a.gflop for path, a in accounting.accounts.items() if len(path) == 3 and path[:2] == whole)
    assert inside >= 0.99 * accounting.accounts[whole].gflop > 0


def require_the_same_actions_under_probes(subject: PolicySubject) -> None:
    """Fail unless probes change no action, and chunks are finite, and alike for one observation alone."""
    bare = subject.chunk(1)
    with Attached(subject.hooks("inference", 3)), Timeline():
        probed = subject.chunk(1)
    assert bare.ndim == 3
    assert torch.equal(bare, probed)
    assert bool(bare.isfinite().all())
    other = subject.act(subject.observation(2), subject.seed + 1)  # with the same noise
    assert not torch.equal(bare, other), "the policy looks at nothing"


def part_gflop(subject: PolicySubject, name: str) -> float:
    """Return the GFLOP of a chunk in the parts of this name."""
    accounting = Accounting()
    with Attached(subject.hooks("inference", 1)):
        accounting.run(lambda: subject.chunk(0))
    return sum(account.gflop for path, account in accounting.accounts.items() if path[-1] == name)
