"""The sound files of `hostile_files.py`, one of each kind that may be a stranger's, and what reads them."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import made_rollout

from strobe.core.errors import UserError

DOCS = Path(__file__).parents[2] / "docs" / "examples"
DAMAGED = "The recording is damaged"


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        write: writes a sound one into a folder and returns its path.
        read: reads it, and returns what it tells.
        refuses: errors of one line that a reader may raise.
        whole: whether a file that was cut must be refused, or told to be damaged.
        exact: whether any change must be refused or told, or change nothing of what is told.
    """

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    refuses: tuple[type[Exception], ...] = (UserError,)
    whole: bool = False
    exact: bool = False


def _recording(folder: Path) -> Path:
    """Write a run of four seconds in which each tenth tick has no action to send."""
    from strobe.loops.event_log import Log

    log, ticks = Log(folder / "run.events"), 0
    log.start(made_rollout.header())
    for event in made_rollout.events(4.0):
        ticks += event[0] == "pick"
        log.append(("pick", event[1], int(bool(ticks % 10))) if event[0] == "pick" else event)
    log.stop()
    return log.file


def _packed_recording(folder: Path) -> Path:
    file = _recording(folder)
    packed = folder / "events.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    return packed


def _read_recording(file: Path) -> Any:
    from strobe.loops.recorded_run import load
    from strobe.rollout.run import recover_rollout

    rollout = recover_rollout(file).result.rollout
    lost = load(file).record.lost
    assert bool(lost) == rollout.sentence.startswith(DAMAGED)
    return DAMAGED if lost else rollout.sentence


def _replay_file(file: Path) -> Any:
    from strobe.replay.results import Changes
    from strobe.replay.run import Options, replay

    verdict = replay(file, Changes(), Options(draws=1)).verdict
    return DAMAGED if verdict.startswith(DAMAGED) else verdict


def _observations(folder: Path) -> Path:
    from strobe.loops.observations import Keeper

    keeper = Keeper(folder / "observations")
    keeper.start()
    for tick in range(4):
        keeper.append((tick, {"pan.pos": float(tick), "front": np.full((8, 8, 3), 40 * tick, np.uint8)}))
    keeper.stop()
    return folder / "observations" / "index.jsonl"


def _read_observations(file: Path) -> Any:
    from strobe.loops.observations import Observations

    kept = Observations(file.parent)
    return [kept.latest_observation(time) for time in kept.times[:4]] and len(list(kept.iter_encoded()))


def _copy_example(example: str, name: str = "result.json") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        file = folder / name
        file.write_bytes((DOCS / example / name).read_bytes())
        return file

    return write


def _read_result(file: Path) -> Any:
    from strobe.core import kinds
    from strobe.core.cli.summaries import summary_of_run
    from strobe.core.report import html, markdown
    from strobe.core.runs import store

    answer = store.load_answer(file)
    html.render_runs([(summary_of_run(file), "run")], "runs")
    return len(markdown.render(kinds.document(answer)))


def _trace(folder: Path) -> Path:
    events: list[dict[str, Any]] = []
    for number in range(12):
        at = {"ph": "X", "pid": 1, "tid": 1, "ts": 1e6 + 20 * number, "dur": 8}
        launch = at | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": number}}
        kernel = {"correlation": number, "device": 0, "stream": 7}
        events += [at | {"cat": "cpu_op", "name": "aten::mm"}, launch]
        events.append(at | {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "args": kernel})
    file = folder / "trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return file


def _read_trace(file: Path) -> Any:
    from strobe.core import kinds
    from strobe.core.report import markdown
    from strobe.traces.run import trace

    return len(markdown.render(kinds.document(trace([file]))))


def _export(folder: Path) -> Path:
    from strobe.export.carried import policy as carried
    from strobe.export.folder import seal

    state = {"name": "observation.state", "offset": [0.0], "divisor": [1.0], "times": 1.0, "plus": 0.0, "bins": 256}
    prompt = {"text": "{task}", "cleaned": True, "state": state, "tokenizer": "tokenizer.json", "length": 48}
    about = {
        "format": "onnx", "model": "policy.onnx", "policy": "act", "precision": "fp32", "effect": "rounding",
        "inputs": [{"name": "observation.state", "shape": [1, 6], "dtype": "float32"}],
        "noise": [{"kind": "normal", "shape": [1, 50, 6]}], "prompt": prompt, "chunk": [1, 50, 6], "actions": [],
    }  # fmt: skip
    shutil.copy(carried.__file__, folder / "policy.py")
    for name in ("policy.onnx", "tokenizer.json"):
        (folder / name).write_bytes(b"weights")
    (folder / "export.json").write_text(json.dumps(about, indent=1))
    seal(folder)
    return folder / "export.json"


def _read_export(file: Path) -> Any:
    from strobe.export.exported import read_export_group

    return read_export_group(file.parent)[0]


