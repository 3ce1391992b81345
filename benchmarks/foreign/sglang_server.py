"""SGLang's own route for openpi's protocol: PACKAGES PORT [fails].

A function of 20 ms answers in place of its scheduler. Of SGLang run the route, the loop over the websocket, messages,
what it reads of an observation, and the parameters of pi0.5. Its modules that need a GPU or other packages are empty.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

ENTRY = "sglang.multimodal_gen.runtime.entrypoints"
OWN = (
    f"{ENTRY}.action",
    "sglang.multimodal_gen.configs",
    "sglang.multimodal_gen.utils",
    "sglang.multimodal_gen.runtime.utils",
)
# Their own __init__ would import all of SGLang.
PACKAGES = (
    "sglang", "sglang.multimodal_gen", "sglang.multimodal_gen.runtime", ENTRY, "sglang.multimodal_gen.configs",
    "sglang.multimodal_gen.configs.pipeline_configs", "sglang.multimodal_gen.configs.sample",
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "model_id": None, "model_path": "lerobot/pi05_base", "served_model_name": "pi05", "output_path": None,
    "comfyui_mode": False, "num_gpus": 1, "tp_size": 1, "sp_degree": 1, "ulysses_degree": 1, "ring_degree": 1,
    "kv_gather_degree": 1,
}  # fmt: skip
CALL_S = 0.02


class Empty(type):
    """A class that has every attribute."""

    def __getattr__(cls, name: str) -> Any:
        return cls


class Nothing(metaclass=Empty):
    def __init__(self, *_: object, **__: object) -> None: ...

    def __class_getitem__(cls, _: object) -> Any:
        return cls


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of SGLang that are empty here."""

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        own = any(name.startswith(each) or each.startswith(name) for each in OWN)
        if own or not name.startswith("sglang."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        def make(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (Nothing,), {})

        module = ModuleType(spec.name)
        module.__path__, module.__getattr__ = [], make  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None: ...


class Scheduler:
    """Answers in the place of SGLang's scheduler; where it ``fails``, from the third call on with an error."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.calls = fails, 0

    async def forward(self, request: Any) -> SimpleNamespace:
        self.calls += 1
        await asyncio.sleep(CALL_S)
        if self.fails and self.calls > 2:
            return SimpleNamespace(error="CUDA out of memory", output=None)
        seen = sum(float(np.asarray(image, np.float64).sum()) for image in request.images.values())
        seen += float(np.sum(request.state)) + len(request.prompt)
        actions = np.full((50, 32), seen % 1000 / 1000, np.float32)
        return SimpleNamespace(error=None, output=[{"actions": actions, "timings": {"total_ms": 1e3 * CALL_S}}])


def main() -> None:
    folder, port, *fails = sys.argv[1:]
    sys.path.append(folder)
    sys.meta_path.insert(0, EmptyModules())
    for name in PACKAGES:
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [f"{folder}/{name.replace('.', '/')}"]
    protocol: Any = importlib.import_module(f"{ENTRY}.action.protocol")
    route = importlib.import_module(f"{ENTRY}.action.openpi")
    pipeline = importlib.import_module("sglang.multimodal_gen.configs.pipeline_configs.pi05")
    sampling = importlib.import_module("sglang.multimodal_gen.configs.sample.pi05")
    web, uvicorn = importlib.import_module("fastapi"), importlib.import_module("uvicorn")
    protocol._resolve_action_sampling_params_cls = lambda _: sampling.Pi05SamplingParams
    protocol.prepare_request = lambda _, parameters: parameters
    protocol.async_scheduler_client = Scheduler(bool(fails))
    app = web.FastAPI()
    app.include_router(route.router)
    app.state.server_args = SimpleNamespace(**SETTINGS, pipeline_config=pipeline.Pi05PipelineConfig())
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", ws_per_message_deflate=False)


if __name__ == "__main__":
    main()
