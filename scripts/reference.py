"""The reference's pages, made from the code: commands, findings, limits, treatments and the form of every result.

    python scripts/reference.py          prints the names of the pages and their sizes

`scripts/site.py` calls `pages` while MkDocs builds. Each page is Markdown under ``reference/``.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import operator
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter

from strobe.core import slices

WHERE = "reference"


def pages() -> dict[str, str]:
    """Return every page's place on the site and its Markdown, or JSON for the schema."""
    made = {f"{WHERE}/commands/{name}.md": command_page(name) for name in _commands()}
    made[f"{WHERE}/commands.md"] = commands_page()
    made[f"{WHERE}/findings.md"] = findings_page()
    made[f"{WHERE}/limits.md"] = limits_page()
    made[f"{WHERE}/treatments.md"] = treatments_page()
    made[f"{WHERE}/results.md"] = results_page()
    made[f"{WHERE}/result.schema.json"] = json.dumps(schema(), indent=1)
    return made


def navigation() -> list[Any]:
    """Return the entries of the navigation, as mkdocs.yml would have them."""
    return [
        {"Every command": f"{WHERE}/commands.md"},
        {"Every treatment": f"{WHERE}/treatments.md"},
        {"Every finding": f"{WHERE}/findings.md"},
        {"Every limit": f"{WHERE}/limits.md"},
        {"Every result": f"{WHERE}/results.md"},
    ]


# Commands


def commands_page() -> str:
    """Return the list of all commands, as `strobe --help` has it, and the flags that all of them take."""
    from strobe.core.cli import display
    from strobe.core.slices import group_commands

    lines = ["# Every command", "", "As `strobe COMMAND --help` has them.", ""]
    for group, commands in group_commands().items():
        lines += [f"## {group}", "", "| command | answers |", "|---|---|"]
        lines += [
            f"| [`strobe {each.name}`](commands/{each.name}.md) | {escape_markdown(each.answers)} |"
            for each in commands
        ]
        lines.append("")
    lines += _flags(display.HELP)
    return "\n".join(lines).rstrip() + "\n"


def command_page(name: str) -> str:
    """Return the page of one command: its words, its examples, and its flags with their defaults."""
    text = command_help(name)
    about, _, flags = text.partition("\nFlags:\n")
    about, listed, _ = about.partition("\nTreatments (")
    lines = [f"# strobe {name}", "", *_prose(_capital(about.removeprefix(f"strobe {name}: ")))]
    if listed:
        lines += ["The treatments that a variant can have: [every treatment](../treatments.md).", ""]
    if flags:
        lines += [
            "## Flags",
            "",
            "And [those of every command](../commands.md#flags-of-every-command).",
            "",
            *_flags(flags),
        ]
    return "\n".join(lines).rstrip() + "\n"


@functools.cache
def command_help(command: str) -> str:
    """Return what ``strobe COMMAND --help`` prints."""
    return slices.load(slices.commands()[command].module).run.help("all")


def _commands() -> dict[str, str]:
    return {name: command.answers for name, command in slices.commands().items()}


