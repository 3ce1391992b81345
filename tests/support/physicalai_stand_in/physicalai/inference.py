"""The few names of physicalai 0.3 that Strobe uses, as its documentation describes them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openvino

CORE = openvino.Core()  # one for the process: two that go in another order than they came break its signals


class InferenceModel:
    """A package with one OpenVINO model, and no processors of its own."""

    def __init__(self, export_dir: str, **options: Any) -> None:
        folder = Path(export_dir)
        about = json.loads((folder / "manifest.json").read_text())["model"]
        model = CORE.read_model(folder / about["artifacts"]["openvino"])
        # The real one takes bfloat16 where the CPU has it; a test must not hang on that.
        self._compiled = CORE.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"} | options)
        self.input_features = [SimpleNamespace(name=each["name"]) for each in about.get("input_features", [])]
        self.adapter = SimpleNamespace(input_names=[given.any_name for given in model.inputs])

    def predict_action_chunk(self, observation: dict[str, Any]) -> Any:
        """Answer with a chunk, (actions, action dim); features stand in the order of the model's inputs."""
        names = [feature.name for feature in self.input_features] or self.adapter.input_names
        arrays = [observation[name] for name in names]
        return self._compiled(dict(zip(self.adapter.input_names, arrays, strict=True)))["action"][0]
