"""The texts in source code that users may read."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def literals(tree: ast.AST) -> Iterator[str]:
    """Yield the texts in ``tree`` that are no docstrings, with … for what is filled in."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(value) for value in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value
