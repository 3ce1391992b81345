"""Plant faults of an upgrade in a copy of LeRobot: is each named by its stage, and nothing where all is the same?

The sides are processes of this environment, so that nothing differs but what is planted.

- Eight faults, in a copy of the installed LeRobot: a buffer left uninitialised, another resize filter, statistics in
  float16, a mask inverted, a denoising step less, attention scaled twice, a token more, a changed default. Bar: each
  one's first stage is the stage that it was planted in.
- The same environment twice: no stage of 100 passes differs, and no chunk.
- Its time: of 100 comparisons of two processes, at most 5 % claim that one is faster.

--quick: the faults, 20 passes and 21 comparisons.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.shared import finish, meets_upper_bar, need
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file, save_file

from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.measure.verdicts import paired_verdict
from strobe.core.studies.shared.progress import Silent
from strobe.environments import first_difference
from strobe.environments.parcel import CHECKS
from strobe.environments.side import SideOptions
from strobe.environments.sides import Carried, Sides, SidesOptions, carry, passes
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions

PI05, ACT = "pi05", "act"
PI05_FILE = "policies/pi05/modeling_pi05.py"
FALSE_FASTER = 0.05
ROUNDS = 40


@dataclass(frozen=True)
class Fault:
    """A change to one file of LeRobot.

    Args:
        stage, place: what the first difference must be in; a part of either's words.
        old: text that is replaced; '' to add ``new`` at the file's end.
    """

    name: str
    stage: str
    place: str
    file: str
    new: str
    old: str = ""
    policy: str = PI05


AFTER_INIT = """

_plain_init = PI05Policy.__init__


def _changed_init(self, *args, **kwargs):
    _plain_init(self, *args, **kwargs)
    {change}


