"""The treatments of the catalogue in a command's help, each with what it does and what of it has run nowhere yet."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.devices.untried import untried


def with_treatments(doc: str | None, argv: Sequence[str]) -> str:
    """Return the command's docstring, where ``argv`` asks for help with the keys of all treatments."""
    doc = doc or ""
    if not {"-h", "--help"} & set(argv):
        return doc
    from strobe.treatments.table import known_words

    lines = [doc.rstrip(), "", "Treatments (exact, rounding or lossy: the most they do to the actions):"]
    for entry in known_words():
        key = f"{entry.key}FIELD" if entry.key.endswith(".") else entry.key
        lines += [f"  {key} ({entry.effect})", f"      {entry.help}"]
        if words := untried(*entry.untried):
            lines.append(f"      {words}")
    return "\n".join(lines)
