"""The last block of a denoising transformer for the rows that are read: those of the actions.

A policy without a prefix cache runs actions and context through every block of every step. Of the last block it reads
the actions' rows alone. The context still gives that block keys and values; its attention's output and its MLP are
computed for nothing. Of X-VLA's 228 rows 32 are read, and two thirds of a block's arithmetic go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strobe.subjects.subject import Subject
from strobe.treatments.flow.places import deriving
from strobe.treatments.parts import STEP
from strobe.treatments.patch import Patches
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import Undo


@dataclass
class ReadRows(Switch, key="last_block", of=lambda family: family.last_block):
    """The last block's output is (B, rows, width), with as many rows as the policy's record says are read."""

    def apply(self, subject: Subject) -> Undo:
        self.require(subject)
        record = subject.family.last_block
        assert record is not None
        module: Any = subject.module
        last, rows, narrowed = module.get_submodule(record.blocks)[-1], record.rows(module.config), record.narrowed

        def around(forward: Any) -> Any:
            return lambda x: forward(x) if deriving() else narrowed(last, x, rows)

        patches = Patches()
        patches.wrap(last, "forward", around)
        return patches.undo


ENTRY = ReadRows.entry(parts=(STEP,))
