"""Rules on two Python environments that ran the same policy: the first stage that differs, and its usual causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results import units
from strobe.core.results.answer import CompareResult, VerifyResult
from strobe.core.results.finding import Finding, warning
from strobe.environments.results import Environment, PassDifference, StageDifference

Compared = CompareResult | VerifyResult

GRADIENT_ERROR = 1e-3  # relative error of the gradient; other float32 kernels move it by 1e-7 to 1e-5
# Kind of the first difference → what usually causes it, and what to do.
CAUSES: Mapping[str, str] = {
    "weights": "Both sides read the same file. A weight that differs was renamed, reshaped, or computed when the "
    "policy was built, such as the frequencies of rotary embeddings. LeRobot does not complain about names that a "
    "checkpoint lacks: a module that a library renamed then has random values.",
    "type": "The same weights in another dtype round every product differently.",
    "shape": "One side passes on more or fewer values than the other: a token, a camera, an action.",
    "calls": "One side runs more or fewer steps.",
    "values": "The inputs of this stage are the same on both sides, and its output differs.",
    "setting": "A default changed, or a setting was renamed.",
}
STATISTICS = (
    "Both sides read the same statistics from the checkpoint, and hold other numbers. They scale every observation and "
    "every action."
)


def first_stage(result: Compared, _: Thresholds) -> Iterator[Finding]:
    outcomes = _outcomes(result)
    for one in result.passes:
        if (first := one.first) is not None:
            yield Finding(
                rule="first-stage-that-differs",
                level="info" if outcomes.get(one.candidate) == "held" else "warning",
                title=f"'{one.candidate}' first differs in {first.stage}",
                found=f"{units.capital(first.words)}. {_later_differences(one)}",
                why=STATISTICS if first.stage == "statistics" else CAUSES[first.kind],
                do=_do(first, result.environments),
            )


def settings_differ(result: Compared, _: Thresholds) -> Iterator[Finding]:
    for one in result.passes:
        if one.settings:
            named = "; ".join(setting.words for setting in one.settings[:3])
            more = f"; and {len(one.settings) - 3} more" if len(one.settings) > 3 else ""
            yield warning(
                rule="settings-differ",
                title=f"'{one.candidate}' reads the same checkpoint with other settings",
                found=f"{named}{more}.",
                why=CAUSES["setting"],
                do="Write the setting into the checkpoint's config.json, or pass it as --policy.FIELD on both sides.",
            )


def _outcomes(result: Compared) -> dict[str, str | None]:
    if isinstance(result, VerifyResult):
        return {check.name: check.outcome for check in result.checks}
    return {pair.candidate: pair.outcome for pair in result.comparisons}


def _later_differences(one: PassDifference) -> str:
    later = [difference.stage for difference in one.stages[1:]]
    if not later:
        return "No later stage differs by more than floating-point noise."
    shown = ", ".join(later[:4]) + (", …" if len(later) > 4 else "")
    return f"Later stages that differ too: {shown}."


def _do(first: StageDifference, environments: list[Environment]) -> str:
    versions = [
        f"{package} {' against '.join(found)}"
        for package in ("lerobot", "transformers", "torch")
        if len(found := list(dict.fromkeys(one.packages.get(package, "none") for one in environments))) > 1
    ]
    checkouts = list(dict.fromkeys(one.checkout for one in environments if one.checkout))
    what = ", ".join([*versions, *([f"LeRobot's commits {' and '.join(checkouts)}"] if checkouts else [])])
    suspects = f" Its versions differ: {what}." if what else ""
    what_changed = f"Read the changes of '{first.place}' between the two versions."
    return f"{what_changed}{suspects} Update one package at a time, and run again."


def trains_differently(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    for pair in result.comparisons if result.environments else ():
        same = pair.gradient
        if same is not None and same.error is not None and same.error > GRADIENT_ERROR:
            yield warning(
                rule="trains-differently",
                title=f"A training step in '{pair.candidate}' has another gradient",
                found=f"The gradients differ by {same.error:.2g} of their length (cosine {same.cosine:.6f}), the "
                f"losses by {same.loss_error or 0.0:.2g} of the loss.",
                why="Both sides had the same batch, weights and noise. A training that begins in one environment and "
                "continues in the other takes another course.",
                do="Finish trainings in the environment in which they began, or fix the first stage that differs.",
            )


RULES = (first_stage, settings_differ)
OF_COMPARISONS = (*RULES, trains_differently)
