"""A policy package, run by physicalai (https://pypi.org/project/physicalai, Apache-2.0) in its environment."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any


class Worker:
    """One package in physicalai's runtime, with its own processors."""

    def __init__(self) -> None:
        self._model: Any = None

    def do_load(self, folder: str, threads: int) -> dict[str, object]:
        """Load the package. Returns the names of what it takes: those it declares, or else its model's inputs."""
        inference: Any = importlib.import_module("physicalai.inference")
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            artifacts = json.load(file)["model"].get("artifacts", {})
        options = {"INFERENCE_NUM_THREADS": threads} if "openvino" in artifacts else {}
        self._model = inference.InferenceModel(folder, **options)
        named = [feature.name for feature in self._model.input_features]
        return {"inputs": named or list(self._model.adapter.input_names)}

    def do_act(self, given: str, task: str, to: str) -> dict[str, object]:
        """Answer the observation in the file ``given`` (.npz) with a chunk in the file ``to`` (.npy)."""
        import numpy as np

        with np.load(given) as arrays:
            observation: dict[str, object] = dict(arrays)
        if task:
            observation["task"] = [task]
        np.save(to, self._model.predict_action_chunk(observation)[None])
        return {}
