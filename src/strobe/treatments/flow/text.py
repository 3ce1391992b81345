"""A task's words: read once by their encoder, and looked up without a copy of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_map_only

from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Undo
from strobe.lerobot.sampling import Words, WordTables
from strobe.treatments.graphs.host_work import is_in_region
from strobe.treatments.parts import deriving, parts_at, require_capability, weights_seen

# A text encoder reads each task once: its answer is the same in all chunks of an episode.
# FastWAM runs UMT5-XXL, 5.7 billion parameters, over 128 tokens in every chunk. Its answer for a task is kept while
# the encoder's weights are the same.


_MOST = 8  # tasks that are remembered; a robot has one at a time, and a comparison a few


@dataclass
class _Encoded:
    """The arguments of a call, and what the encoder made of them: a tensor or a tuple of tensors."""

    given: object
    made: object


@dataclass
class WordsOnce(Switch, key="words", of=Words):
    """The text encoder runs for a task that it has not read yet; otherwise a copy of its earlier answer is given."""

    _encoded: list[_Encoded] = field(default_factory=list, init=False, repr=False)
    _weights: tuple[tuple[int, int, torch.dtype], ...] | None = field(default=None, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        record = require_capability(subject, Words, self.key)
        encoder, (path, method) = record.encoder(subject.module), record.encoding
        patches = Patches()

        def wrap_call(encode: Call) -> Call:
            def call(*args: object, **kwargs: object) -> object:
                # A graph or a compiled program cannot look at the words, and would hold one task's for ever.
                if deriving() or is_in_region() or torch.compiler.is_compiling():
                    return encode(*args, **kwargs)
                given, weights = (args, kwargs), weights_seen(encoder)
                if weights != self._weights:
                    self._encoded.clear()
                    self._weights = weights
                known = next((encoded for encoded in self._encoded if _equal_arguments(encoded.given, given)), None)
                if known is None:
                    known = _Encoded(_copy(given), _copy(encode(*args, **kwargs)))
                    self._encoded[:] = [*self._encoded[1 - _MOST :], known]
                return _copy(known.made)

            return call

        patches.wrap(attrgetter(path)(subject.module), method, wrap_call)
        return patches.undo


def _equal_arguments(arguments: object, other: object) -> bool:
    (mine, form), (theirs, other_form) = tree_flatten(arguments), tree_flatten(other)
    return form == other_form and all(map(_same, mine, theirs))


def _same(value: object, other: object) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        kinds = [(tensor.dtype, tensor.device, tensor.shape) for tensor in (value, other)]
        return kinds[0] == kinds[1] and torch.equal(value, other)
    return type(value) is type(other) and value == other


def _copy(held: object) -> object:
    return tree_map_only(Tensor, Tensor.clone, held)


ONCE = WordsOnce.entry(parts=("text encoder",))


# A vocabulary of two tables, read from each where LeRobot first joins them to one, on every call.
# MolmoAct2 keeps its additional words in a table of their own. To look words up it joins both: a copy of the whole
# vocabulary, 0.8 GB in bfloat16, for some hundred rows.


@dataclass
class TablesApart(Switch, key="word_tables", of=WordTables):
    """Each word's row comes from the table that has it. Where gradients are wanted the tables are joined."""

    def apply(self, subject: Subject) -> Undo:
        table: Any = subject.module.get_submodule(require_capability(subject, WordTables, self.key).path)
        patches = Patches()

        def from_two_tables(forward: Call) -> Call:
            return lambda words: forward(words) if deriving() else _rows(table, words)

        patches.wrap(table, "forward", from_two_tables)
        return patches.undo


def _rows(table: Any, words: Tensor) -> Tensor:
    first, further = table.embedding, table.new_embedding
    count = first.shape[0]
    rows = functional.embedding(words.clamp(max=count - 1), first)
    others = functional.embedding((words - count).clamp(min=0), further)
    return torch.where((words >= count).unsqueeze(-1), others, rows)


TABLES = TablesApart.entry(parts=parts_at(WordTables, lambda tables: tables.path))
