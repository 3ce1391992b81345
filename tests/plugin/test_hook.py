"""The plug-in looks at every policy that LeRobot loads, and does nothing where no recipe is for it."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from support.builders.checkpoints import tiny_checkpoint, tiny_recipe
from support.suite import warm

import strobe
from strobe.core.runs.recipe_file import dump
from strobe.deploy import attach_recipe_on_load, checking, trial
from strobe.lerobot.policies.policy_subject import PolicySubject

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("lerobot_policy_strobe") is None, reason="the plug-in is not installed: make env"
)
BF16 = {"precision": "bf16"}
CHEAP = """
import sys
import lerobot_policy_strobe
print([name for name in ("torch", "strobe", "lerobot", "numpy") if name in sys.modules])
"""
# Policy classes that are imported after the plug-in.
TO_COME = """
import sys
for name in [name for name in sys.modules if name.startswith("lerobot.policies.")]:
    if name.endswith(".pretrained") or ".modeling_" in name:
        del sys.modules[name]
import lerobot_policy_strobe
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
print(*[hasattr(kind.from_pretrained.__func__, "_strobe_looks_at_it") for kind in (ACTPolicy, PI05Policy)])
print("strobe" in sys.modules)
"""


@pytest.fixture(autouse=True)
def _installed_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    import lerobot_policy_strobe  # noqa: F401

    monkeypatch.setattr(trial, "SECONDS", 0.3)
    monkeypatch.setattr(checking, "SECONDS", 0.3)
    monkeypatch.delitem(sys.modules, "lerobot.scripts.lerobot_train", raising=False)
    for name in ("STROBE_RECIPE", "STROBE_WATCH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def saved_policy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PolicySubject]:
    folder = tmp_path_factory.mktemp("act")
    subject = tiny_checkpoint("act", folder)
    dump(tiny_recipe("act", BF16), folder / "recipe.yaml")
    return folder, subject


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "strobe")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "strobe"]


def load(folder: Path) -> Any:
    from lerobot.policies.factory import get_policy_class

    kind: Any = get_policy_class("act")
    return kind.from_pretrained(folder)


def act(policy: Any, subject: PolicySubject) -> None:
    policy.predict_action_chunk(subject.loaded.preprocessor(subject.observation(0)))


def dtype(policy: Any) -> torch.dtype:
    return next(policy.parameters()).dtype


def test_importing_it_costs_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", CHEAP], capture_output=True, text=True, check=False)
    assert ran.stdout == "[]\n", ran.stderr


def test_classes_to_come_are_looked_at() -> None:
    ran = warm.run("-c", TO_COME)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["True True", "False"]


def test_a_checkpoint_that_holds_a_recipe_runs_with_it(saved_policy: tuple[Path, PolicySubject], lines: Any) -> None:
    policy = load(saved_policy[0])
    assert dtype(policy) == torch.bfloat16
    assert lines() == []
    act(policy, saved_policy[1])
    assert lines()[0].startswith("strobe: recipe.yaml on act: 1 treatment, ")


def test_the_environment_names_another_or_none(
    saved_policy: tuple[Path, PolicySubject], tmp_path: Path, lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump(tiny_recipe("act", {"channels_last": True}), tmp_path / "other.yaml")
    monkeypatch.setenv("STROBE_RECIPE", str(tmp_path / "other.yaml"))
    policy = load(saved_policy[0])
    act(policy, saved_policy[1])
    assert dtype(policy) == torch.float32
    assert lines()[0].startswith("strobe: other.yaml on act: ")
    monkeypatch.setenv("STROBE_RECIPE", "off")
    assert "predict_action_chunk" not in vars(load(saved_policy[0]))
    monkeypatch.setenv("STROBE_RECIPE", str(tmp_path / "none.yaml"))
    assert "predict_action_chunk" not in vars(load(saved_policy[0]))
    assert lines()[1].startswith("strobe: none.yaml is not used: cannot read the recipe")
    assert len(lines()) == 2


def test_a_share_that_is_none_is_told(
    saved_policy: tuple[Path, PolicySubject], lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STROBE_WATCH", "often")
    assert dtype(load(saved_policy[0])) == torch.bfloat16
    assert lines() == ["strobe: STROBE_WATCH=often must be a share of the chunks from 0 to 1: nothing is watched"]


def test_strobe_itself_loads_policies_as_they_are(saved_policy: tuple[Path, PolicySubject], lines: Any) -> None:
    """It measures them, or puts a recipe of its own on."""
    from strobe.lerobot.policies.loading import load_subject
    from strobe.lerobot.policies.options import PolicyOptions

    assert dtype(strobe.load_policy(saved_policy[0]).policy) == torch.float32
    assert (
        dtype(load_subject(PolicyOptions(path=str(saved_policy[0]), overrides=["--device=cpu"])).policy)
        == torch.float32
    )
    with attach_recipe_on_load(tiny_recipe("act", {"channels_last": True})):
        assert dtype(load(saved_policy[0])) == torch.float32
    assert lines() == []


def test_a_training_is_left_alone(
    saved_policy: tuple[Path, PolicySubject], lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lerobot.scripts.lerobot_train", ModuleType("lerobot_train"))
    assert dtype(load(saved_policy[0])) == torch.float32
    assert lines() == [
        "strobe: recipe.yaml is not used: recipes are for inference, and this is a training; the policy runs unchanged"
    ]


def test_without_strobe_the_policy_runs_as_it_is(
    saved_policy: tuple[Path, PolicySubject], lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "strobe.deploy.trial", None)
    assert dtype(load(saved_policy[0])) == torch.float32
    assert "recipe.yaml is not used: Strobe cannot be imported (" in lines()[0]


def test_the_policy_server_gets_plugins_and_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of LeRobot 0.6.1 loads none by itself. It needs grpc, which need not be there for this."""
    from lerobot.utils import import_utils
    from lerobot_policy_strobe import policy_server

    called: list[str] = []
    server = ModuleType("lerobot.async_inference.policy_server")
    server.serve = lambda: called.append("serve")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lerobot.async_inference.policy_server", server)
    monkeypatch.setattr(import_utils, "register_third_party_plugins", lambda: called.append("plug-ins"))
    policy_server.main()
    assert called == ["plug-ins", "serve"]
