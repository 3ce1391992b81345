"""The names of LeRobot that Strobe uses: the installed one has them all, and a private one is listed."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import lerobot
import pytest

import strobe
import strobe_zoo
from strobe.lerobot.schema.source import module_file
from strobe.lerobot.versions import TIMER

STROBE, LEROBOT = Path(strobe.__file__).parent, Path(lerobot.__file__).parent
ZOO = Path(strobe_zoo.__file__).parent

# Module of LeRobot's → its private names. All versions of `TRIED` have them.
PRIVATE: Mapping[str, tuple[str, ...]] = {
    "async_inference.policy_server": ("_enqueue_observation", "_get_action_chunk", "_predict_action_chunk"),
    "async_inference.robot_client": (
        "_action_tensor_to_action_dict",
        "_aggregate_action_queues",
        "_ready_to_send_observation",
    ),
    "configs.parser": ("_config_path_args", "_config_yaml_overrides", "_register_scoped_actions"),
    "datasets.dataset_reader": ("_get_query_timestamps", "_query_hf_dataset", "_query_videos"),
    "envs.libero": ("_ensure_env", "_env", "_max_episode_steps"),
    "envs.metaworld": ("_ensure_env", "_env", "_max_episode_steps"),
    "policies.act.modeling_act": ("_action_queue",),
    "policies.diffusion.modeling_diffusion": ("_in_h", "_in_w", "_queues"),
    "policies.evo1.flow_matching": ("_project_actions",),
    "policies.fastwam.wan.modular": (
        "_encode_input_image_latents_tensor",
        "_encode_video_latents",
        "_predict_action_noise_with_cache",
    ),
    "policies.groot.groot_n1_7": ("_cosmos_reason2_qwen3_vl_config",),
    "policies.groot.modeling_groot": ("_action_queue_steps", "_groot_model", "_resolve_action_queue_steps"),
    "policies.lingbot_va.modeling_lingbot_va": (
        "_encode_frames",
        "_encode_prompt",
        "_ensure_frozen_modules",
        "_frozen",
    ),
    "policies.molmoact2.modeling_molmoact2": (
        "_backbone",
        "_resolve_checkpoint_location",
        "_strict_load_safetensors_weights",
    ),
    "policies.molmoact2.molmoact2_hf_model.modeling_molmoact2": (
        "_modulation_cache_key",
        "_modulation_cache_value",
        "_project_kv_tensor",
    ),
    "policies.molmoact2.processor_molmoact2": ("_load_local_molmoact2_processor",),
    "policies.multi_task_dit.modeling_multi_task_dit": ("_initialize_weights",),
    "policies.pi0.modeling_pi0": ("_action_queue", "_preprocess_images"),
    "policies.pi05.modeling_pi05": ("_action_queue", "_preprocess_images"),
    "policies.pi0_fast.modeling_pi0_fast": ("_preprocess_images",),
    "policies.smolvla.modeling_smolvla": ("_get_action_chunk", "_queues"),
    "policies.tdmpc.modeling_tdmpc": (
        "_Qs",
        "_dynamics",
        "_encoder",
        "_init_weights",
        "_pi",
        "_prev_mean",
        "_queues",
        "_reward",
    ),
    "policies.vqbet.modeling_vqbet": ("_in_h", "_in_w", "_queues"),
    "policies.xvla.modeling_xvla": ("_get_action_chunk", "_prepare_images", "_queues"),
    "processor.normalize_processor": ("_tensor_stats",),
    "processor.tokenizer_processor": ("_tokenize_text",),
    "rollout.inference.rtc": ("_action_queue", "_normalize_prev_actions_length"),
    "rollout.strategies.core": ("_log_telemetry",),
    "utils.import_utils": ("_transformers_available",),
}
# Names that only some versions have. Strobe looks for them first, and does without.
OPTIONAL: Mapping[str, tuple[str, ...]] = {TIMER: ("CycleTimer", "_report")}


def used_names() -> Iterator[tuple[str, str]]:
    """Yield each public name of LeRobot that Strobe's source uses: its module, and the name."""
    place = re.compile(r"^(lerobot(?:\.\w+)+):([A-Za-z_]\w*)")
    for file in (*STROBE.rglob("*.py"), *ZOO.rglob("*.py")):
        text = file.read_text()
        if not re.search(r"(?:from |\")lerobot\.", text):  # most files only speak of it, and parsing all takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "lerobot":
                yield from ((node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (at := place.match(node.value)):
                yield at[1], at[2]


def has_name(module: str, name: str) -> bool:
    """Return whether the installed LeRobot has ``name`` in ``module``, as its source shows."""
    if module_file(f"{module}.{name}") is not None:
        return True
    file = module_file(module)
    return file is not None and re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None


def test_this_lerobot_has_every_name_that_is_used():
    private = {(f"lerobot.{module}", name) for module, names in PRIVATE.items() for name in names}
    public = set(used_names())
    assert len(public) > 100
    assert [place for place in public | private if place[0] not in OPTIONAL and not has_name(*place)] == []


# LeRobot has private names that other libraries have too, and Strobe means the others' ones.
OF_OTHERS = {"_apply": "torch", "_buffers": "torch", "_version": "torch", "_builder": "timm"}


def private_names_of_lerobot() -> set[str]:
    """Return the private attributes, methods, functions and constants that LeRobot's source defines."""
    made = re.compile(
        r"self\.(_[a-zA-Z]\w*)\s*(?::[^=\n]+)?=|^\s*(?:async )?def (_[a-zA-Z]\w*)\(|^(_[a-zA-Z]\w*)\s*(?::[^=\n]+)?=",
        re.MULTILINE,
    )
    return {
        name for file in LEROBOT.rglob("*.py") for found in made.findall(file.read_text()) for name in found if name
    }


def find_private_names(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the private names that a file uses of other objects: as an attribute, or as a part of a name in quotes."""
    tree = ast.parse(file.read_text())
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            own.add(node.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in own:
            yield node.attr, node.lineno
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.]+", node.value):
            yield from ((part, node.lineno) for part in node.value.split("."))


def test_a_private_name_of_lerobot_that_is_used_is_listed():
    theirs = private_names_of_lerobot() - set(OF_OTHERS)
    listed = {name for names in (*PRIVATE.values(), *OPTIONAL.values()) for name in names}
    for file in (*STROBE.rglob("*.py"), *ZOO.rglob("*.py")):
        for name, line in find_private_names(file):
            assert name not in theirs or name in listed, f"{file.relative_to(STROBE)}, line {line}: {name}"


WHEEL = os.environ.get("STROBE_NEXT_LEROBOT", "")
HERE = Path(__file__).parent
LOOPS = ("test_rollout.py", "test_other_loops.py", "test_remote_inference.py")


@pytest.mark.skipif(not WHEEL, reason="STROBE_NEXT_LEROBOT names no wheel")
@pytest.mark.parametrize("name", LOOPS)
def test_the_loops_are_watched_on_it(name, tmp_path):
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path / "next")
    path = os.pathsep.join([str(tmp_path / "next"), *filter(None, [os.environ.get("PYTHONPATH")])])
    there = {**os.environ, "PYTHONPATH": path}
    which = "import lerobot, pathlib; print(pathlib.Path(lerobot.__file__).parents[1])"
    found = subprocess.run([sys.executable, "-c", which], capture_output=True, text=True, env=there, check=True)
    assert found.stdout.strip() == str(tmp_path / "next")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--show-capture=no", "--tb=short",
         str(HERE / name)],
        capture_output=True, text=True, check=False, env=there, cwd=HERE.parents[1],
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-5000:]
