"""Does each promised rate hold? False claims and missed changes, simulated on noise as machines have it.

Each file of `simulated/` simulates one room's promises and returns them as claims: how often the product
said something, and how often it promises to say it at most (false claims) or at least (changes that are found). Noise
is independent, AR(1) with 0.5, heavy-tailed, or of two states; runs of one trend differ among themselves by up to 5 %.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable

from common.shared import finish
from rich.console import Console
from rich.table import Table
from simulated.claim import Claim

ROOMS = ("speed", "stopping", "episodes", "history", "ladders", "sweeps", "sameness", "robots", "queues")


def main() -> None:
    """Simulate the rooms that are named, all by default, and say which promises hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer simulations of each: under a minute")
    parser.add_argument("--rooms", default=",".join(ROOMS), help=f"those to simulate (default: {','.join(ROOMS)})")
    arguments = parser.parse_args()
    console = Console(width=150)
    claims: list[Claim] = []
    for room in arguments.rooms.split(","):
        begun = time.perf_counter()
        simulate: Callable[[bool], list[Claim]] = importlib.import_module(f"simulated.{room}").simulate
        claims += simulate(arguments.quick)
        console.print(f"{room}: {time.perf_counter() - begun:.0f} s")
    table = Table("promise", "noise", "promised", "found", "simulations", "")
    for claim in claims:
        found = f"{claim.hits / claim.tries:.1%}"
        table.add_row(
            claim.name,
            claim.noise,
            f"{claim.side} {claim.rate:.0%}",
            found,
            f"{claim.tries:,}",
            "" if claim.holds else "MISSED",
        )
    console.print(table)
    finish({"claims": [claim.figures() for claim in claims]}, all(claim.holds for claim in claims))


if __name__ == "__main__":
    main()
