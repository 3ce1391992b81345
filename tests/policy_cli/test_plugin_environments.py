"""An environment of a plug-in, a distribution lerobot_env_*, is known by its type to every command with --env."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from lerobot.envs.configs import EnvConfig

from strobe.core.cli.parse import parse
from strobe.core.errors import UserError
from strobe.lerobot.flags.lazy_flags import realise
from strobe.policy_cli.run_flags import RunConfig

PLUGIN = """
from dataclasses import dataclass
from lerobot.envs.configs import EnvConfig
@EnvConfig.register_subclass("made_up_env")
@dataclass
class MadeUp(EnvConfig):
    wheels: int = 4
    gym_kwargs = {}
"""


@pytest.fixture
def made_up_plugin(tmp_path, monkeypatch):
    (tmp_path / "lerobot_env_made_up").mkdir()
    (tmp_path / "lerobot_env_made_up" / "__init__.py").write_text(PLUGIN)
    info = tmp_path / "lerobot_env_made_up-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lerobot_env_made_up\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    EnvConfig._choice_registry.pop("made_up_env", None)
    sys.modules.pop("lerobot_env_made_up", None)


def test_a_plug_in_environment_and_its_fields_are_flags(made_up_plugin):
    config: Any = parse(RunConfig, ["--env.type=made_up_env", "--env.wheels=6"])
    assert (config.env.type, config.env.wheels) == ("made_up_env", 6)
    assert "lerobot_env_made_up" not in sys.modules, "its source is read"
    realise(config)
    assert (config.env.type, config.env.wheels) == ("made_up_env", 6)
    assert isinstance(config.env, EnvConfig)


def test_a_misspelt_field_of_a_plug_in_s_environment_is_answered(made_up_plugin):
    with pytest.raises(UserError, match=r"unknown flag --env\.wheesl: did you mean --env\.wheels"):
        parse(RunConfig, ["--env.type=made_up_env", "--env.wheesl=6"])


def test_an_environment_that_nobody_knows_is_a_line():
    with pytest.raises(UserError, match="unknown environment 'nobodys': known: aloha"):
        parse(RunConfig, ["--env.type=nobodys"])
