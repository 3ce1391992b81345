"""A vocabulary of two tables, read from each where LeRobot first joins them to one, on every call.

MolmoAct2 keeps its additional words in a table of their own. To look words up it joins both: a copy of the whole
vocabulary, 0.8 GB in bfloat16, for some hundred rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from strobe.subjects.subject import Subject
from strobe.treatments.flow.places import deriving
from strobe.treatments.parts import parts_of
from strobe.treatments.patch import Patches
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import Undo, policy_of


@dataclass
class TablesApart(Switch, key="word_tables", of=lambda family: family.word_tables):
    """Each word's row comes from the table that has it. Where gradients are wanted the tables are joined."""

    def apply(self, subject: Subject) -> Undo:
        self.require(subject)
        table: Any = policy_of(subject).policy.get_submodule(subject.family.word_tables)
        patches = Patches()

        def apart(forward: Any) -> Any:
            return lambda words: forward(words) if deriving() else _rows(table, words)

        patches.wrap(table, "forward", apart)
        return patches.undo


def _rows(table: Any, words: Tensor) -> Tensor:
    """Return the rows of ``words`` (...), (..., width), without a look at their values on the host."""
    first, further = table.embedding, table.new_embedding
    count = first.shape[0]
    rows = functional.embedding(words.clamp(max=count - 1), first)
    others = functional.embedding((words - count).clamp(min=0), further)
    return torch.where((words >= count).unsqueeze(-1), others, rows)


ENTRY = TablesApart.entry(parts=lambda subject, _: parts_of(subject, (subject.family.word_tables,)))