def _checkpoint(folder: Path) -> Path:
    from safetensors.numpy import save_file

    state, camera = {"type": "STATE", "shape": [6]}, {"type": "VISUAL", "shape": [3, 96, 96]}
    features = {"observation.state": state, "observation.images.front": camera}
    config = {
        "type": "act", "input_features": features, "output_features": {"action": {"type": "ACTION", "shape": [6]}},
        "chunk_size": 50, "n_action_steps": 50, "device": "cpu", "n_obs_steps": 1,
    }  # fmt: skip
    both = features | config["output_features"]
    norm = {"features": both, "norm_map": {"STATE": "MEAN_STD", "VISUAL": "MEAN_STD", "ACTION": "MEAN_STD"}}
    statistics = {f"{name}.{kind}": np.ones(6, np.float32) for name in ("observation.state", "action")
                  for kind in ("mean", "std")}  # fmt: skip
    for name, step in (("preprocessor", "normalizer_processor"), ("postprocessor", "unnormalizer_processor")):
        state_file = f"policy_{name}_step.safetensors"
        save_file(statistics, folder / state_file)
        steps = [{"registry_name": step, "config": norm, "state_file": state_file}]
        (folder / f"policy_{name}.json").write_text(json.dumps({"name": name, "steps": steps}))
    save_file({"model.head.weight": np.ones((6, 6), np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "config.json"


def _checkpoint_file(name: str) -> Callable[[Path], Path]:
    return lambda folder: _checkpoint(folder).with_name(name)


def _read_checkpoint(file: Path) -> Any:
    from strobe.preflight.wiring.read import read_wiring

    return len(read_wiring(file.parent).wires)


def _read_recipe(file: Path) -> Any:
    from strobe.core.runs import recipe_file

    return len(recipe_file.load(file).treatments)


def _sweep(folder: Path) -> Path:
    file = folder / "sweep.yaml"
    file.write_text(
        "study: breakdown\nflags: {policy.type: act, seconds: 2}\ngrid: {batch_size: [1, 2], policy.n: [8]}\n"
        "cells: [{batch_size: 4}]\nsweep: {repeats: 1}\n"
    )
    return file


def _read_sweep(file: Path) -> Any:
    from strobe.sweep.command import read

    cells = read([f"--file={file}"]).cells
    assert not any(word in flag for cell in cells for flag in cell.argv for word in ("evil", "passwd", "path="))
    return len(cells)


def _trials(folder: Path) -> Path:
    file = folder / "trials.csv"
    rows = [
        f"{1 + trial // 2},{trial + 1},{'AB'[trial % 2]},,{'yes,' if trial % 3 else 'no,2/4'},12.5,"
        for trial in range(12)
    ]
    file.write_text("\n".join(["pair,trial,code,condition,success,progress,seconds,note", *rows, ""]))
    return file


def _read_trials(file: Path) -> Any:
    from strobe.trials.judge import read_sheet
    from strobe.trials.plan import TrialPlan

    plan = TrialPlan(strobe_version="", orders=[("A", "B")] * 6, score="progress", margin=0.1, limit_s=30.0)
    return len(read_sheet(file, plan))


def _episodes(folder: Path) -> Path:
    from strobe.evaluate.episode_log import EpisodeLine, EpisodeLog, EvaluationRequest

    asked = EvaluationRequest(
        policy="act", weights="0", settings={}, environment={"type": "pusht"}, tasks=["push"], variants={"a": ""},
        margin=0.1, seed=0, episodes=6,
    )  # fmt: skip
    log = EpisodeLog.begin(folder, asked)
    for seed in range(6):
        log.add(EpisodeLine(
            variant="a", task="push", seed=seed, start="0", success=bool(seed % 2), reward=1.0, ticks=100,
            call_ms=[9.0], policy_ms=9.0, step_ms=20.0, render_ms=None, reset_ms=1.0,
        ))  # fmt: skip
    log.close()
    return log.path


def _read_episodes(file: Path) -> Any:
    from strobe.evaluate.episode_log import read

    return sum(episode.success for episode in read(file)[1].values())


def _actions(folder: Path) -> Path:
    import torch
    from lerobot.async_inference.helpers import TimedAction

    file = folder / "answer.pickle"
    file.write_bytes(pickle.dumps([TimedAction(1.0, step, torch.arange(6.0)) for step in range(8)]))
    return file


def _read_actions(file: Path) -> Any:
    from strobe.servers.protocols import lerobot_messages

    lerobot_messages.check(file.read_bytes())
    return lerobot_messages.extract_actions(lerobot_messages.decode(file.read_bytes()))[1]


def _message(folder: Path) -> Path:
    from strobe_zoo.groot_server import encode

    keys = {"modality_keys": ["arm"], "delta_indices": [0]}
    modality = {"__ModalityConfig_class__": True, "as_json": json.dumps(keys)}
    file = folder / "message.msgpack"
    file.write_bytes(encode({"state": modality, "action.arm": np.ones((16, 6), np.float32)}))
    return file


def _read_message(file: Path) -> Any:
    from strobe.servers.protocols import openpi
    from strobe_zoo import groot_server

    openpi.decode(file.read_bytes())
    return len(groot_server.decode(file.read_bytes()))


KINDS: dict[str, Kind] = {
    "recording": Kind(_recording, _read_recording, whole=True, exact=True),
    "packed recording": Kind(_packed_recording, _read_recording, whole=True, exact=True),
    "replay": Kind(_recording, _replay_file, whole=True, exact=True),
    "observations": Kind(_observations, _read_observations),
    "result": Kind(_copy_example("act-variations"), _read_result, whole=True),
    "result of a rollout": Kind(_copy_example("rehearse-smolvla"), _read_result, whole=True),
    "trace": Kind(_trace, _read_trace, whole=True),
    "export": Kind(_export, _read_export, whole=True),
    "checkpoint": Kind(_checkpoint, _read_checkpoint, whole=True),
    "processors": Kind(_checkpoint_file("policy_preprocessor.json"), _read_checkpoint, whole=True),
    "statistics": Kind(_checkpoint_file("policy_preprocessor_step.safetensors"), _read_checkpoint, whole=True),
    "recipe": Kind(_copy_example("optimize-act", "recipe.yaml"), _read_recipe),
    "sweep": Kind(_sweep, _read_sweep),
    "trials": Kind(_trials, _read_trials),
    "episodes": Kind(_episodes, _read_episodes),
    "actions of a server": Kind(_actions, _read_actions, (ValueError,), whole=True),
    "message of a server": Kind(_message, _read_message, (ValueError,), whole=True),
}
