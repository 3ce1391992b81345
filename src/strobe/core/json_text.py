"""JSON that a file or a peer wrote."""

from __future__ import annotations

import json
from typing import Any

JsonObject = dict[str, Any]  # what a JSON object becomes in Python


def parse_json(text: str | bytes) -> Any:
    """Return what ``text`` says. Raises ValueError for what is no JSON, or is nested deeper than Python can follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
