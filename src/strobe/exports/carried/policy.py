"""The policy of this folder, without torch: pip install openvino numpy, and tokenizers where it reads a prompt.

    policy = Policy()
    chunk = policy.act({"observation.state": state, "observation.images.front": image}, task="pick up the cube")

`export.json` lists the arrays that an observation needs, with their shapes. Images are floats from 0 to 1, channels
first. A chunk is (1, actions, action dim) in the robot's own units.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openvino

HERE = Path(__file__).resolve().parent
TOKENS, MASK = "observation.language.tokens", "observation.language.attention_mask"


class Policy:
    """The exported policy. ``threads``: of the CPU, 0 for as many as OpenVINO takes; ``seed``: of its noise."""

    def __init__(self, threads: int = 0, seed: int | None = None) -> None:
        self.about: dict[str, Any] = json.loads((HERE / "export.json").read_text())
        options: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": self.about["precision"],
            "PERFORMANCE_HINT": "LATENCY",
        }
        if threads:
            options["INFERENCE_NUM_THREADS"] = threads
        compiled = openvino.Core().compile_model(HERE / self.about["model"], "CPU", options)
        self._request = compiled.create_infer_request()
        self._random = np.random.default_rng(seed)
        self._tokenizer: Any = None

    def act(self, observation: dict[str, Any], task: str = "", noise: Any = None) -> Any:
        """Return a chunk of actions. ``noise``: the arrays that `export.json` lists, for a repeatable answer.

        Raises ValueError for an array that is missing or has another shape.
        """
        given = dict(observation)
        if self.about["prompt"] and TOKENS not in given:
            given |= self.tokens(task)
        arrays = [self._array(given, wanted) for wanted in self.about["inputs"]]
        drawn = [self._drawn(wanted) for wanted in self.about["noise"]] if noise is None else list(noise)
        return self._request.infer([*arrays, *drawn])[0].copy()

    def tokens(self, task: str) -> dict[str, Any]:
        """Return the tokens of a prompt and their mask, (1, length) each."""
        about = self.about["prompt"]
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(HERE / about["tokenizer"]))
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
        ids = self._tokenizer.encode(task + about["suffix"]).ids[: about["length"]]
        rest = about["length"] - len(ids)
        padding, right = [about["pad"]] * rest, about["side"] == "right"
        tokens = [*ids, *padding] if right else [*padding, *ids]
        mask = [*[True] * len(ids), *[False] * rest] if right else [*[False] * rest, *[True] * len(ids)]
        return {TOKENS: np.array([tokens], np.int64), MASK: np.array([mask], bool)}

    def _array(self, given: dict[str, Any], wanted: dict[str, Any]) -> Any:
        if wanted["name"] not in given:
            raise ValueError(f"the observation lacks {wanted['name']}, {wanted['shape']}")
        array = np.ascontiguousarray(given[wanted["name"]], dtype=wanted["dtype"])
        if list(array.shape) != wanted["shape"]:
            raise ValueError(f"{wanted['name']} is {list(array.shape)}, and the policy takes {wanted['shape']}")
        return array

    def _drawn(self, wanted: dict[str, Any]) -> Any:
        draw = self._random.standard_normal if wanted["kind"] == "normal" else self._random.random
        return draw(wanted["shape"]).astype(np.float32)


if __name__ == "__main__":
    policy = Policy(seed=0)
    zeros = {each["name"]: np.zeros(each["shape"], each["dtype"]) for each in policy.about["inputs"]}
    chunk = policy.act(zeros)
    print(f"{policy.about['policy']}: a chunk of {chunk.shape[1]} actions; the first for zeros is {chunk[0, 0]}")
