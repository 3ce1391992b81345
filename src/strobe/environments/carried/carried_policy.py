"""A policy of LeRobot's in this environment: read, called, and looked at, as orders say."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import itertools
import json
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from carried_noise import disable_dropout, same_noise
from carried_stages import Record, convert_to_nested, nested_entries

try:
    from lerobot.configs import PreTrainedConfig
except ImportError:  # LeRobot before 0.5
    from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from torch.utils._python_dispatch import TorchDispatchMode


class Worker:
    """The policy of a parcel: a folder with ``parcel.json`` and the arrays of the observations.

    Each method ``do_…`` is an order. It returns what is answered, as JSON data; arrays go to the file ``to``.
    """

    policy: Any
    pre: Any
    post: Any

    def do_load(self, parcel: str, device: str, threads: int, seed: int) -> dict[str, object]:
        """Read the policy and its processors. Return what is known of this environment and of the policy."""
        if threads:
            torch.set_num_threads(threads)
        self.parcel, self.seed = Path(parcel), seed
        self.facts = json.loads((self.parcel / "parcel.json").read_text(encoding="utf-8"))
        folder = self.facts["policy"]
        config = PreTrainedConfig.from_pretrained(folder)
        config.device = device
        config.pretrained_path = folder
        overrides = {"device_processor": {"device": device}}
        with _built_as(config, self.facts, seed) as settle:
            self.policy = get_policy_class(config.type).from_pretrained(folder, config=config)
            self.policy.to(device).eval()
            self.pre, self.post = make_pre_post_processors(
                config, pretrained_path=folder, preprocessor_overrides=overrides
            )
            settle(self.policy, self.pre)
        for step in self.pre.steps:
            if self.facts["rename"] and hasattr(step, "rename_map"):
                step.rename_map = dict(self.facts["rename"])
        self.device = torch.device(device)
        gc.collect()
        gc.freeze()
        return {
            "python": "{}.{}.{}".format(*sys.version_info[:3]),
            "packages": _packages(),
            "lerobot": str(Path(importlib.import_module("lerobot").__file__ or "").parent),
            "threads": torch.get_num_threads(),
            "settings": _settings(self.policy.config, self.pre, self.post),
        }

    def do_call(self, index: int) -> dict[str, object]:
        """Compute a chunk for observation ``index``, timed. Return milliseconds of its parts."""
        observation = self._observation(index % self.facts["timed"])
        torch.manual_seed(self.seed + index)
        self._wait()
        begun = time.perf_counter()
        with torch.no_grad():
            batch = self.pre(observation)
            self._wait()
            prepared = time.perf_counter()
            actions = self._predict(batch)
            self._wait()
            predicted = time.perf_counter()
            self.post(actions)
            self._wait()
        ended = time.perf_counter()
        marks = (begun, prepared, predicted, ended)
        return {"ms": [1e3 * (after - before) for before, after in itertools.pairwise(marks)]}

    def do_chunk(self, index: int, to: str, reordered: bool = False) -> dict[str, object]:
        """Write the chunk of check observation ``index``, (1, chunk, action dim), in the action's own units."""
        with torch.no_grad(), _change_summation_order(reordered), same_noise(self.seed + index):
            actions = self.post(self._predict(self.pre(self._observation(self.facts["timed"] + index))))
        np.save(to, actions.detach().float().cpu().numpy())
        return {}

    def do_stages(self, index: int, to: str, reordered: bool = False) -> dict[str, object]:
        """Record what each step and module of a chunk is given and gives, for check observation ``index``."""
        record = Record(self.facts["elements"])
        record.tensors("weights", "", list(self.policy.named_parameters()) + list(self.policy.named_buffers()))
        for pipeline in (self.pre, self.post):
            for step in pipeline.steps:
                state: Any = step.state_dict() if hasattr(step, "state_dict") else {}
                record.tensors("statistics", type(step).__name__, list(state.items()))
        observation = self._observation(self.facts["timed"] + index)
        with torch.no_grad(), _change_summation_order(reordered), same_noise(self.seed + index):
            batch = _run_recorded_steps(self.pre, observation, "preprocessing", record)
            with record.modules(self.policy):
                actions = self._predict(batch)
            record.add("policy", "", "normalised actions", actions)
            actions = _run_recorded_steps(self.post, actions, "postprocessing", record)
        record.write(Path(to))
        return {}

    def do_train(self, to: str) -> dict[str, object]:
        """Compute the loss and the gradient of a training batch, whose sample is written. Return the loss."""
        record = Record(self.facts["elements"])
        self.policy.train()
        self.policy.zero_grad()
        try:
            with same_noise(self.seed), disable_dropout():
                output = self.policy.forward(self.pre(self._named_inputs("batch")))
                loss = output[0] if isinstance(output, (tuple, list)) else output
                loss.backward()
            given = [(name, p.grad) for name, p in self.policy.named_parameters() if p.grad is not None]
            record.tensors("gradient", "", given)
        finally:
            self.policy.zero_grad()
            self.policy.eval()
        record.write(Path(to))
        return {"loss": float(loss.detach())}

    def _observation(self, number: int) -> dict[str, object]:
        return self._named_inputs(f"observation_{number}")

    def _named_inputs(self, name: str) -> dict[str, object]:
        with np.load(self.parcel / f"{name}.npz") as arrays:
            made = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
        return {**made, **self.facts["texts"].get(name, {})}

    def _predict(self, batch: dict[str, object]) -> object:
        """Return a normalised chunk, (1, chunk, action dim): as LeRobot's own engines take it, after a reset."""
        self.policy.reset()
        if not self.facts["queues"]:
            with contextlib.suppress(NotImplementedError):
                return self.policy.predict_action_chunk(batch)
        first = self.policy.select_action(_last_tick(batch))
        held = getattr(self.policy, "_action_queue", None)
        if held is None:
            held = (getattr(self.policy, "_queues", None) or {}).get("action")
        return torch.stack([first, *list(held or [])], dim=1)

    def _wait(self) -> None:
        if self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize()


