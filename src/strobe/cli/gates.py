"""The gates of speed of `strobe diff` and `strobe history`: their flags, their closing lines, their exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from strobe.cli.arguments import percent
from strobe.report import units
from strobe.results.agreement import Outcome
from strobe.studies.gates import Gated

EXIT_CODES: dict[Outcome, int] = {"held": 0, "broken": 1, "not judged": 3}
WORDS: dict[Outcome, str] = {"broken": "regression", "not judged": "not judged", "held": "held"}


def gate_flags(parser: argparse.ArgumentParser, about: str) -> None:
    """Add ``--fail-on-regression[=PERCENT]``, None where it is not given and 0 where it is bare, and its exception."""
    parser.add_argument("--fail-on-regression", type=percent, metavar="PERCENT", nargs="?", const=0.0, help=about)
    parser.add_argument(
        "--allow-not-judged",
        action="store_true",
        help="with --fail-on-regression: exit with 0 where the samples cannot tell, too",
    )


def bare(argv: Sequence[str]) -> list[str]:
    """``argv`` for a parser with `gate_flags`: bare, the flag must not take what follows it for its percentage."""
    return ["--fail-on-regression=0" if argument == "--fail-on-regression" else argument for argument in argv]


def close(gated: Sequence[Gated], allow_not_judged: bool) -> int:
    """Print how each measurement fared, the broken first. Return the exit code: 0, 1 (a regression), 3 (not judged)."""
    print()
    for outcome, word in WORDS.items():
        for one in gated:
            if one.outcome == outcome:
                print(units.plain(f"{word}: {one.what}{f': {one.why}' if one.why else ''}"))
    outcomes = {one.outcome for one in gated}
    if "broken" in outcomes:
        return EXIT_CODES["broken"]
    return EXIT_CODES["not judged"] if "not judged" in outcomes and not allow_not_judged else 0
