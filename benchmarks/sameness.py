"""Does the guard see a policy that acts otherwise, and does it leave alone one that acts the same?

Faults are planted into a tiny pi0.5 of random weights: two positions of 500 ± 10 mm, four joints in degrees and a
gripper that is 0 or 1, two cameras, prompts of different length. Each is a treatment that claims to be exact, as a
cache is, or rounding, as another number format is. Bar: the default guard refuses each of them. Beside it stands what
``cosine>=0.999`` over all action numbers says of the same calls, which was the default before.

Then faults that a guard could once not see, for want of a figure, of a yardstick, or of the right numbers to look at
(`planted/unseen.py`), and exports that act otherwise by less than rounding may (`planted/exports.py`). Bar: each is
refused, or called not judged. And weights that change in place below a recipe (`planted/stale.py`). Bar: each change is
refused within a few calls, and nothing that changes none.

Then the other side: on pi0, pi0.5 and SmolVLA the baseline against itself, each exact treatment and all of
them together must pass in every try, with other weights every twenty tries, and other noise in each. So must 40 sound
exports, of policies in float32 and bfloat16, for OpenVINO and ONNX Runtime.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common.shared import finish, need
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from planted.exports import export_cases, export_policy, make_tiny_policy, sound
from planted.faults import (
    Planted,
    every,
    first,
    invert_decisions,
    plant_in_arguments,
    plant_in_output,
    plant_in_prefix,
    shift_early,
)
from planted.stale import judge_stale
from planted.unseen import backbone_cases, object_cases, policy_cases, scale_cases
from rich.console import Console
from rich.progress import track
from rich.table import Table

from strobe.core.measure.guard import Guard, Guards
from strobe.core.results.agreement import Yardstick
from strobe.core.sameness.check import PolicyCallError, Sameness
from strobe.core.sameness.visits import plan
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import PROCESS, Variant
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.flow.rtc import ClosedFormGuidance, RealTimeChunking

FLOW = {"pi0": "num_inference_steps", "pi05": "num_inference_steps", "smolvla": "num_steps"}
STEPS = 3  # denoising steps, so that many tries take little time
GRIPPER = 6
LOW, HIGH, SHARE = 0.0, 1.0, 0.4  # of the gripper's values, and how often it is the high one
TRIES, QUICK = 200, 4
EXPORTS, QUICK_EXPORTS, EXPORTS_S = 40, 2, 120.0  # checks of sound exports, and the time for making them
EVERY = 20  # tries with the same weights
COSINE = Guard.parse("cosine>=0.999")
DEGREES = 3.0
WRONG = 30.0  # what is added to a wrong action: degrees, or millimetres
JOINT = 2  # the first dimension that is a joint
POSITION = {"mean": 500.0, "std": 10.0, "min": 480.0, "max": 520.0, "q01": 480.0, "q99": 520.0}  # millimetres


def faults() -> list[Planted]:
    """The planted faults."""
    mean = torch.tensor([POSITION["mean"]] * JOINT + [0.0] * (GRIPPER - JOINT) + [LOW + SHARE * (HIGH - LOW)])

    def offset(chunk: torch.Tensor, _: Any) -> torch.Tensor:
        chunk[..., JOINT] += DEGREES
        return chunk

    def last(chunk: torch.Tensor, _: Any) -> torch.Tensor:
        chunk[:, -1, JOINT] += WRONG
        return chunk

    def set_action_nan(chunk: torch.Tensor, _: Any) -> torch.Tensor:
        chunk[:, 10, 1] = float("nan")
        return chunk

    def sometimes(chunk: torch.Tensor, kept: dict[str, Any]) -> torch.Tensor:
        return chunk + WRONG if every(20, kept) else chunk

    def repeat_first_chunk(chunk: torch.Tensor, kept: dict[str, Any]) -> torch.Tensor:
        return first(kept, "chunk", chunk)

    def stale(made: tuple[Any, ...], kept: dict[str, Any]) -> tuple[Any, ...]:
        return (made[0], first(kept, "mask", made[1]), *made[2:])

    def reuse_first_prefix(made: tuple[Any, ...], kept: dict[str, Any]) -> tuple[Any, ...]:
        return first(kept, "prefix", tuple(one.clone() for one in made))

    def swap_cameras(given: list[Any], _: Any) -> list[Any]:
        return [given[0][::-1], given[1][::-1], *given[2:]]

    def prompt(given: list[Any], kept: dict[str, Any]) -> list[Any]:
        return [*given[:2], first(kept, "tokens", given[2]), first(kept, "mask", given[3])]

    return [
        Planted(
            "inverted gripper",
            "rounding",
            plant_in_output(lambda chunk, _: invert_decisions(chunk, GRIPPER, (LOW + HIGH) / 2)),
        ),
        Planted(f"one joint {DEGREES:g}° off", "rounding", plant_in_output(offset)),
        Planted("dead policy: always the mean", "rounding", plant_in_output(lambda chunk, _: mean.expand_as(chunk))),
        Planted("the first chunk again and again", "exact", plant_in_output(repeat_first_chunk)),
        Planted("first observation's prefix reused", "exact", plant_in_prefix(reuse_first_prefix)),
        Planted("stale mask", "exact", plant_in_prefix(stale)),
        Planted("swapped cameras", "exact", plant_in_arguments(swap_cameras)),
        Planted("wrong prompt", "exact", plant_in_arguments(prompt)),
        Planted("actions one tick early", "rounding", plant_in_output(lambda chunk, _: shift_early(chunk))),
        Planted("last action of the chunk wrong", "rounding", plant_in_output(last)),
        Planted("not a number in one dimension", "rounding", plant_in_output(set_action_nan)),
        Planted("one in twenty chunks wrong", "rounding", plant_in_output(sometimes)),
    ]


def make_gripper_policy(kind: str, seed: int = 0) -> PolicySubject:
    """A tiny policy of two positions, four joints and a gripper, with random weights."""
    config = lerobot_policies.config_from_type(kind, [f"--{FLOW[kind]}={STEPS}", "--device=cpu"])
    from lerobot.configs import FeatureType, PolicyFeature
    from lerobot.utils.constants import ACTION

    config.output_features = {ACTION: PolicyFeature(FeatureType.ACTION, (GRIPPER + 1,))}
    fed = inputs.synthetic(config, tiny=True)
    mean, spread = LOW + SHARE * (HIGH - LOW), (HIGH - LOW) * (SHARE * (1 - SHARE)) ** 0.5
    known = {"min": LOW, "max": HIGH, "mean": mean, "std": spread, "q01": LOW, "q99": HIGH}
    for name, value in known.items():
        fed.stats[ACTION][name][GRIPPER] = value
        fed.stats[ACTION][name][:JOINT] = POSITION[name]
    fed.meta.features[ACTION]["names"] = ["x", "y", *(f"joint_{index}" for index in range(1, 5)), "gripper"]
    return PolicySubject(lerobot_policies.load(config, fed, size="tiny", seed=seed), fed, seed)


def plant_faults(console: Console) -> dict[str, Any]:
    """Plant each fault, and print what the guards say. Returns the figures."""
    subject = make_gripper_policy("pi05")
    same = Sameness(subject)
    reordered = same.yardstick("reordered sums", same.count)
    assert reordered is not None
    visits = plan(same.count, rtc=same.rtc, passes=2)
    table = Table(
        "planted fault", "claims", "RMS (σ)", "worst (σ)", "flips", "default guard", "cosine", "cosine>=0.999"
    )
    refused, passed_cosine, found = 0, 0, faults()
    for fault in found:
        guard = Guards().strictest_guard([fault.effect])
        try:
            agreement = same.check(Variant(fault.name, (fault,)), visits)
        except PolicyCallError as error:
            table.add_row(fault.name, fault.effect, "", "", "", f"refused: {error}", "", "")
            refused += 1
            continue
        judged, by_cosine = guard.judge(agreement, reordered), COSINE.judge(agreement)
        refused += judged.outcome != "held"
        passed_cosine += by_cosine.outcome == "held"
        flips = "" if agreement.flips is None else f"{100 * agreement.flips:.3g} %"
        table.add_row(
            fault.name, fault.effect, f"{agreement.rms:.3g}", f"{agreement.worst:.3g}", flips,
            "PASSES" if judged.outcome == "held" else f"refused: {judged.words}", f"{agreement.cosine:.5f}",
            "passes" if by_cosine.outcome == "held" else "refused",
        )  # fmt: skip
    console.print(table)
    console.print(f"{len(visits)} calls each; reordered sums move the actions by {reordered.rms:.2g} σ")
    return {"faults": len(found), "refused": refused, "passed_by_cosine": passed_cosine}


def unseen(console: Console) -> dict[str, Any]:
    """Plant what a guard could once not see, and print what the guards say. Returns the figures."""
    table = Table("planted fault", "compared with", "judgement")
    act = make_tiny_policy("act")
    cases = [
        *policy_cases(make_gripper_policy("pi05")),
        *scale_cases(),
        *object_cases(),
        *backbone_cases(),
        *export_cases(act, export_policy(act)),
    ]
    for name, guard, judged in cases:
        words = "PASSES" if judged.outcome == "held" else f"{judged.outcome}: {judged.words}"
        table.add_row(name, guard, words)
    console.print(table)
    return {"unseen": len(cases), "unseen_refused": sum(judged.outcome != "held" for _, _, judged in cases)}


def same_acting(subject: PolicySubject) -> list[tuple[Sameness, Variant]]:
    """The baseline, it with each exact treatment that applies, and with all; each with what it is compared with.

    RTC's guidance in closed form is compared with the guidance as LeRobot computes it.
    """
    specs = [
        spec
        for entry in catalogue.entries()
        if entry.effect == "exact" and entry.rank != PROCESS
        for spec in entry.candidates(subject)
    ]
    made = [
        (catalogue.format_spec(one), catalogue.make(one)) for one in catalogue.sort_specs(specs) if "graph" not in one
    ]
    plain, guided = Sameness(subject, count=4), RealTimeChunking(RTCConfig(enabled=True, execution_horizon=10), 4)
    return [
        (plain, Variant("untouched", ())),
        *((plain, Variant(name, (treatment,))) for name, treatment in made),
        (plain, Variant("all of them", tuple(treatment for _, treatment in made))),
        (Sameness(subject, [guided], count=4), Variant("closed-form guidance", (guided, ClosedFormGuidance()))),
    ]


def passing(tries: int, console: Console) -> dict[str, Any]:
    """Check what acts the same, ``tries`` times for each policy. Returns the figures."""
    refused: list[str] = []
    counts: dict[str, int] = {}
    largest = 0.0
    for kind in FLOW:
        subject = make_gripper_policy(kind)
        for number in track(range(tries), f"{kind}: what acts the same", console=console, transient=True):
            if number % EVERY == 0:
                subject = make_gripper_policy(kind, seed=number)
            subject.seed = 1000 * number
            yardsticks: dict[int, Yardstick | None] = {}
            for same, variant in same_acting(subject):
                if id(same) not in yardsticks:
                    yardsticks[id(same)] = same.yardstick("reordered sums", 2)
                reordered = yardsticks[id(same)]
                assert reordered is not None
                agreement = same.check(variant, plan(same.count, rtc=same.rtc))
                judged = Guards().strictest_guard(["exact"]).judge(agreement, reordered)
                counts[variant.name] = counts.get(variant.name, 0) + 1
                largest = max(largest, (agreement.rms or 0.0) / max(reordered.rms, 1e-6))
                if judged.outcome != "held":
                    refused.append(f"{kind}, try {number + 1}, {variant.name}: {judged.words}")
    for line in refused[:20]:
        console.print(f"refused though it acts the same: {line}")
    console.print(f"{sum(counts.values())} checks of what acts the same, {len(refused)} refused; {counts}")
    console.print(f"the largest error was {largest:.2g} times that of reordered sums (of 1e-6 σ at least)")
    return {"tries": tries, "checks": sum(counts.values()), "false_alarms": len(refused), "largest_ratio": largest}


def exports(checks: int, seconds: float, console: Console) -> dict[str, Any]:
    """Hold sound exports ``checks`` times. Returns the figures."""
    held, refused = sound(checks, seconds)
    for line in refused:
        console.print(f"refused though it is sound: {line}")
    console.print(f"{held} of {checks} checks of sound exports held")
    return {"exports": checks, "exports_held": held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} tries instead of {TRIES}: about a minute")
    arguments = parser.parse_args()
    need("pi", "openvino", "onnx")
    torch.set_num_threads(1)
    console = Console(width=170)
    figures = plant_faults(console)
    figures |= unseen(console)
    figures |= judge_stale()
    figures |= passing(QUICK if arguments.quick else TRIES, console)
    figures |= exports(*((QUICK_EXPORTS, 0.0) if arguments.quick else (EXPORTS, EXPORTS_S)), console)
    seen = figures["refused"] == figures["faults"] and figures["unseen_refused"] == figures["unseen"]
    seen = seen and not figures["stale_unseen"] and not figures["stale_sound_refused"]
    finish(figures, holds=seen and not figures["false_alarms"] and figures["exports_held"] == figures["exports"])


if __name__ == "__main__":
    main()
