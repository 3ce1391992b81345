"""The texts in source code that users may read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from strobe.core.findings.texts import Texts, blank_fields


def literals(tree: ast.AST) -> Iterator[str]:
    """Yield the texts in ``tree`` that are no docstrings, and those of findings, with … for what is filled in."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_is_finding(each) for each in node.decorator_list):
            condition: Any = SimpleNamespace(__doc__=ast.get_docstring(node))
            yield from (blank_fields(text) for text in Texts("", "", condition).texts.values())
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(value) for value in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def _is_finding(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "finding"
