"""vllm-omni's own handler of openpi's protocol: PACKAGES PORT [fails].

A function of 20 ms answers in place of its engine. Of vllm-omni run the loop over the websocket, the messages, the
handshake, and what takes the actions out of an output. vllm itself is an empty module here.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

ENTRY = "vllm_omni.entrypoints"
PACKAGES = ("vllm_omni", ENTRY, f"{ENTRY}.openpi", "vllm_omni.diffusion", "vllm_omni.inputs", f"{ENTRY}.openai")
CONFIG = {
    "image_resolution": [224, 224], "n_external_cameras": 1, "needs_wrist_camera": True, "needs_session_id": False,
    "action_space": "joint_position", "action_horizon": 50, "action_dim": 32,
}  # fmt: skip
CALL_S = 0.02


def main() -> None:
    folder, port, *fails = sys.argv[1:]
    sys.path.append(folder)
    for name in ("vllm", "vllm.logger", *PACKAGES):
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [f"{folder}/{name.replace('.', '/')}"]
    sys.modules["vllm.logger"].init_logger = logging.getLogger  # type: ignore[attr-defined]
    connection, serving, web, uvicorn = map(
        importlib.import_module, (f"{ENTRY}.openpi.connection", f"{ENTRY}.openpi.serving", "fastapi", "uvicorn")
    )

    class Serving(serving.ServingRealtimeRobotOpenPI):
        calls = 0

        async def infer(self, obs: dict[str, Any], *, session_id: str, reset: bool) -> Any:
            Serving.calls += 1
            await asyncio.sleep(CALL_S)
            if fails and Serving.calls > 2:
                raise KeyError("observation/state")
            seen = sum(float(np.sum(each, dtype=np.float64)) for each in obs.values() if isinstance(each, np.ndarray))
            actions = np.full((50, 32), (seen + len(str(obs.get("prompt")))) % 1000 / 1000, np.float32)
            return self._extract_actions(SimpleNamespace(multimodal_output={"actions": actions}))

    engine = SimpleNamespace(
        get_diffusion_od_config=lambda: SimpleNamespace(model_config={"policy_server_config": CONFIG})
    )
    app, served = web.FastAPI(), Serving(engine)

    async def answer(websocket: Any) -> None:
        await connection.RobotRealtimeConnection(websocket, served, idle_timeout=30.0).handle_connection()

    answer.__annotations__["websocket"] = web.WebSocket  # FastAPI gives arguments by their types
    app.add_api_websocket_route("/v1/realtime/robot/openpi", answer)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
