"""Imported last by the server that the doctor's processes are forked from: would they be as good as fresh ones?"""

from __future__ import annotations

from strobe.measure.forkable import TASKS, unfit

WHY = unfit() if TASKS.is_dir() else ""  # in words, why not; '' where they would
