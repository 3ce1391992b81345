"""Check folders of checkpoints and datasets by the files in them. Needs neither torch nor LeRobot."""

from __future__ import annotations

import json
from pathlib import Path

from strobe.errors import UserError

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
            raise UserError(f"there is no folder {name}; give a {what}'s folder or its Hub id (owner/name)")
        return
    if not (folder / "config.json").is_file():
        inner = folder / "pretrained_model"
        hint = f"; did you mean {inner}?" if (inner / "config.json").is_file() else ""
        raise UserError(f"no {what} at {name}: there is no config.json in it{hint}")
    weighed = any((folder / file).is_file() for file in WEIGHTS) or any(folder.glob("*.safetensors.index.json"))
    if not weighed:
        raise UserError(f"the {what} at {name} has no weights: there is no model.safetensors beside its config.json")


def type_of(path: str | Path) -> str | None:
    """Return the type of policy in a checkpoint's config; None without a type, or without a folder."""
    try:
        config = json.loads((Path(path) / "config.json").read_text())
    except (OSError, ValueError):
        return None
    kind = config.get("type") if isinstance(config, dict) else None
    return kind if isinstance(kind, str) else None


def check_dataset(root: str | Path) -> None:
    """Raise UserError if no LeRobotDataset is at ``root``."""
    where = Path(root)
    if not (where / "meta" / "info.json").is_file():
        what = "has no meta/info.json in it" if where.is_dir() else "is not a folder"
        raise UserError(f"no LeRobotDataset at {where}: it {what}; give the folder that holds data/, meta/ and videos/")
