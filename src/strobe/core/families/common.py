"""Parts that the records of several families share: a transformer's probes and sizes, models made without weights."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from strobe.core.families.family import blocks
from strobe.core.timeline.probe import Probe

if TYPE_CHECKING:
    from strobe.core.timeline.layers import Call


def transformer(path: str, name: str, *, attention: str = "self_attn", mlp: str = "mlp", level: int = 2) -> list[Probe]:
    """Return the probes of a transformer's blocks at ``path``: each block, and inside of it attention and MLP.

    Args:
        name: of a block; 'layer' gives 'layer 0', 'layer 1' and so on.
        attention, mlp: names of the two modules in a block.
        level: of the blocks; their inside is one level below.
    """
    return [
        blocks(path, name, level),
        Probe.module(f"{path}.*.{attention}", "attention", level=level + 1),
        Probe.module(f"{path}.*.{mlp}", "MLP", level=level + 1),
    ]


def sizes(
    width: int, mlp: int, layers: int, heads: int, *, kv_heads: int | None = None, head_dim: int | None = None
) -> dict[str, Any]:
    """Return the sizes of a transformer by the names that configs of transformers have for them.

    Args:
        width: of the tokens, and ``mlp`` of the hidden layer behind each attention.
        layers: number of blocks, each with ``heads`` heads of attention.
        kv_heads: heads of keys and values, if these are fewer.
        head_dim: numbers of a head; None for ``width / heads``.
    """
    values: dict[str, Any] = {
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    further = {"num_key_value_heads": kv_heads, "head_dim": head_dim}
    return values | {name: value for name, value in further.items() if value is not None}


class _Loading:
    """A class as it is, but with another ``from_pretrained``."""

    def __init__(self, real: object, from_pretrained: Call) -> None:
        self.real, self.from_pretrained = real, from_pretrained

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@contextmanager
def loading(instead: Mapping[str, Call]) -> Iterator[None]:
    """Have LeRobot make models from their configs while open, where it would read their weights from the Hub.

    Args:
        instead: ``'module:Class'``, as that module of LeRobot names the class → what runs for its ``from_pretrained``.
    """
    with ExitStack() as stack:
        for place, from_pretrained in instead.items():
            name, _, attribute = place.partition(":")
            module = importlib.import_module(name)
            stand_in = _Loading(getattr(module, attribute), from_pretrained)
            stack.enter_context(mock.patch.object(module, attribute, stand_in))
        yield
