"""Exports of tiny policies: faults that rounding would hide, which must be refused, and sound ones, which must be held.

An export is made once for each policy and format; each check of it has other observations and other noise.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from planted.unseen import Case

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards, Judgement
from strobe.core.studies.shared.progress import Silent
from strobe.export import folder
from strobe.export.carried.policy import MANIFEST
from strobe.export.verify import Export, verify_export
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.policy_subject import PolicySubject

SEED = 1_000  # from one check's observations and noise to the next's
POLICIES = {  # those in float32 and one in bfloat16, with draws and without, with prompts and without
    "act": ["--chunk_size=8", "--n_action_steps=8"],
    "diffusion": ["--num_inference_steps=2"],
    "pi0": ["--num_inference_steps=2"],
    "smolvla": ["--num_steps=2"],
}


def make_tiny_policy(kind: str, factor: float = 1.0) -> PolicySubject:
    """A tiny policy of random weights; ``factor``: of the spread of its actions."""
    config = lerobot_policies.config_from_type(kind, ["--device=cpu", *POLICIES[kind]])
    fed = inputs.synthetic(config, tiny=True)
    for name in ("std", "max", "q99"):
        fed.stats["action"][name] = np.asarray(fed.stats["action"][name]) * factor
    return PolicySubject(lerobot_policies.load(config, fed, size="tiny", seed=0), fed, 0)


def export_policy(subject: PolicySubject, format: str = "openvino") -> Path:
    """Export ``subject`` into a new folder."""
    to = Path(tempfile.mkdtemp(prefix="strobe-export-")) / "export"
    folder.write(subject, to, folder.ExportOptions(format), lambda _: None)
    return to


def judge_export(subject: PolicySubject, export: Path) -> Judgement:
    """Hold an export as `strobe verify --exported` does."""
    try:
        result = verify_export(subject, Export(export), Guards(), Silent(), count=4, passes=1)
    except UserError as error:
        return Judgement("broken", str(error))
    words = next((check.broken or check.unjudged for check in result.checks if check.outcome != "held"), "")
    return Judgement(result.outcome, words)


def export_cases(subject: PolicySubject, export: Path) -> Iterator[Case]:
    """Exports that act otherwise by less than rounding may, and a damaged one."""

    def scale_outputs(at: Path) -> None:
        program = at / "policy.py"
        program.write_text(program.read_text().replace("return self._run(", "return 1.01 * self._run("))

    def weights(at: Path) -> None:
        held = bytearray((at / "policy.bin").read_bytes())
        np.frombuffer(held, np.float32, 1_000, len(held) // 40 * 4)[:] *= 1.5  # some others do not move the actions
        (at / "policy.bin").write_bytes(held)

    faults: dict[str, tuple[Callable[[Path], None], bool]] = {
        "all actions of an export 1 % off": (scale_outputs, True),
        "4,000 bytes of an export's weights changed": (weights, True),
        "an export's weights damaged": (weights, False),
    }
    for name, (plant, sealed) in faults.items():
        changed = Path(tempfile.mkdtemp(prefix="strobe-export-"))
        for name_of_file in ("policy.xml", "policy.bin", "policy.py", MANIFEST):
            (changed / name_of_file).write_bytes((export / name_of_file).read_bytes())
        plant(changed)
        if sealed:
            folder.seal(changed)
        yield name, "reordered sums" if sealed else "its digests", judge_export(subject, changed)
    yield (
        "an export with a sister set's statistics",
        "reordered sums",
        judge_export(make_tiny_policy("act", 1.02), export),
    )


def sound(checks: int, seconds: float) -> tuple[int, list[str]]:
    """Hold sound exports ``checks`` times over all policies and formats; no new export after ``seconds``.

    Returns:
        How many were held, and what was said of the others.
    """
    ways = [(kind, format) for format in ("openvino", "onnx") for kind in POLICIES]
    made: list[tuple[PolicySubject, str, Path]] = []
    began = time.monotonic()
    for kind, format in ways:
        if made and time.monotonic() - began > seconds:
            break
        subject = make_tiny_policy(kind)
        made.append((subject, f"{kind} in {format}", export_policy(subject, format)))
    refused: list[str] = []
    for number in range(checks):
        subject, name, at = made[number % len(made)]
        subject.seed = SEED * number
        if (found := judge_export(subject, at)).outcome != "held":
            refused.append(f"{name}, check {number + 1}: {found.words}")
    return checks - len(refused), refused
