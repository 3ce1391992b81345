"""Versions: those that Strobe was tested with, newer ones, and those too old; and what is not installed.

The names of LeRobot that Strobe uses are compared with the LeRobot that is installed, by the source of both. So `strobe
doctor` says what a newer LeRobot lacks before a command meets it. A private name, which LeRobot may drop without a
word, is listed here with its module. A test finds each one that Strobe's source uses and that is not listed.
"""

from __future__ import annotations

import ast
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from strobe.core.errors import DISTRIBUTION, install
from strobe.doctor.results import Outcome, SelfCheck
from strobe.lerobot.schema.source import module_file
from strobe.lerobot.versions import TIMER, TRIED

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
            found.setdefault(place, MissingName(place, where or _first_user(name)))
    return list(found.values())


def has_name(module: str, name: str) -> bool:
    """Return whether the installed package has ``name`` in ``module``, as its source shows."""
    if module_file(f"{module}.{name}") is not None:
        return True
    file = module_file(module)
    return file is not None and re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None


def _first_user(name: str) -> str:
    own = str(Path(__file__).relative_to(_STROBE))
    users = (file for file, text in _sources().items() if file != own and re.search(rf"\b{name}\b", text))
    return next(users, "")


@cache
def _sources() -> dict[str, str]:
    files = sorted(_STROBE.rglob("*.py"))
    return {file.relative_to(_STROBE).as_posix(): file.read_text(encoding="utf-8") for file in files}


# The versions that the test suite runs with (requirements/lock.txt); a test holds the two together.
TESTED: Mapping[str, str] = {
    "lerobot": "0.6.1",
    "torch": "2.11.0",
    "transformers": "5.5.4",
    "diffusers": "0.39.0",
    "numpy": "2.2.6",
    "accelerate": "1.15.0",
    "torchcodec": "0.11.1",
    "av": "15.1.0",
    "torchao": "0.18.0",
    "openvino": "2026.4.1",
    "ray": "2.60.0",
    "mujoco": "3.16.0",
}
PYTHON = ((3, 12), (3, 12))  # the oldest that works, and the one that the suite runs on
NO_EXTRAS = ("all", "dev")  # Strobe's extras that combine others, or that only its developers need


def examine(installed: Mapping[str, str] | None = None) -> Iterator[SelfCheck]:
    """Compare what is installed with what was tested and what is required.

    Args:
        installed: package → version, of those that are there; by default this environment's.
    """
    yield _python(sys.version_info[:2])
    present = _installed_versions(TESTED) if installed is None else dict(installed)
    required = _required_versions()
    for name, tested in TESTED.items():
        if name in present:
            yield judge_version(name, present[name], tested, required.get(name))
    if installed is None:
        yield names_of_lerobot(missing_names())


def names_of_lerobot(missing: Sequence[MissingName]) -> SelfCheck:
    """Say which names that Strobe uses the installed LeRobot lacks."""
    if not missing:
        return _check("LeRobot's names", "holds", "all names that Strobe uses are there", "", "")
    shown = [f"{one.name}{f' (for {one.used_in})' if one.used_in else ''}" for one in missing[:6]]
    more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
    return _check(
        "LeRobot's names",
        "doubtful",
        f"not in this LeRobot: {', '.join(shown)}{more}",
        f"LeRobot {' and '.join(TRIED)} have them. Commands that need one say so in a line. All others work.",
        f"pip install 'lerobot=={TESTED['lerobot']}', or a newer Strobe",
    )


def extras(installed: Iterable[str] | None = None) -> Iterator[SelfCheck]:
    """Say which of Strobe's extras are there.

    Args:
        installed: names of packages; by default this environment's.
    """
    present = {_plain(name) for name in (installed or (distribution.name for distribution in metadata.distributions()))}
    for extra, needs in _extras().items():
        missing = [name for name in needs if _plain(name) not in present]
        yield SelfCheck.judge(
            "tools",
            f"extra '{extra}'",
            not missing,
            f"not installed: {', '.join(missing)}" if missing else ", ".join(needs),
            "A command that needs it says so in one line.",
            install(extra),
            bad="missing",
        )


def judge_version(name: str, version: str, tested: str, required: Requirement | None) -> SelfCheck:
    """Judge one package's version: known, newer than tested, older than tested, or too old."""
    try:
        here, known = Version(version), Version(tested)
    except InvalidVersion:
        return _check(name, "doubtful", f"{version}: no version that can be compared", "It was never tested.", "")
    if required is not None and not required.specifier.contains(here, prereleases=True):
        newer = here > known
        means = "newer than Strobe allows" if newer else "too old for Strobe"
        return _check(
            name,
            "fails",
            f"{version}; required: {required.specifier}",
            f"It is {means}: parts may not be found, or be found wrongly.",
            f"pip install '{name}=={tested}'",
        )
    # Local parts (2.11.0+cu128) and patch releases are the same for us.
    if here.release[:2] == known.release[:2]:
        return _check(name, "holds", f"{version}; tested: {tested}", "", "")
    if here > known:
        means = (
            "Newer than the version that Strobe was tested with: probes that do not fit say so, and the figures "
            "are valid."
        )
    else:
        means = (
            "Older than the version that Strobe was tested with, and allowed: probes that do not fit say so, and "
            "the figures are valid."
        )
    return _check(
        name, "doubtful", f"{version}; tested: {tested}", means, f"pip install '{name}=={tested}' if in doubt"
    )


def _python(version: tuple[int, int]) -> SelfCheck:
    oldest, tested = PYTHON
    seen = f"{platform.python_version()}; tested: {tested[0]}.{tested[1]}"
    if version > tested:
        return _check("python", "doubtful", seen, "Newer than the version that Strobe was tested with.", "")
    return _check("python", "holds" if version >= oldest else "fails", seen, "", "")


def _check(name: str, outcome: Outcome, seen: str, means: str, do: str) -> SelfCheck:
    return SelfCheck(area="versions", name=name, outcome=outcome, seen=seen, means=means, do=do)


def _installed_versions(names: Iterable[str]) -> dict[str, str]:
    present = {}
    for name in names:
        try:
            present[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return present


def _required_versions() -> dict[str, Requirement]:
    every = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    return {
        requirement.name: requirement
        for requirement in every
        if requirement.name in TESTED and len(requirement.specifier)
    }


def _extras() -> dict[str, list[str]]:
    """Each extra of Strobe → the packages it names; for an extra that is LeRobot's, those that LeRobot's names."""
    named = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    needed = {extra: sorted({*_extra_requirements(DISTRIBUTION, extra)}) for extra in named if extra not in NO_EXTRAS}
    return {extra: packages for extra, packages in needed.items() if packages}


def _extra_requirements(package: str, extra: str) -> list[str]:
    packages: list[str] = []
    for text in metadata.requires(package) or ():
        requirement = Requirement(text)
        if requirement.marker is None or not _is_only_for_extra(requirement, extra):
            continue
        if requirement.extras:
            packages += [
                name for nested in requirement.extras for name in _extra_requirements(requirement.name, nested)
            ]
        else:
            packages.append(requirement.name)
    return packages


def _is_only_for_extra(requirement: Requirement, extra: str) -> bool:
    assert requirement.marker is not None
    return requirement.marker.evaluate({"extra": extra}) and not requirement.marker.evaluate({"extra": ""})


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
