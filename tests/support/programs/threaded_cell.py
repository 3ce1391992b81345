"""A cell whose imports leave a thread behind, as a library may: nothing that can be forked."""

from __future__ import annotations

import threading

from support.programs.acting_cell import main

__all__ = ["main"]


def prepare(study: str, argv: tuple[str, ...]) -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


if __name__ == "__main__":
    main()
