"""Agreements, yardsticks and a verification, as small as they can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strobe.core.results.agreement import Agreement, Check, DimensionAgreement, Yardstick
from strobe.core.results.answer import VerifyResult
from support.examples.runs import MACHINE, SUBJECT

GUARD = "rms<=0.02, worst<=0.2, flips<=0"
LENGTH = 20  # actions of a chunk


def dimension(name: str, rms: float, *, offset: float = 0.0, flips: float | None = None, **more: Any) -> Any:
    """A dimension whose error grows along the chunk."""
    along = [rms * (0.5 + step / (LENGTH - 1)) for step in range(LENGTH)]
    made = DimensionAgreement(
        name=name, spread=10.0, rms=rms, p99=2.5 * rms, worst=4 * rms, offset=offset, flips=flips, along=along
    )
    return made.model_copy(update=more)


def make_agreement(dimensions: Sequence[DimensionAgreement], **more: Any) -> Agreement:
    """The agreement whose dimensions these are."""
    worst = max(dimensions, key=lambda one: one.worst)
    flips = [one.flips for one in dimensions if one.flips is not None]
    made = Agreement(
        cosine=0.999812, largest_error=worst.worst * worst.spread, mean_error=0.01, observations=74,
        rms=max(one.rms for one in dimensions), p99=max(one.p99 for one in dimensions), worst=worst.worst,
        worst_dimension=worst.name, worst_at="observation 3 again, action 18 of 20", flips=max(flips, default=None),
        executed=8, executed_rms=worst.rms / 2, executed_worst=worst.worst / 2, dimensions=list(dimensions),
        spread="the policy's own normalisation statistics",
        how="74 calls on 16 observations: 15 on returning to an earlier one",
    )  # fmt: skip
    return made.model_copy(update=more)


def joints(rms: float, count: int = 4, gripper: float | None = 0.0) -> list[DimensionAgreement]:
    """``count`` joints, each moved a little less than the one before, and a gripper."""
    found = [dimension(f"joint_{index}", rms / (1 + 0.1 * index)) for index in range(count)]
    return [*found, dimension("gripper", rms / 4, flips=gripper)] if gripper is not None else found


def yardstick(name: Any, rms: float, **more: Any) -> Yardstick:
    made = Yardstick(
        name=name, about=f"how {name} is made", rms=rms, worst=4 * rms, observations=8, dimensions=joints(rms)
    )
    return made.model_copy(update=more)


YARDSTICKS = [
    yardstick("reordered sums", 3e-7),
    yardstick("another noise draw", 0.61),
    yardstick("neighbouring frame", 0.05),
    yardstick("another observation", 0.8),
]


def check(name: str = "all treatments", rms: float = 0.004, **more: Any) -> Check:
    made = Check(
        name=name, treatments=["precision=bf16", "padding=trimmed"], effect="rounding", guard=GUARD,
        agreement=make_agreement(joints(rms)),
    )  # fmt: skip
    return made.model_copy(update=more)


def exact(rms: float = 4e-7, **more: Any) -> Check:
    """A check of what must not change anything."""
    fields = {"treatments": ["padding=trimmed"], "effect": "exact", "guard": "exact"} | more
    return check("padding=trimmed", rms, **fields)


def make_verification(*checks: Check, **more: Any) -> VerifyResult:
    """A verification; of a recipe that passes where nothing else is said."""
    made = VerifyResult(
        strobe_version="0.1.0", title="act: recipe.yaml", recipe="recipe.yaml", guard="", subject=SUBJECT,
        machine=MACHINE, checks=list(checks) or [exact(), check()], yardsticks=YARDSTICKS,
        command=["strobe", "verify", "--recipe=recipe.yaml", "--policy.type=act"],
    )  # fmt: skip
    return made.model_copy(update=more)
