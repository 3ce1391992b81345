"""A record of one pass: samples of the tensors that each step and module is given and gives."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

_MOST_BYTES = 400e6  # size of all samples; later ones have FEW elements each
_FEW = 256
_MOST_TENSORS = 8  # most tensors of one call


class Record:
    """Tensors in the order in which they came, each as a sample of at most ``elements`` numbers, evenly spread.

    An entry has: group, name of the step or module, what of it, call (from 1), shape and dtype; of whole
    numbers a digest of all of them.
    """

    def __init__(self, elements: int) -> None:
        self._elements, self._bytes = elements, 0
        self._entries: list[dict[str, object]] = []
        self._arrays: dict[str, np.ndarray] = {}

    def add(self, group: str, name: str, what: str, value: object, call: int = 1) -> None:
        """Add the tensors in ``value``, and its texts as they are."""
        for path, leaf in nested_entries(convert_to_nested(value))[:_MOST_TENSORS]:
            label = " ".join(word for word in (what, path) if word)
            entry = {"group": group, "name": name, "what": label, "call": call}
            if isinstance(leaf, torch.Tensor):
                self._sample(entry, leaf.detach())
            elif isinstance(leaf, (str, int, float, bool)):
                entry.update(shape=[], dtype="text", text=str(leaf))
            else:
                continue
            self._entries.append(entry)

    def tensors(self, group: str, name: str, named: list[tuple[str, object]]) -> None:
        """Add tensors that have names."""
        for what, tensor in named:
            self.add(group, name, what, tensor)

    @contextlib.contextmanager
    def modules(self, policy: Any) -> Iterator[None]:
        """Inside, add what each module below ``policy`` is given and gives."""
        calls: Counter[str] = Counter()
        handles = []

        def input_hook(name: str) -> object:
            def hook(_: object, args: Any, kwargs: Any) -> None:
                calls[name] += 1
                self.add("policy", name, "given", {**dict(enumerate(args)), **kwargs}, calls[name])

            return hook

        def output_hook(name: str) -> object:
            def hook(_: object, __: object, ___: object, output: object) -> None:
                self.add("policy", name, "gives", output, calls[name])

            return hook

        for name, module in policy.named_modules():
            if name and not isinstance(module, torch.jit.ScriptModule):
                handles.append(module.register_forward_pre_hook(input_hook(name), with_kwargs=True))
                handles.append(module.register_forward_hook(output_hook(name), with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def write(self, to: Path) -> None:
        """Write ``to`` with the samples, and a JSON file of the entries next to it."""
        np.savez(to, **self._arrays)  # type: ignore[arg-type]
        to.with_suffix(".json").write_text(json.dumps(self._entries), encoding="utf-8")

    def _sample(self, entry: dict[str, object], tensor: torch.Tensor) -> None:
        entry.update(shape=list(tensor.shape), dtype=str(tensor.dtype).replace("torch.", ""), sample=len(self._arrays))
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        flat = tensor.reshape(-1)
        if not tensor.is_floating_point():
            whole = flat.to("cpu", torch.int64).numpy()
            entry["digest"] = hashlib.sha256(whole.tobytes()).hexdigest()[:16]
        most = self._elements if self._bytes < _MOST_BYTES else _FEW
        step = max(1, -(-flat.numel() // most))
        sample = flat[::step].to("cpu", torch.float32 if tensor.is_floating_point() else torch.int64).numpy().copy()
        self._bytes += sample.nbytes
        self._arrays[str(entry["sample"])] = sample


def convert_to_nested(value: object) -> object:
    """Return ``value`` with its dataclasses and outputs of transformers as dictionaries."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return value


def nested_entries(value: Any, path: str = "") -> list[tuple[str, object]]:
    """Return the leaves of nested mappings and sequences, each with its path."""
    if isinstance(value, Mapping):
        items = [(str(getattr(key, "value", key)), inner) for key, inner in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(str(place), inner) for place, inner in enumerate(value)]
    else:
        return [(path, value)]
    return [
        leaf
        for key, inner in items
        for leaf in nested_entries(convert_to_nested(inner), f"{path}.{key}" if path else key)
    ]
