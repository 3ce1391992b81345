"""What Strobe saves for this user on this machine, outside the runs: data for later runs, and the key of a seal.

The folder of the data may be deleted at any time. A seal on what Strobe wrote tells a run of one's own from a
stranger's. What a run's file names (a policy, arguments of LeRobot) is used as it stands only under the seal. The key
never leaves the machine, so nobody else can seal.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

KEY_BYTES = 32


def cache_folder() -> Path:
    """Return STROBE_CACHE, else ``strobe`` in XDG_CACHE_HOME or ``~/.cache``. It need not exist."""
    if own := os.environ.get("STROBE_CACHE"):
        return Path(own)
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "strobe"


def compute_seal(data: Mapping[str, object]) -> str:
    """Return the seal on ``data``, values of JSON; '' if the key can be neither read nor written."""
    key = _key(make=True)
    return "" if key is None else _digest(key, data)


def is_sealed(data: Mapping[str, object], seal: str) -> bool:
    """Return whether ``seal`` was made on ``data`` with this user's key."""
    key = _key(make=False)
    # In bytes: of text it takes ASCII alone, and a stranger's seal may be any text.
    return key is not None and hmac.compare_digest(_digest(key, data).encode(), seal.encode(errors="replace"))


def _digest(key: bytes, data: Mapping[str, object]) -> str:
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """Return the user's key; None if there is none, or none can be made."""
    users = os.environ.get("XDG_STATE_HOME")
    file = (Path(users) if users else Path.home() / ".local" / "state") / "strobe" / "seal.key"
    try:
        if make and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            # Whole before it has its name: two runs that begin together seal with one key.
            draft = file.with_name(f"{file.name}.{os.getpid()}")
            draft.touch(mode=0o600)
            draft.write_bytes(secrets.token_bytes(KEY_BYTES))
            try:
                os.link(draft, file)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        key = file.read_bytes()
    except OSError:
        return None
    return key if len(key) == KEY_BYTES else None
