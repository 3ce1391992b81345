"""What a command needs is looked for before anything is loaded: devices, packages, simulators, data, room to write."""

import sys
from pathlib import Path

import pytest
import torch
import transformers
from lerobot.policies.pretrained import PreTrainedPolicy

from strobe.core.cli.main import main
from strobe.core.slices import commands

ACT, MODEL, PLAYED = "--policy.type=act", "--model.type=vjepa2", "--policy.type=act --env.type=pusht"
FACTORY, TENSORRT = "--policy.factory=policy.py:make", "--variant a:engine=tensorrt,engine.part=vision"
TRAINED = f"-- {ACT} --dataset.repo_id=me/data --policy.push_to_hub=false --dataset.root="
ROBOT = "-- --robot.type=so101_follower --robot.port=PORT --task=push"
# Words of the answer → arguments. What is in brackets before them is not installed.
NEEDS = {
    "no cuda device": [
        f"breakdown {ACT} --device=cuda", f"breakdown {MODEL} --device=cuda", f"optimize {ACT} --policy.device=cuda",
        f"compare {FACTORY} --device=cuda --compile", f"batch {ACT} --device=cuda", f"evaluate {PLAYED} --device=cuda",
        f"train {TRAINED}data --policy.device=cuda", f"rehearse {ROBOT} {ACT} --policy.device=cuda",
    ],
    "CUDA": [
        f"breakdown {ACT} --nvtx", f"breakdown {ACT} --memory_snapshot", f"compare {ACT} --levers=cudnn=default",
        f"compare {ACT} --precision=tf32", *(f"compare {each} {TENSORRT}" for each in (ACT, MODEL, FACTORY)),
        f"compare {ACT} --variant a:graph=chunk", f"compare {ACT} --variant a:fp8=static",
        *(f"{each} --recipe=recipe.yaml" for each in (
            f"breakdown {ACT}", f"compare {ACT}", f"verify {ACT}", f"evaluate {PLAYED}", f"export {ACT} --to=out",
            f"tune {PLAYED} --latency=100",
        )),
    ],
    "on the CPU has its images": [f"compare {ACT} --variant a:preprocessing=device"],
    "1 of 2 cells are refused": [f"sweep breakdown {ACT} --grid device=cpu,cuda"],
    "strobe-lab[": [
        f"[pyinstrument] breakdown {ACT} --python_profile=pyinstrument", "[websockets] breakdown --policy.server=ws://a",
        f"[openvino] compare {ACT} --variant a:engine=openvino,engine.part=model.backbone",
        f"[nncf] compare {ACT} --variant a:int8_engine=openvino,int8_engine.part=model.backbone",
        f"[torchao] compare {ACT} --variant a:int8=dynamic", f"[line_profiler] breakdown {ACT} --python_profile=line",
        f"[openvino] export {ACT} --to=out",
        "[gym_pusht] record --root=x",
        *(f"[gym_pusht] {each} {PLAYED}" for each in ("breakdown", "compare", "optimize", "evaluate")),
        f"[gym_pusht] tune {PLAYED} --latency=100", f"[ray] evaluate {PLAYED} --launcher=ray",
        f"[ray] sweep breakdown {ACT} --launcher=ray --grid seed=1,2",
    ],
    "nowhere": [
        f"breakdown {ACT} --dataset.root=nowhere", f"breakdown {MODEL} --input.video=nowhere",
        f"compare {ACT} --variant a:exported=nowhere", f"compare {ACT} --variant a:python=nowhere",
        f"dataloader {TRAINED}nowhere",
        f"rollout {ROBOT} --policy.path=./nowhere", "preflight --policy.path=./nowhere", f"train {TRAINED}nowhere",
    ],
    "cannot save the": [
        f"breakdown {ACT} --output_dir=file/x", f"export {ACT} --to=file/x", f"optimize {ACT} --recipe_out=file/x",
        f"train {TRAINED}data --output_dir=file/x", "preflight --dataset.root=data --fix_data=file/x",
    ],
}  # fmt: skip
LIGHT = {"budget", "diff", "doctor", "history", "replay", "report", "trials"}  # they load no policy from flags


@pytest.mark.parametrize(("said", "words"), [(said, words) for said, all in NEEDS.items() for words in all])
def test_it_is_said_before_anything_is_loaded(
    said: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[object] = []
    for kind in (PreTrainedPolicy, transformers.PreTrainedModel):
        monkeypatch.setattr(kind, "__init__", lambda *_, **__: loaded.append(1) or sys.exit(99))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text("policy: act\ntreatments:\n- {engine: tensorrt, engine.part: model.backbone}\n")
    Path("policy.py").write_text("def make():\n    raise SystemExit('made')\n")
    Path("file").touch()
    Path("data/meta").mkdir(parents=True)
    Path("data/meta/info.json").touch()
    *hidden, arguments = words.split("] ") if words.startswith("[") else [words]
    for package in hidden:
        monkeypatch.setitem(sys.modules, package[1:], None)
    assert main(arguments.split()) == 2
    assert said in capsys.readouterr().err
    assert loaded == []


def test_each_command_that_loads_a_policy_has_a_need_above() -> None:
    tried = {words.split("] ")[-1].split()[0] for all in NEEDS.values() for words in all}
    assert set(commands()) == tried | LIGHT
