"""openpi's checkpoint in LeRobot by the code of docs/coming-from/openpi.md: are its actions openpi's? Tiny models."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openpi_core import SIZES

from strobe.core.families.registry import building
from strobe.lerobot.policies.standins import stand_ins

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from" / "openpi.md"
SIDE, STATE, ACTION, CAMERAS = 224, 8, 7, ("base", "left_wrist", "right_wrist")  # as the page's code has them
CASES = (("pi05", "float32"), ("pi0", "float32"), ("pi05", "bfloat16"), ("pi0", "bfloat16"))


def code(kind: str, folder: Path) -> str:
    """Return the page's code for a policy of ``kind`` and a checkpoint in ``folder``."""
    (found,) = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "CHECKPOINT" in block
    ]
    for name in ("checkpoint", "converted"):
        assert f'Path("{name}")' in found
        found = found.replace(f'Path("{name}")', repr(folder / name).removeprefix("Posix"))
    return found.replace("pi05", kind).replace("PI05", kind.upper())


def measure_conversion_error(remote: Callable[..., Any], kind: str, dtype: str, folder: Path) -> dict[str, float]:
    """Return how far LeRobot's actions are from openpi's, as a share of their size: the model's, and in robot's units.

    Args:
        remote: calls a method of openpi's worker.
        dtype: of both models; openpi writes its weights in it.
        folder: an empty one.
    """
    from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors

    (folder / "checkpoint").mkdir()
    sizes = {**SIZES, "vision": {**SIZES["vision"], "image_size": SIDE}}
    remote("build", sizes, dtype, SIDE, "", kind == "pi05")
    remote("save", str(folder / "checkpoint"), "droid", 1)
    with stand_ins(kind, random_weights=True, tiny=True), building(make_policy_config(kind, device="cpu"), True):
        exec(code(kind, folder).replace('dtype="float32"', f'dtype="{dtype}"'), {})  # the page's own
        policy: Any = get_policy_class(kind).from_pretrained(folder / "converted")
        before, after = make_pre_post_processors(policy.config, pretrained_path=str(folder / "converted"))
    far = {"actions": 0.0, "in units": 0.0}
    made: list[np.ndarray] = []
    for index in range(3):
        batch, noise, place = _observation(remote, before, index)
        chunk = policy.predict_action_chunk(batch, noise=torch.from_numpy(noise))
        theirs = remote("sample", place)
        mine = chunk.float().numpy()
        made.append(mine)
        far["actions"] = max(far["actions"], _distance(mine, theirs[:, :, :ACTION]))
        in_units = remote("in_units", theirs)[:, :, :ACTION]
        far["in units"] = max(far["in units"], _distance(after(chunk).float().numpy(), in_units))
    return {**far, "another observation": min(_distance(made[0], other) for other in made[1:])}


def _observation(remote: Callable[..., Any], before: Any, index: int) -> tuple[dict[str, Any], np.ndarray, int]:
    """Show openpi an observation, the last one with two cameras.

    Returns:
        What LeRobot's preprocessor ``before`` makes of it, the noise (the same for all), and openpi's index of it.
    """
    drawn, cameras = np.random.default_rng(index), len(CAMERAS) - (index == 2)
    images = [drawn.uniform(0, 1, (1, 3, SIDE, SIDE)).astype(np.float32) for _ in CAMERAS]
    state, noise = drawn.normal(size=(1, STATE)).astype(np.float32), np.random.default_rng(9).normal(size=(1, 50, 32))
    seen = {
        f"observation.images.{name}": torch.from_numpy(image[0]) for name, image in zip(CAMERAS, images, strict=True)
    }
    seen = dict(list(seen.items())[:cameras])
    batch = before({**seen, "observation.state": torch.from_numpy(state[0]), "task": f"pick up cube {index}"})
    tokens, mask = (batch[f"observation.language.{name}"].numpy() for name in ("tokens", "attention_mask"))
    noise = noise.astype(np.float32)
    shown = [2 * image - 1 for image in images]
    count = remote("observe", shown, tokens, mask.astype(bool), noise, remote("normalised", state), cameras)
    return batch, noise, count - 1


def _distance(mine: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs))