def _last_tick(batch: dict[str, Any]) -> dict[str, object]:
    """Return the newest tick of a batch whose observations are stacked, (1, ticks, …)."""
    state = batch.get("observation.state")
    if state is None or state.ndim != 3:
        return batch
    stacked = {k for k, v in batch.items() if k.startswith("observation.") and isinstance(v, torch.Tensor)}
    return {k: v[:, -1] if k in stacked and v.ndim > 2 else v for k, v in batch.items()}


def _run_recorded_steps(pipeline: Any, data: object, group: str, record: Record) -> Any:
    counts: dict[str, int] = {}
    before: dict[str, object] = {}
    transition = pipeline.to_transition(data)
    for step in pipeline.steps:
        name = type(step).__name__
        counts[name] = counts.get(name, 0) + 1
        transition = step(transition)
        after = dict(nested_entries(convert_to_nested(transition)))
        for key, value in after.items():  # a step hands on what it does not touch
            if before.get(key) is not value:
                record.add(group, name, key, value, call=counts[name])
        before = after
    return pipeline.to_output(transition)


def _settings(config: Any, pre: Any, post: Any) -> dict[str, str]:
    found = {f"policy.{f.name}": repr(getattr(config, f.name, None)) for f in dataclasses.fields(config)}
    for kind, pipeline in (("preprocessing", pre), ("postprocessing", post)):
        for place, step in enumerate(pipeline.steps):
            given: Any = step.get_config() if hasattr(step, "get_config") else {}
            found.update({f"{kind}.{place} {type(step).__name__}.{k}": repr(v) for k, v in given.items()})
    for name in ("policy.device", "policy.pretrained_path"):
        found.pop(name, None)
    return found


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for distribution in metadata.distributions():  # the first one of a name is the one that is imported
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name:
            found.setdefault(name, distribution.version)
    return found


# Product of matrices → its arguments that are multiplied: the sums run over the left one's columns.
_PRODUCTS = {"aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::addmm": (1, 2), "aten::baddbmm": (1, 2)}


class _ShuffledSums(TorchDispatchMode):
    """The products of matrices add their numbers in another order: other kernels alone may round the same way."""

    def __init__(self) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(0)  # its own: the policy's draws stay as they are

    def __torch_dispatch__(self, operator: Any, _: object, args: Any = (), kwargs: Any = None) -> Any:
        given = list(args)
        if (places := _PRODUCTS.get(operator._schema.name)) is not None:
            left, right = places
            order = torch.randperm(given[left].shape[-1], generator=self._generator).to(given[left].device)
            given[left] = given[left].index_select(-1, order)
            given[right] = given[right].index_select(-2, order)
        return operator(*given, **(kwargs or {}))


@contextlib.contextmanager
def _change_summation_order(wanted: bool) -> Any:
    """Inside, sums are taken in another order and on one thread: the same arithmetic with other rounding."""
    if not wanted:
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH), _ShuffledSums():
            yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _built_as(config: object, facts: dict[str, Any], seed: int) -> Any:
    """Inside, a policy that is on no hub is read: its size, and what stands in for the Hub, come from Strobe's source.

    A checkpoint of the user's needs nothing of it. Yields what completes the policy once it was read.
    """
    if not facts["strobe"]:
        yield lambda policy, preprocessor: None
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.path.append(facts["strobe"])
    from strobe.environments.unpublished import built_as

    torch.manual_seed(seed)
    with built_as(config, Path(facts["policy"]), tiny=facts["tiny"]) as settle:
        yield settle