def _prose(text: str) -> Iterator[str]:
    """Paragraphs of a docstring as Markdown; what is indented as it stands."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        heading = lines[0].endswith(":") and len(lines) > 1 and all(line.startswith("  ") for line in lines[1:])
        if heading:
            yield from ("", f"**{escape_markdown(lines[0].removesuffix(':'))}**", "")
            lines = lines[1:]
        if heading or lines[0].startswith("  "):
            yield from ("```text", *textwrap.dedent("\n".join(lines)).splitlines(), "```", "")
        else:
            yield from (*map(escape_markdown, lines), "")


def _flags(text: str) -> Iterator[str]:
    """The flags of a help text, each under a heading of its own, where the site's search finds it.

    ``text`` has them as `strobe.core.cli.help.help_text` writes them, or each in a line with its words. A line that is
    not indented stands above more flags.
    """
    for line in text.splitlines():
        if found := re.fullmatch(r"  (--[^\s=]+)(=\S+)?(?: \((.*)\)| {2,}(.*))?", line):
            name, value, default, about = found.groups()
            yield from ("", f"### `{name}{value or ''}` {{: #{name.lstrip('-')} }}", "")
            if default:
                yield from (f"{_capital(escape_markdown(default))}.", "")
            if about:
                yield escape_markdown(_capital(about))
        elif line.strip() and line != "Flags:":
            yield from (
                [escape_markdown(line.strip())]
                if line.startswith(" ")
                else ["", f"## {escape_markdown(line.rstrip(':'))}", ""]
            )


# Findings and their limits

FINDINGS = ("Finding", "good", "info", "warning")  # what makes one, in rules


def findings_page() -> str:
    """Return what each rule looks for, the findings that it may make, where it runs, and its limits."""
    from strobe.core.kinds import study_rules

    studies: dict[Callable[..., Any], list[str]] = {}
    for study in slices.kinds():
        for rule in study_rules(study):
            studies.setdefault(rule, []).append(study)
    modules: dict[ModuleType, list[Callable[..., Any]]] = {}
    for rule in studies:
        modules.setdefault(inspect.getmodule(rule), []).append(rule)  # type: ignore[arg-type]
    lines = [
        "# Every finding",
        "",
        "A rule looks at a finished answer and may make a finding: what was seen, why it matters, what to do, and what",
        "that should buy. Limits in small letters are flags, `--thresholds.NAME=VALUE`: [every limit](limits.md).",
        "Those in capitals are constants in the rule's file.",
        "",
    ]
    for module, rules in modules.items():
        title, _, more = _first_line(module.__doc__).removeprefix("Rules on ").rstrip(".").partition(": ")
        lines += [f"## {escape_markdown(_capital(title))}", ""]
        lines += [f"{escape_markdown(_capital(more))}.", ""] if more else []
        lines += ["| finding | what it says, or looks for | in | limits |", "|---|---|---|---|"]
        for rule in rules:
            names, limits = find_rule_outputs(rule)
            limits += [f"{name} = {value:g}" for name, value in rule_constants(rule).items()]
            about = escape_markdown(_first_line(rule.__doc__)) or " ".join(dict.fromkeys(_describe_titles(rule)))
            lines.append(
                f"| {'<br>'.join(f'`{name}`' for name in names)} | {about} "
                f"| {', '.join(dict.fromkeys(studies[rule]))} | {', '.join(f'`{limit}`' for limit in limits)} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _describe_titles(rule: Callable[..., Any]) -> Iterator[str]:
    """The titles of a rule's own findings as Markdown, with the names of what is filled in."""
    for scope, call in _finding_calls(rule):
        if scope.function.name == rule.__name__:
            title = _argument(call, "title")
            yield "".join(map(_describe_part, title.values if isinstance(title, ast.JoinedStr) else [title])) + "."


def _describe_part(part: ast.expr) -> str:
    match part:
        case ast.Constant(value=text) | ast.FormattedValue(value=ast.IfExp(orelse=ast.Constant(value=text))):
            return escape_markdown(str(text))
        case ast.FormattedValue(value=ast.Call(func=ast.Attribute(attr="plural"))):
            return "s"
    return f"*{_name_in_words(part)}*"


def _name_in_words(value: ast.expr) -> str:
    """The first name in an expression: 'measurement phase' for ``units.quote(measurement.phase)``."""
    match value:
        case ast.FormattedValue(value=inner) | ast.Call(args=[inner, *_]) | ast.GeneratorExp(elt=inner):
            return _name_in_words(inner)
        case ast.BinOp(right=inner, op=ast.Mult()) | ast.BinOp(left=inner) | ast.BoolOp(values=[inner, *_]):
            return _name_in_words(inner)
        case ast.Subscript(value=inner, slice=ast.Constant()) | ast.Subscript(slice=inner):
            return _name_in_words(inner)
        case ast.Attribute() | ast.Name():
            return re.sub(r"[._]+", " ", ast.unparse(value)).strip()
    return "…"


def limits_page() -> str:
    """Return every threshold with its default."""
    from draccus.wrappers.docstring import get_attribute_docstring

    from strobe.core.findings.thresholds import DEFAULTS, Thresholds

    about, _, units = inspect.getdoc(Thresholds).partition("\n\n")  # type: ignore[union-attr]
    lines = [
        "# Every limit",
        "",
        "Change one with `--thresholds.NAME=VALUE`.",
        "",
        escape_markdown(about),
        "",
        escape_markdown(units),
    ]
    lines += ["", "| limit | default | |", "|---|---|---|"]
    for item in dataclasses.fields(Thresholds):
        words = " ".join(get_attribute_docstring(Thresholds, item.name).comment_above.split())
        lines.append(f"| `{item.name}` | {getattr(DEFAULTS, item.name):g} | {escape_markdown(words)} |")
    return "\n".join(lines) + "\n"


