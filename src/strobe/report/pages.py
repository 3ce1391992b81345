"""The ground of every HTML page: its template, its data, and the hash by which its policy knows a script."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

HERE = Path(__file__).parent


@cache
def template(name: str) -> jinja2.Template:
    """Return the template in the file ``name`` of this package; whatever it is given is escaped."""
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def part(name: str) -> str:
    """Return the content of the file ``name`` of this package: a script, a style."""
    return (HERE / name).read_text(encoding="utf-8")


def hashed(source: str) -> str:
    """Return a script's hash, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def as_json(data: object) -> Markup:
    """Return JSON for a script element, which ``</script>`` in a string must not end."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
