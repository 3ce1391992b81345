"""Which policy or backbone to load, and what to feed it: options that users give as flags, and checks of folders.

Imports neither torch nor LeRobot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from strobe.core.errors import UserError
from strobe.core.untrusted import parse_json

if TYPE_CHECKING:
    import torch

Size = Literal["full", "tiny"]


@dataclass
class PolicyOptions:
    """A policy: a checkpoint, or a type with random weights, and settings of its config (``--chunk_size=50`` …)."""

    # A checkpoint: its folder, or its name on the Hub. demo is the small trained policy that comes with Strobe, unless
    # there is a folder called demo; evaluate and tune know its simulator.
    path: str | None = None
    # A kind of policy, built with random weights: act, diffusion, pi05, smolvla …
    type: str | None = None
    # The size of a policy that is built: full or tiny.
    size: Size = "full"
    overrides: list[str] = field(default_factory=list)


@dataclass
class ModelOptions:
    """A backbone of transformers, its clips, and settings of its config (``--hidden_size=64`` …)."""

    # A checkpoint of transformers: its folder, or its name on the Hub.
    path: str | None = None
    # A kind of backbone, built with random weights: vjepa2, vit, dinov2, videomae …
    type: str | None = None
    # The size of a V-JEPA 2 that is built: tiny, large, huge, giant or giant-384.
    size: str | None = None
    # Height and width of its images in pixels.
    img_size: int | None = None
    # Frames in a clip.
    num_frames: int | None = None
    # The weights' format, such as bfloat16.
    dtype: str | None = None
    # Also run V-JEPA 2's predictor.
    predictor: bool = False
    overrides: list[str] = field(default_factory=list)


@dataclass
class FactoryOptions:
    """A policy of any project, which a function in Python makes.

    ``path`` and ``type`` are those of a LeRobot policy, and None.
    """

    # A function that makes the policy: package.module:make, or path/to/file.py:make. It takes no arguments. It returns
    # the policy and what to call it with: (policy, observation) or (policy, [observation, …]).
    factory: str = ""
    path: None = None
    type: None = None


@dataclass
class InputOptions:
    """Where observations or clips come from; synthetic ones without a dataset, an environment or a video.

    Args:
        dataset: LeRobot's ``DatasetConfig``, of which root, repo_id, episodes and video_backend count.
        env: LeRobot's ``EnvConfig``. With a dataset too the inputs are the dataset's, and the policy must fit both.
        video: a file to decode clips from, for a backbone.
        image_size: height and width of synthetic images in pixels, before preprocessing; None for the usual.
        cameras: number of synthetic cameras; None for the usual.
        vectors: numbers of values in the synthetic robot's state and action, by LeRobot's name; {} for the usual.
        rename: names in the inputs → names that the policy knows.
    """

    dataset: Any = None
    env: Any = None
    video: Path | None = None
    image_size: tuple[int, int] | None = None
    cameras: int | None = None
    vectors: dict[str, int] = field(default_factory=dict)
    rename: dict[str, str] = field(default_factory=dict)


def split_factory(text: str) -> tuple[str, str]:
    """Return the module, or the file that ends in .py, and the function that ``--policy.factory`` names.

    Raises:
        UserError: it names no function, or a file that is not there.
    """
    where, colon, name = text.rpartition(":")
    if not (colon and where and name and all(step.isidentifier() for step in name.split("."))):
        raise UserError(
            f"--policy.factory={text}: must be package.module:function or path/to/file.py:function, a function that "
            "returns the policy"
        )
    if where.endswith(".py"):
        if not Path(where).is_file():
            raise UserError(f"--policy.factory={text}: there is no file {where}")
    elif not all(step.isidentifier() for step in where.split(".")):
        raise UserError(
            f"--policy.factory={text}: '{where}' is neither the name of a module nor a file that ends in .py"
        )
    return where, name


# Checks of the folders of checkpoints and data sets, by the files in them.

WEIGHTS = ("model.safetensors", "adapter_model.safetensors")


def check_checkpoint(path: str | Path, what: str = "policy", *, called: str | Path | None = None) -> None:
    """Check a path that can only be a checkpoint's folder; a name that may be the Hub's passes.

    Args:
        what: the word for it in messages.
        called: its name in messages; None for the path.

    Raises:
        UserError: the folder is missing, or lacks its config or its weights.
    """
    folder, name = Path(path), str(called if called is not None else path)
    if not folder.is_dir():
        if name.count("/") != 1 or name.startswith((".", "/", "~")):
            raise UserError(f"there is no folder {name}; use a {what}'s folder or its Hub id (owner/name)")
        return
    if not (folder / "config.json").is_file():
        inner = folder / "pretrained_model"
        hint = f"; did you mean {inner}?" if (inner / "config.json").is_file() else ""
        raise UserError(f"no {what} at {name}: there is no config.json in it{hint}")
    weighed = any((folder / file).is_file() for file in WEIGHTS) or any(folder.glob("*.safetensors.index.json"))
    if not weighed:
        raise UserError(f"the {what} at {name} has no weights: there is no model.safetensors next to its config.json")


def checkpoint_policy_type(path: str | Path) -> str | None:
    """Return the type of policy in a checkpoint's config; None without a type, or without a folder."""
    try:
        config = parse_json((Path(path) / "config.json").read_text())
    except (OSError, ValueError):
        return None
    kind = config.get("type") if isinstance(config, dict) else None
    return kind if isinstance(kind, str) else None


def check_dataset(root: str | Path) -> None:
    """Raise UserError if no LeRobotDataset is at ``root``."""
    where = Path(root)
    if not (where / "meta" / "info.json").is_file():
        what = "has no meta/info.json in it" if where.is_dir() else "is not a folder"
        raise UserError(f"no LeRobotDataset at {where}: it {what}; use the folder with data/, meta/ and videos/")


def find_device(subject: PolicyOptions | ModelOptions | FactoryOptions, named: str | None) -> torch.device | None:
    """Return where ``subject`` will run; None where only its checkpoint or its function knows. Imports torch.

    ``named`` is the value of --device. Raises UserError for a device that is not here.
    """
    from lerobot.utils.device_utils import auto_select_torch_device
    from torch import device

    from strobe.core.devices.accelerators import check_device

    own = [text.partition("=")[2] for text in getattr(subject, "overrides", ()) if text.startswith("--device=")]
    named = own[-1] if own else named
    check_device(named)
    if named is not None or isinstance(subject, ModelOptions):
        return device(named or "cpu")
    chosen = auto_select_torch_device()
    return chosen if chosen.type == "cpu" or subject.type else None
