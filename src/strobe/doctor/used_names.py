"""The names of LeRobot that Strobe uses, held against the LeRobot that is installed, by the source of both.

So `strobe doctor` says what a newer LeRobot lacks before a command meets it. A private name, which LeRobot may drop
without a word, is listed here with its module. A test finds each one that Strobe's source uses and that is not listed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from strobe.lerobot.schema.source import file_of
from strobe.lerobot.versions import TIMER

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
    "processor.tokenizer_processor": ("_tokenize_text",),
    "rollout.inference.rtc": ("_action_queue", "_normalize_prev_actions_length"),
    "rollout.strategies.core": ("_log_telemetry",),
    "utils.import_utils": ("_transformers_available",),
}
# Names that only some versions have. Strobe looks for them first, and does without.
OPTIONAL: Mapping[str, tuple[str, ...]] = {TIMER: ("CycleTimer", "_report")}

_USES = re.compile(r"(?:from |\")lerobot\.")
_PLACE = re.compile(r"^(lerobot(?:\.\w+)+):([A-Za-z_]\w*)")
_STROBE = Path(__file__).parents[1]


@dataclass(frozen=True)
class MissingName:
    """A name that the installed LeRobot lacks.

    Args:
        name: as ``module:name``.
        used_in: the file of Strobe that uses it, relative to the package.
    """

    name: str
    used_in: str


def used_names() -> Iterator[tuple[str, str, str]]:
    """Yield each public name of LeRobot that Strobe's source uses: its module, the name, and Strobe's file."""
    for where, text in _sources().items():
        if not _USES.search(text):  # most files only speak of it, and parsing all takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "lerobot":
                yield from ((node.module or "", alias.name, where) for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (at := _PLACE.match(node.value)):
                yield at[1], at[2], where


def missing_names() -> list[MissingName]:
    """Return the names that the installed LeRobot lacks, public ones first; each once."""
    found: dict[str, MissingName] = {}
    private = ((f"lerobot.{module}", name, "") for module, names in PRIVATE.items() for name in names)
    for module, name, where in (*used_names(), *private):
        if module not in OPTIONAL and not has_name(module, name):
            place = f"{module}:{name}"
            found.setdefault(place, MissingName(place, where or _user_of(name)))
    return list(found.values())


def has_name(module: str, name: str) -> bool:
    """Return whether the installed package has ``name`` in ``module``, as its source shows."""
    if file_of(f"{module}.{name}") is not None:
        return True
    file = file_of(module)
    return file is not None and re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None


def _user_of(name: str) -> str:
    """Return the first file of Strobe's that uses a private name."""
    own = str(Path(__file__).relative_to(_STROBE))
    users = (file for file, text in _sources().items() if file != own and re.search(rf"\b{name}\b", text))
    return next(users, "")


@cache
def _sources() -> dict[str, str]:
    """Return the text of each file of Strobe's, by its path in the package."""
    files = sorted(_STROBE.rglob("*.py"))
    return {file.relative_to(_STROBE).as_posix(): file.read_text(encoding="utf-8") for file in files}
