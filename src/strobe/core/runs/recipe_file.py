"""A recipe's file: YAML that people read and change by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError
from yaml.constructor import ConstructorError

from strobe.core.errors import UserError, nearest
from strobe.core.results.agreement import Agreement
from strobe.core.results.recipe import VERSION, Recipe, RecipeEpisodes, RecipeRung
from strobe.core.runs.store import replace
from strobe.core.untrusted import contents

NAME = "recipe.yaml"  # name in the folder of a run
HEADER = """\
# A recipe of Strobe: treatments that make a policy of the type {policy} faster, in the order they were found in.
#
#   strobe breakdown --policy.path=FOLDER_OR_HUB_ID --recipe={name}
#   policy, preprocessor, postprocessor = strobe.load_policy("FOLDER_OR_HUB_ID", "{name}")
#
# Change the treatments by hand if you like: `strobe compare --help` lists them. A policy that they take further from
# the baseline than `guard` allows is not loaded.
"""

HEADER_OF_OBJECT = """\
# A recipe of Strobe: treatments that make an object of the class {object} faster, in the order they were found in.
#
#   strobe breakdown --policy.factory=FILE.py:make --recipe={name}
#   policy = strobe.apply_recipe("{name}", policy)
#
# Change the treatments by hand if you like: `strobe compare --help` lists them. `strobe verify` says whether the
# outputs keep to `guard`.
"""

MOST_BYTES = 2**18  # size of a recipe: YAML takes seconds to read a megabyte
_ALWAYS = ("version", "policy", "size", "treatments")  # written even if empty


def load(path: Path | str) -> Recipe:
    """Read a recipe. Raises UserError with the path and the field if the file is not a valid recipe."""
    document = read_yaml(Path(path), "recipe", MOST_BYTES)
    if not isinstance(document, dict):
        raise UserError(f"{path} is not a recipe: it has no fields such as policy and treatments")
    version = document.get("version", VERSION)
    if version != VERSION or isinstance(version, bool):
        raise UserError(f"{path}: version: this Strobe cannot read {version}, it reads {VERSION}")
    try:
        return Recipe.model_validate(document)
    except ValidationError as error:
        raise UserError(f"{path}: {_first(error)}") from None


def dump(recipe: Recipe, path: Path | str) -> None:
    """Write ``recipe`` as YAML, completely or not at all. Raises UserError if it cannot be written."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, text(recipe, path.name).encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None


def text(recipe: Recipe, name: str) -> str:
    """Return ``recipe`` as YAML, below a comment on how a file called ``name`` is loaded."""
    document = recipe.model_dump(mode="json")
    document["rungs"] = [_Line({k: v for k, v in rung.items() if v is not None}) for rung in document["rungs"]]
    if recipe.agreement is not None:
        document["agreement"] = recipe.agreement.model_dump(mode="json", exclude_defaults=True)
    body = yaml.dump(
        {name: value for name, value in document.items() if name in _ALWAYS or value not in (None, "", [], {})},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
    )
    header = HEADER_OF_OBJECT if recipe.object else HEADER
    about = header.format(policy=_plain(recipe.policy), object=_plain(recipe.object), name=_plain(name))
    return f"{about}\n{body}"


class _Line(dict[str, object]):
    """A mapping that is written in one line, so that the mappings of a list read as a table."""


class _Dumper(yaml.SafeDumper):
    pass


class _Loader(yaml.SafeLoader):
    """Refuses a duplicate key, of which YAML would silently take the last, and anchors: a few make gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise ConstructorError(None, None, "anchors are not read", self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        keys = Counter(str(key.value) for key, _ in node.value)
        if twice := [key for key, times in keys.items() if times > 1]:
            raise ConstructorError(None, None, f"'{twice[0]}' is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # Line ends of Unicode are lost in every other style.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_Line, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, True))


def read_yaml(path: Path, what: str, most: int) -> object:
    """Return the content of a file, called ``what`` in errors, of at most ``most`` bytes. Raises UserError."""
    try:
        return yaml.load(contents(path, most), Loader=_Loader)
    except OSError as error:
        raise UserError(f"cannot read the {what} {path}: {(error.strerror or str(error)).lower()}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # an invalid date is a ValueError
        problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise UserError(f"{path} is not YAML: {where}{_plain(str(problem or error))}") from None


def _first(error: ValidationError) -> str:
    errors = error.errors(include_url=False)
    unknown = [fault for fault in errors if fault["type"] == "extra_forbidden"]
    first = (unknown or errors)[0]
    at = list(first["loc"])
    if first["type"] == "extra_forbidden":
        inner = {"rungs": RecipeRung, "agreement": Agreement, "episodes": RecipeEpisodes}
        model = inner.get(str(at[0]) if len(at) > 1 else "", Recipe)
        return f"{_path(at)}: no such field: {nearest(str(at[-1]), model.model_fields)}"
    if first["type"] == "missing":
        return f"{_path(at)}: missing"
    if at[0] == "treatments" and len(at) > 1:
        rule = "a treatment is KEY: VALUE, with a number, a text, true or false"
        return f"{_path(at[:3] if len(at) > 2 else at)}: {rule}"
    return f"{_path(at)}: {first['msg'][:1].lower()}{_plain(first['msg'][1:])}"


def _path(location: Sequence[object]) -> str:
    """Return the place of a value, counted from 1 as the rungs are."""
    return ".".join(str(part + 1) if isinstance(part, int) else _plain(str(part)) for part in location)


def _plain(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:200]