def find_rule_outputs(rule: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Return the ids of the findings that ``rule`` may make, and the limits that it reads.

    Both are read from its source and from the functions that it calls. A part of an id that is known only when the rule
    runs is shown as '…'.
    """
    names = {name: None for scope, call in _finding_calls(rule) for name in scope.spell(_argument(call, "rule"))}
    limits = {
        node.attr: None
        for function in _reachable_functions(rule.__name__, _functions(inspect.getmodule(rule)))  # type: ignore[arg-type]
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "thresholds"
    }
    return list(names), list(limits)


def _finding_calls(rule: Callable[..., Any]) -> Iterator[tuple[Scope, ast.Call]]:
    """``Finding(…)`` in a rule's source: in the functions of its file that it reaches, and in others that they call."""
    module: Any = inspect.getmodule(rule)
    functions = _functions(module)
    scopes = [Scope(function, functions, module) for function in _reachable_functions(rule.__name__, functions)]
    called = {node.id for scope in scopes for node in ast.walk(scope.function) if isinstance(node, ast.Name)}
    for name in sorted(called - functions.keys()):
        each = getattr(module, name, None)
        if isinstance(each, tuple):  # rules of another study
            for listed in filter(inspect.isfunction, each):
                yield from _finding_calls(listed)
        elif inspect.isfunction(each) and each.__module__.startswith("strobe."):
            others = _functions(home := inspect.getmodule(each))  # type: ignore[arg-type]
            scopes += [Scope(others[each.__name__], others, home)] if each.__name__ in others else []
    for scope in scopes:
        for node in ast.walk(scope.function):
            made = node.func if isinstance(node, ast.Call) else None
            made = made.body if isinstance(made, ast.IfExp) else made  # (info if … else warning)(…)
            if isinstance(node, ast.Call) and isinstance(made, ast.Name) and made.id in FINDINGS:
                yield scope, node


def _argument(call: ast.Call, name: str) -> ast.expr:
    return next(keyword.value for keyword in call.keywords if keyword.arg == name)


@dataclasses.dataclass(frozen=True)
class Scope:
    """A function whose texts are read, and the functions of its file, which is ``module``."""

    function: ast.FunctionDef
    functions: Mapping[str, ast.FunctionDef]
    module: Any

    def spell(self, value: ast.expr) -> list[str]:
        """Return the texts that ``value`` may be, with '…' for what is known only when the function runs."""
        match value:
            case ast.Constant():
                return [str(value.value)]
            case ast.IfExp():
                return self.spell(value.body) + self.spell(value.orelse)
            case ast.FormattedValue():
                return self.spell(value.value)
            case ast.Call(func=ast.Attribute(value=inner, attr="replace"), args=[ast.Constant(old), ast.Constant(new)]):
                return [text.replace(str(old), str(new)) for text in self.spell(inner)]
            case ast.Attribute(attr="kind"):  # one of the kinds that the file imports
                kinds = [each for name, each in vars(self.module).items() if name.endswith("Kind")]
                return [str(text) for each in kinds for text in get_args(each)] or ["…"]
            case ast.JoinedStr():
                return ["".join(parts) for parts in itertools.product(*map(self.spell, value.values))]
            case ast.Name():
                return [text for each in self._find_values(value.id) for text in self.spell(each)] or ["…"]
        return ["…"]

    def _find_values(self, name: str) -> Iterator[ast.expr]:
        """Return the values of a name: those assigned to it, alone, in a tuple or in a loop over what is spelt out."""
        for node in ast.walk(self.function):
            match node:
                case ast.Assign(targets=[target]) | ast.NamedExpr(target=target):
                    values = [node.value]
                case ast.For(target=target, iter=ast.Tuple(elts=values)):
                    pass
                case _:
                    continue
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            for at, each in enumerate(targets):
                if isinstance(each, ast.Name) and each.id == name:
                    for value in values:
                        yield from self._elements(value, at) if isinstance(target, ast.Tuple) else [value]

    def _elements(self, value: ast.expr | None, at: int) -> Iterator[ast.expr]:
        """Return the values at one place of a tuple: spelt out, returned by a function here, or in a dictionary."""
        match value:
            case ast.Tuple(elts=elements):
                yield elements[at]
            case ast.IfExp(body=body, orelse=orelse):
                yield from (*self._elements(body, at), *self._elements(orelse, at))
            case ast.Name(id=name):
                for each in self._find_values(name):
                    yield from self._elements(each, at)
            case ast.Subscript(value=ast.Name(id=name)):
                for each in self._find_values(name):
                    for held in each.values if isinstance(each, ast.Dict) else ():
                        yield from self._elements(held, at)
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                for node in ast.walk(self.functions[name]):
                    if isinstance(node, ast.Return):
                        yield from dataclasses.replace(self, function=self.functions[name])._elements(node.value, at)


def rule_constants(rule: Callable[..., Any]) -> dict[str, float]:
    """Return the constants that ``rule`` compares what it sees with; private ones are no limits."""
    module = inspect.getmodule(rule)
    nodes = (
        node
        for function in _reachable_functions(rule.__name__, _functions(module))  # type: ignore[arg-type]
        for comparison in ast.walk(function)
        if isinstance(comparison, ast.Compare)
        for node in ast.walk(comparison)
    )
    names = [node.id for node in nodes if isinstance(node, ast.Name) and re.fullmatch(r"[A-Z][A-Z_0-9]*", node.id)]
    values = {name: getattr(module, name, None) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, int | float) and value < 1e9}


