"""One line, with the cause and what fixes it, for whatever the Hub, a missing package or a policy does wrong."""

from __future__ import annotations

import importlib
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.policies.act.configuration_act import ACTConfig

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.families import registry
from strobe.core.timeline.probe import Attached, Hook
from strobe.lerobot.policies import lerobot_policies
from strobe.lerobot.policies.standins import ZOO
from strobe.lerobot.refusals import convert_errors, make_refusal, outside_error_line


@pytest.fixture(autouse=True)
def _offline_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


# Each reads another kind of thing from the Hub, by another library's way: a config, a tokenizer, weights.
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("groot", "this policy reads nvidia/GR00T-N1.7-3B from the Hub, which cannot be reached"),
        ("eo1", "`hf download Qwen/Qwen2.5-VL-3B-Instruct`"),
        ("vla_jepa", "`hf download Qwen/Qwen3-VL-2B-Instruct`"),
        ("evo1", "`hf download OpenGVLab/InternVL3-1B-hf`"),
        ("multi_task_dit", "`hf download openai/clip-vit-base-patch16`"),
        ("fastwam", "`hf download "),
        ("tdmpc", "at most one image"),
        ("vqbet", "only one image"),
        ("xvla", "vision_config is required"),
    ],
)
def test_a_policy_that_cannot_be_made_is_a_line(
    kind: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind not in lerobot_policies.known_types():
        pytest.skip(f"this LeRobot has no {kind}")
    assert registry.find_family(kind) is not None
    monkeypatch.delitem(registry.records(), kind)  # as a type that has no record, and no stand-ins
    assert main(["breakdown", f"--policy.type={kind}", "--policy.device=cpu"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("strobe: ")
    assert said in line
    assert ("; strobe-zoo, which names the parts of" in line) == (kind in ZOO)


def raise_with_cause(error: Exception, cause: Exception | None = None) -> None:
    raise error from cause


def make_hub_error(pretrained_model_name_or_path: str) -> Exception:
    """Return an error that says that the Hub is not there, as transformers raises it, raised while this was asked."""
    try:
        raise OSError("We couldn't connect to 'https://huggingface.co' to load the files")
    except OSError as error:
        return error


def test_a_repository_that_was_asked_for_is_named_from_where_the_error_came() -> None:
    with pytest.raises(UserError, match="`hf download owner/name`"), convert_errors("act"):
        raise_with_cause(RuntimeError("no tokenizer"), make_hub_error("owner/name"))


def test_weights_that_torch_downloads_are_named_by_their_address(tmp_path: Path) -> None:
    url = "file:///no/such/resnet18-made-up.pth"
    with (
        pytest.raises(UserError, match=f"reads {url}, which cannot be reached: .*TORCH_HOME"),
        convert_errors("made_up"),
    ):
        torch.hub.load_state_dict_from_url(url, model_dir=str(tmp_path))


def test_a_line_of_ours_stays_as_it_is_however_deep() -> None:
    with pytest.raises(UserError, match=r"^no such file$"), convert_errors("act"):
        raise_with_cause(RuntimeError("LeRobot's own words"), UserError("no such file"))


def test_want_of_memory_is_no_fault_of_the_policys() -> None:
    with pytest.raises(RuntimeError, match="can't allocate"), convert_errors("act"):
        raise_with_cause(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes"))


def test_packages_that_are_missing_are_named() -> None:
    missing = ModuleNotFoundError("No module named 'thing'", name="thing.a")
    assert "needs the package thing," in str(make_refusal(missing, ""))


@dataclass
class Abstract(PreTrainedConfig):
    """A config as a plug-in for an older LeRobot has it: of what LeRobot asks for, it has nothing."""


@dataclass
class Asking(ACTConfig):
    """A config with a field that nobody can guess."""

    encoder_path: str = field(kw_only=True)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Abstract, "config: Can't instantiate abstract class Abstract without .*'action_delta_indices'"),
        (Asking, "Missing required field.* `encoder_path` for Asking; give --policy.encoder_path="),
    ],
)
def test_a_config_that_cannot_be_made_says_what_it_misses(
    choice: type, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lerobot_policies.known_types()  # plug-ins are registered once, and this is none
    monkeypatch.setitem(PreTrainedConfig._choice_registry, "made_up", choice)
    with pytest.raises(UserError, match=said):
        lerobot_policies.config_from_type("made_up", [])


@pytest.fixture
def plugin_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed plug-in that asks for the package ``made.up-tools`` and has no module of its own but one."""
    about = tmp_path / "lerobot_policy_halved-1.2.dist-info"
    about.mkdir()
    asked = "Name: lerobot-policy-halved\nVersion: 1.2\nRequires-Dist: made.up-tools>=3; python_version>'3'\n"
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\n{asked}")
    (tmp_path / "lerobot_policy_halved.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugin_package")
def test_a_package_that_a_plug_in_asks_for_is_named_as_it_is_installed() -> None:
    missing = ModuleNotFoundError("No module named 'made_up_tools'", name="made_up_tools")
    assert str(make_refusal(missing, "")).endswith("made_up_tools, which is not installed: pip install made.up-tools")


@pytest.mark.usefixtures("plugin_package")
def test_a_plug_in_without_all_its_modules_is_not_told_to_be_of_another_version() -> None:
    said = "the plug-in lerobot_policy_halved 1.2 is incomplete: it has no 'lerobot_policy_halved.processor_halved'"
    with pytest.raises(UserError, match=said), convert_errors("halved"):
        importlib.import_module("lerobot_policy_halved.processor_halved")


@pytest.mark.parametrize("asked", ["import lerobot.datasets.gone", "from lerobot.datasets import gone"])
def test_a_plug_in_that_was_made_for_another_lerobot_is_told_what_is_gone(asked: str) -> None:
    said = r"made for another version: lerobot [\d.]+ has no 'lerobot\.datasets\.gone'"
    with pytest.raises(UserError, match=said), convert_errors("made_up"):
        exec(asked)


@pytest.mark.parametrize("raised", [AssertionError(), TypeError("a bad argument")])
def test_a_policys_own_code_that_fails_while_it_runs_is_a_line(
    raised: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lerobot.policies.act.modeling_act import ACT

    module: Any = types.ModuleType("lerobot_policy_made_up")
    exec("def forward(self, *args, **kwargs):\n    raise error\n", vars(module))
    module.error = raised
    monkeypatch.setattr(ACT, "forward", module.forward)
    told = ["breakdown", "--policy.type=act", "--policy.size=tiny", "--policy.device=cpu"]
    assert main(told) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    said = f"the policy's own code failed in lerobot_policy_made_up, line 2: {type(raised).__name__}"
    assert said in line
    monkeypatch.setenv("STROBE_TRACEBACK", "1")
    with pytest.raises(type(raised)):
        main(told)


def test_a_probe_between_a_policys_calls_does_not_make_its_fault_ours() -> None:
    module: Any = types.ModuleType("lerobot_policy_made_up")
    exec("def forward(layer):\n    return layer(2)\n", vars(module))
    layer = torch.nn.Linear(1, 1)
    with Attached([Hook(layer, "forward", "layer")]), pytest.raises(TypeError) as caught:
        module.forward(layer)
    assert "failed in lerobot_policy_made_up, line 2: TypeError" in str(outside_error_line(caught.value))


def test_what_is_wrong_in_strobe_is_not_a_policys() -> None:
    assert outside_error_line(ValueError("ours")) is None