PI05Policy.__init__ = _changed_init
"""
FAULTS = (
    Fault(
        "a buffer left uninitialised", "weights", "inv_freq", PI05_FILE,
        AFTER_INIT.format(change='[b.fill_(0.37) for n, b in self.named_buffers() if n.endswith("inv_freq")]'),
    ),
    Fault("another resize filter", "vision", "given", "policies/common/vla_utils.py",
          'mode: str = "nearest"', 'mode: str = "bilinear"'),
    Fault("statistics in float16", "statistics", "Normalizer", "processor/normalize_processor.py",
          "tensor.half().to(\n                dtype=torch.float32", "tensor.to(\n                dtype=torch.float32"),
    Fault("a mask inverted", "prefix", "attention_mask", "policies/common/vla_utils.py",
          "\n\n_plain_masks = prepare_attention_masks_4d\n\n\n"
          "def prepare_attention_masks_4d(masks, dtype=None):\n    return _plain_masks(~masks, dtype)\n"),
    Fault("a step less", "denoising step", "", PI05_FILE,
          "num_steps = self.config.num_inference_steps - 1", "num_steps = self.config.num_inference_steps"),
    Fault("attention scaled twice", "prefix", "self_attn", PI05_FILE, AFTER_INIT.format(
          change='for m in self.model.paligemma_with_expert.paligemma.model.language_model.modules():\n'
                 '        if hasattr(m, "scaling"):\n            m.scaling = m.scaling**2')),
    Fault("a token more", "preprocessing", "TokenizerProcessorStep", "processor/tokenizer_processor.py",
          "max_length=self.max_length + 1,", "max_length=self.max_length,"),
    Fault("a changed default", "settings", "policy.n_action_steps", "policies/act/configuration_act.py",
          "n_action_steps: int = 10", "n_action_steps: int = 100", ACT),
)  # fmt: skip


def make_faulty_checkout(fault: Fault, folder: Path) -> Path:
    """Return a checkout of LeRobot with the fault in it."""
    import lerobot

    source = Path(lerobot.__file__).parent
    checkout = folder / fault.name.replace(" ", "_")
    shutil.copytree(source, checkout / "src" / "lerobot", ignore=shutil.ignore_patterns("__pycache__"))
    file = checkout / "src" / "lerobot" / fault.file
    text = file.read_text()
    if fault.old:
        assert text.count(fault.old) >= 1, f"{fault.file} has no '{fault.old}' any more"
        file.write_text(text.replace(fault.old, fault.new, 1))
    else:
        file.write_text(text + fault.new)
    return checkout


def pack_tiny_policy(kind: str, folder: Path, checks: int = CHECKS) -> tuple[Carried, int]:
    """Pack a tiny policy. Return it, and the bytes of its weights."""
    folder.mkdir()
    subject = load_subject(
        PolicyOptions(type=kind, size="tiny", overrides=["--device=cpu"]), InputOptions(image_size=(48, 64))
    )
    carried = carry(subject, folder, SidesOptions([]), checks=checks)
    weight_bytes = subject.info.weight_bytes
    del subject
    gc.collect()
    return carried, weight_bytes


def perturb_statistics(carried: Carried) -> None:
    """Change the saved statistics by a third of a percent: made-up ones are round, and float16 holds them."""
    for file in (carried.parcel.folder / "policy").glob("policy_*normalizer*.safetensors"):
        save_file({name: tensor * 1.00337 for name, tensor in load_file(file).items()}, file)


def remove_default_setting(carried: Carried) -> None:
    """Take a setting out of the saved config, as one that was saved before the setting was there."""
    file = carried.parcel.folder / "policy" / "config.json"
    config = json.loads(file.read_text())
    del config["n_action_steps"]
    file.write_text(json.dumps(config))


def faults(work: Path, chosen: tuple[Fault, ...], table: Table) -> dict[str, Any]:
    """Return for each fault the stage and the place that was named first, and whether that is where it was planted."""
    found: dict[str, Any] = {}
    carried = {kind: pack_tiny_policy(kind, work / f"parcel_{kind}") for kind in {fault.policy for fault in chosen}}
    if PI05 in carried:
        perturb_statistics(carried[PI05][0])
    if ACT in carried:
        remove_default_setting(carried[ACT][0])
    for fault in chosen:
        sides = [SideOptions("sound"), SideOptions("planted", lerobot=str(make_faulty_checkout(fault, work)))]
        parcel, weight_bytes = carried[fault.policy]
        with Sides(parcel, SidesOptions(sides), Silent(), weight_bytes) as running:
            (difference,) = passes(running, {}, Silent())
        first = difference.settings[0] if fault.stage == "settings" and difference.settings else difference.first
        stage, place = (first.stage, first.place or "") if first is not None else ("nothing", difference.note or "")
        right = fault.stage in stage and fault.place in (place or "")
        found[fault.name] = {"stage": stage, "place": place, "right": right}
        table.add_row(fault.name, stage, place[:70], "yes" if right else "NO")
    return found


def false_stages(work: Path, count: int) -> int:
    """Return how many of ``count`` passes of the same environment twice differ at any stage, or in their chunk."""
    carried, weight_bytes = pack_tiny_policy(PI05, work / "parcel_same", count)
    sides = SidesOptions([SideOptions("one"), SideOptions("other")])
    wrong = 0
    with Sides(carried, sides, Silent(), weight_bytes) as running:
        for index in range(carried.parcel.checked):
            compared = first_difference.compare(
                running.stages("one", index), running.stages("other", index), steps=carried.steps
            )
            same = bool((running.chunk("one", index) == running.chunk("other", index)).all())
            wrong += bool(compared.stages) or not same
    return wrong


def false_faster(work: Path, count: int) -> tuple[int, int, list[float]]:
    """Return how many comparisons of two processes were made, how many claim a difference, and the ratios."""
    carried, weight_bytes = pack_tiny_policy(ACT, work / "parcel_time")
    processes = next(number for number in itertools.count(2) if number * (number - 1) // 2 >= count)
    sides = SidesOptions([SideOptions(f"process {number}") for number in range(processes)], threads=1)
    claims, ratios = 0, list[float]()
    with Sides(carried, sides, Silent(), weight_bytes) as running:
        pairs = list(itertools.combinations(running.names, 2))[:count]
        for first, second in pairs:
            collected = collect(
                {name: caller(running.timed_call(name)) for name in (first, second)}, SamplingBudget(iterations=ROUNDS)
            )
            before, after = (collected.samples[name].values for name in (first, second))
            verdict = paired_verdict(before, after)
            claims += verdict.kind in ("faster", "slower")
            ratios.append(verdict.ratio)
    return len(pairs), claims, ratios


def caller(call: Callable[[int], dict[str, float]]) -> Callable[[], float]:
    """Return what makes the next call and returns its milliseconds."""
    indices = itertools.count()
    return lambda: sum(call(next(indices)).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the faults, 20 passes and 21 comparisons")
    parser.add_argument("--only", default="", help="faults, stages or times")
    parser.add_argument("--fault", default="", help="one of the faults")
    asked = parser.parse_args()
    need("pi")
    wanted = asked.only.split(",") if asked.only else ["faults", "stages", "times"]
    figures: dict[str, Any] = {}
    holds = True
    table = Table("fault", "first stage", "place", "right")
    began = time.monotonic()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if "faults" in wanted:
            figures["faults"] = faults(work, tuple(one for one in FAULTS if asked.fault in ("", one.name)), table)
            holds &= all(one["right"] for one in figures["faults"].values())
        if "stages" in wanted:
            count = 20 if asked.quick else 100
            figures["passes"], figures["false_stages"] = count, false_stages(work, count)
            holds &= figures["false_stages"] == 0
        if "times" in wanted:
            made, claims, ratios = false_faster(work, 21 if asked.quick else 100)
            figures |= {"comparisons": made, "false_faster": claims, "ratios": [min(ratios), max(ratios)]}
            holds &= meets_upper_bar(made, claims, FALSE_FASTER)
    Console(width=150).print(table)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    finish({"quick": asked.quick, **figures}, holds)


if __name__ == "__main__":
    main()