@functools.cache
def _functions(module: ModuleType) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _reachable_functions(name: str, functions: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
    """``name``'s function and those of its file that it reaches."""
    reached: dict[str, ast.FunctionDef] = {}
    left = [name]
    while left:
        current = left.pop(0)
        if current in reached or current not in functions:
            continue
        reached[current] = functions[current]
        left += [node.id for node in ast.walk(functions[current]) if isinstance(node, ast.Name)]
    return list(reached.values())


# Treatments


def treatments_page() -> str:
    """Return every treatment of the catalogue, as ``--variant``, a recipe and `strobe optimize` know it."""
    from strobe.core.devices.untried import describe_untried
    from strobe.core.treatments.catalogue import own_entries

    lines = [
        "# Every treatment",
        "",
        "Written `KEY=VALUE` in `strobe compare --variant 'NAME: KEY=VALUE, KEY.OPTION=VALUE'` and in a recipe, and",
        "put on in this order of rank. The effect is the most that a treatment does to the actions. [What they",
        "are](../treatments.md).",
        "",
        "| key | options | effect | rank | does | |",
        "|---|---|---|---|---|---|",
    ]
    for entry in sorted(own_entries(), key=lambda entry: entry.rank):
        key = f"{entry.key}FIELD" if entry.key.endswith(".") else entry.key
        options = ", ".join(f"`{entry.key}.{option}`" for option in entry.options)
        lines.append(
            f"| `{key}` | {options} | {entry.effect} | {entry.rank} | {escape_markdown(entry.help)} "
            f"| {escape_markdown(describe_untried(*entry.untried) or '')} |"
        )
    return "\n".join(lines) + "\n"


# Results


def results_page() -> str:
    """Return the fields of every class of result, from its JSON schema."""
    made = schema()
    defined = made["$defs"]
    studies = {study: ref.rsplit("/", 1)[1] for study, ref in sorted(made["discriminator"]["mapping"].items())}
    lines = [
        "# Every result",
        "",
        "`result.json` in a run's folder. Its field `study` says which of these it is; what an older version wrote is",
        "turned into this form when it is read. [The JSON schema](result.schema.json) has the same for programs.",
        "",
        "| study | form |",
        "|---|---|",
        *(f"| `{study}` | [{name}](#{name.lower()}) |" for study, name in studies.items()),
        "",
    ]
    first = list(dict.fromkeys(studies.values()))
    for name in (*first, *sorted(set(defined) - set(first))):
        form = defined[name]
        lines += [f"## {name}", "", escape_markdown(_first_line(form.get("description"))), ""]
        if fields := form.get("properties"):
            lines += ["| field | type | default | |", "|---|---|---|---|"]
            lines += [_field(key, item, key in form.get("required", ())) for key, item in fields.items()]
            lines.append("")
        elif "enum" in form:
            lines += [", ".join(f"`{value}`" for value in form["enum"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _field(name: str, item: dict[str, Any], required: bool) -> str:
    default = "" if required or "default" not in item else f"`{json.dumps(item['default'], ensure_ascii=False)}`"
    return f"| `{name}` | {_type(item)} | {default} | {escape_markdown(item.get('description', ''))} |"


def _type(item: dict[str, Any]) -> str:
    """A JSON schema's type in a few words, with links to the forms that it names."""
    if "$ref" in item:
        name = item["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in item:
            return " or ".join(dict.fromkeys(map(_type, item[several])))
    if "const" in item:
        return f"`{json.dumps(item['const'])}`"
    if "enum" in item:
        return ", ".join(f"`{json.dumps(value)}`" for value in item["enum"])
    kind = item.get("type", "any")
    if kind == "array":
        if "prefixItems" in item:
            return f"({', '.join(map(_type, item['prefixItems']))})"
        return f"list of {_type(item.get('items', {}))}"
    if kind == "object" and isinstance(item.get("additionalProperties"), dict):
        return f"name → {_type(item['additionalProperties'])}"
    return str(kind)


def schema() -> dict[str, Any]:
    classes = tuple(slices.load(kind.answer) for kind in slices.kinds().values())
    any_answer: Any = Annotated[functools.reduce(operator.or_, classes), Field(discriminator="study")]
    return TypeAdapter(any_answer).json_schema()


def _first_line(text: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def escape_markdown(text: str) -> str:
    """``text`` as Markdown that shows it as it is; what stands in backticks stays code."""
    pieces = re.split(r"(``.+?``|`[^`]+`)", text)
    for i, piece in enumerate(pieces):
        pieces[i] = piece.replace("|", r"\|") if i % 2 else re.sub(r"([\\*_\[\]<>|#])", r"\\\1", piece)
    return "".join(pieces).replace("\\>", "&gt;").replace("\\<", "&lt;")


if __name__ == "__main__":
    for place, text in pages().items():
        print(f"{len(text):8,}  {place}")
