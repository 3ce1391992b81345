"""Read a policy's weights from a folder or the Hub, and verify that the policy has them.

LeRobot's pi0 and pi0.5 print the failure and return random weights; here it is an error.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from safetensors import SafetensorError
from torch import nn

from strobe.core import demo
from strobe.core.errors import UserError
from strobe.core.results import units
from strobe.lerobot.policies.options import check_checkpoint
from strobe.lerobot.policies.standins import hub_reachable
from strobe.lerobot.refusals import is_hub_error

if TYPE_CHECKING:
    from lerobot.configs import PreTrainedConfig


@dataclass
class ReadNames:
    """Names of weights, as a policy was read from its file.

    Args:
        missing: that the policy has and the file has not; those that are tied to one that was read are not among them.
        unexpected: that the file has and the policy has not.
        reshaped: that the file has in another shape.
    """

    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    reshaped: list[str] = field(default_factory=list)


class UnreadWeightsError(UserError):
    """Weights of a policy that its checkpoint does not hold, or holds in another shape."""

    def __init__(self, message: str, names: ReadNames) -> None:
        super().__init__(message)
        self.names = names


def read_config(folder: Path, overrides: Sequence[str] = ()) -> PreTrainedConfig:
    """Return the config in ``folder`` as LeRobot reads it, and remove the copy that LeRobot 0.6.1 parses and leaves.

    That copy is in the temporary folder.
    """
    from lerobot.configs import PreTrainedConfig, policies

    made: list[str] = []

    def make_recorded_file(*args: Any, **options: Any) -> Any:
        file = tempfile.NamedTemporaryFile(*args, **options)  # noqa: SIM115  # LeRobot closes it
        made.append(file.name)
        return file

    theirs = SimpleNamespace(**{**vars(tempfile), "NamedTemporaryFile": make_recorded_file})
    try:
        with mock.patch.object(policies, "tempfile", theirs, create=True):
            return PreTrainedConfig.from_pretrained(folder, cli_overrides=list(overrides))
    finally:
        for file in made:
            Path(file).unlink(missing_ok=True)


def locate(path: str | Path, revision: str | None = None, *, what: str = "policy") -> Path:
    """Return the local folder of a checkpoint: ``path`` itself, or the snapshot of a Hub id, fetched if need be.

    ``what`` is the word for it in messages.

    Raises UserError if it does not exist, or lacks its config or its weights.
    """
    path = demo.demo_folder(path) if what == "policy" else path
    check_checkpoint(path, what)
    if Path(path).is_dir():
        return Path(path)
    folder = _snapshot(str(path), revision, what)
    check_checkpoint(folder, what, called=path)
    return folder


def _snapshot(name: str, revision: str | None, what: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    def get(local: bool) -> Path:
        patterns = ["*.json", "*.safetensors"]
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=local))

    try:
        with contextlib.suppress(LocalEntryNotFoundError):
            return get(local=True)
        if not hub_reachable():
            raise UserError(f"there is no folder {name}, and the Hub cannot be reached to find a {what} of that name")
        return get(local=False)
    except (HFValidationError, HfHubHTTPError, OSError) as error:
        raise UserError(f"no {what} {name}, neither a folder nor on the Hub: {str(error).splitlines()[0]}") from error


def source(folder: Path) -> str:
    """Return the user's name for the checkpoint: the Hub id for a snapshot in the cache, 'demo', else the folder."""
    if folder == demo.CHECKPOINT:
        return demo.NAME
    for part in folder.parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    return str(folder)


@contextlib.contextmanager
def watch_loading(kind: type[nn.Module], folder: Path) -> Iterator[ReadNames]:
    """Watch a ``kind`` being loaded from ``folder``. Yields the names of its weights, which loading fills in.

    Raises:
        UserError: a weight was not read from it; `UnreadWeightsError` where it is known which.
    """
    plain = nn.Module.load_state_dict
    outcome: list[str] = ["its weights were not read"]
    names = ReadNames()

    def load_state_dict(self: nn.Module, state_dict: Any, strict: bool = True, assign: bool = False) -> object:
        try:
            # Never strict: tied weights are saved once, and LeRobot silently gives up for the other name.
            keys = plain(self, state_dict, strict=False, assign=assign)
        except RuntimeError as error:
            outcome[0] = next((ln.strip() for ln in str(error).splitlines() if "size mismatch" in ln), str(error))
            own = self.state_dict()
            names.reshaped = [name for name, new in state_dict.items() if name in own and new.shape != own[name].shape]
            names.missing = _really_missing(self, sorted(set(own) - set(state_dict)))
            raise
        names.missing, names.unexpected = _really_missing(self, keys.missing_keys), list(keys.unexpected_keys)
        lacking = names.missing
        lack = f"{units.count(len(lacking), 'weight')} {'is' if len(lacking) == 1 else 'are'} missing"
        outcome[0] = f"{lack}, the first is {lacking[0]}" if lacking else ""
        return keys

    with mock.patch.object(kind, "load_state_dict", load_state_dict):
        try:
            yield names
        except (RuntimeError, KeyError, OSError, SafetensorError) as error:
            if not outcome[0] or is_hub_error(error):
                raise
            reason = outcome[0] if "never" not in outcome[0] else str(error).splitlines()[0]
            raise _unread(folder, kind, reason, names) from error
    if outcome[0]:
        raise _unread(folder, kind, outcome[0], names)


def _unread(folder: Path, kind: type, reason: str, names: ReadNames) -> UserError:
    message = (
        f"the weights in {source(folder)} do not fit {kind.__name__} ({reason}); check that config.json "
        "and model.safetensors belong together and that no --policy flag changes the architecture"
    )
    return UnreadWeightsError(message, names) if names.missing or names.reshaped else UserError(message)


def _really_missing(module: nn.Module, missing: list[str]) -> list[str]:
    storages = {k: v.untyped_storage()._cdata for k, v in module.state_dict(keep_vars=True).items()}
    read = {storage for key, storage in storages.items() if key not in missing}
    return [key for key in missing if storages.get(key) not in read]
