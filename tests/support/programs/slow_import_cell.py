"""A cell whose imports take longer than any look at them."""

from __future__ import annotations

import time

from support.programs.acting_cell import main

__all__ = ["main"]


def prepare(study: str, argv: tuple[str, ...]) -> None:
    time.sleep(60)


if __name__ == "__main__":
    main()
