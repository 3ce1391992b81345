"""LIBERO: an import that asks nothing, assets from a folder, starts by seed; a real one where it is installed."""

from __future__ import annotations

import json
import os
import sys
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.builders.tiny_policies import load_tiny_subject

from strobe.core.errors import UserError
from strobe.lerobot.envs import environments, libero

# As LIBERO does: it asks while it is imported, keeps the place of its assets, and swallows what a reset raises.
LIBERO = """
import os
folder = os.environ.get("LIBERO_CONFIG_PATH", os.path.expanduser("~/.libero"))
if not os.path.exists(os.path.join(folder, "config.yaml")):
    input("Do you want to specify a custom path for the dataset folder? (Y/N): ")
_assets_path_cache = None
def get_assets_path():
    return _assets_path_cache or os.path.join(os.path.dirname(__file__), "assets")
"""
WRAPPER = """
class RandomizationError(Exception): ...
class ControlEnv:
    def reset(self):
        for _ in range(3):
            try:
                return self.env.reset()
            finally:
                continue
"""


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A LIBERO that does only what is in the way of using it, for a user who has no config file."""
    package = tmp_path / "site" / "libero" / "libero"
    (package / "envs").mkdir(parents=True)
    for file, text in {"../__init__.py": "", "__init__.py": LIBERO, "envs/__init__.py": "",
                       "envs/env_wrapper.py": WRAPPER}.items():  # fmt: skip
        (package / file).write_text(text)
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "libero"}
    for name in kept:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path / "none"))
    monkeypatch.delenv(libero.ASSETS, raising=False)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked on standard input"))
    yield package
    for name in [name for name in sys.modules if name.split(".")[0] == "libero"]:
        del sys.modules[name]
    sys.modules.update(kept)


def assets(folder: Path) -> Path:
    for part in ("scenes", "textures"):
        (folder / part).mkdir(parents=True)
    return folder


def test_it_is_imported_without_a_question_and_finds_the_assets_that_are_named(made_up, tmp_path, monkeypatch):
    monkeypatch.setenv(libero.ASSETS, str(assets(tmp_path / "kept")))
    libero.prepare()
    written = json.loads((Path(os.environ["LIBERO_CONFIG_PATH"]) / "config.yaml").read_text())
    assert written["bddl_files"] == str(made_up / "bddl_files")
    assert written["init_states"] == str(made_up / "init_files")
    assert sys.modules["libero.libero"].get_assets_path() == str(tmp_path / "kept")
    assert not (made_up / "assets").exists(), "nothing is put into the package"
    assert not (tmp_path / ".libero").exists(), "nor into the user's home"


def test_the_users_own_config_stays(made_up, tmp_path, monkeypatch):
    assets(made_up / "assets")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.yaml").write_text("datasets: /mine")
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path / "own"))
    libero.prepare()
    assert os.environ["LIBERO_CONFIG_PATH"] == str(tmp_path / "own")
    assert (tmp_path / "own" / "config.yaml").read_text() == "datasets: /mine"


def test_what_is_missing_is_a_line(made_up, tmp_path, monkeypatch):
    with pytest.raises(
        UserError, match="LIBERO's assets are missing and cannot be fetched from the Hub: set STROBE_LIBERO_"
    ):
        libero.prepare()
    monkeypatch.setenv(libero.ASSETS, str(tmp_path))
    with pytest.raises(UserError, match="is not a folder of LIBERO's assets: it has no scenes/"):
        libero.prepare()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="not installed: `make libero` makes an environment"):
        environments.require_simulator("libero")


def test_ctrl_c_in_a_reset_is_not_swallowed(made_up):
    assets(made_up / "assets")
    libero.prepare()
    wrapper = sys.modules["libero.libero.envs.env_wrapper"]
    draws = iter([wrapper.RandomizationError, KeyboardInterrupt, None])

    def reset():
        if (error := next(draws)) is not None:
            raise error

    env = wrapper.ControlEnv()
    env.env = SimpleNamespace(reset=reset)
    with pytest.raises(KeyboardInterrupt):
        env.reset()


def test_a_start_is_chosen_by_seed():
    env = SimpleNamespace(unwrapped=SimpleNamespace(init_state_id=17))
    libero.choose_starts(SimpleNamespace(envs=[env]), [3])
    assert env.unwrapped.init_state_id == 3
    other = SimpleNamespace(unwrapped=SimpleNamespace())
    libero.choose_starts(SimpleNamespace(envs=[other]), [3])
    assert vars(other.unwrapped) == {}


@pytest.mark.skipif(util.find_spec("libero") is None, reason="LIBERO is not installed: make libero")
@pytest.mark.skipif(not os.environ.get(libero.ASSETS), reason=f"{libero.ASSETS} names no assets")
def test_a_real_episode_begins_where_its_seed_says_whatever_was_played_before(monkeypatch, tmp_path):
    from lerobot.envs.factory import make_env_config

    from strobe.simulators.simulator import TimedSimulator

    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked on standard input"))
    size = {"observation_height": 64, "observation_width": 64}
    env = make_env_config("libero", task="libero_spatial", task_ids=[0], episode_length=3, **size)
    subject = load_tiny_subject("act", env=env)
    simulator = TimedSimulator(env, subject)
    try:
        first, times = simulator.play_timed("libero_spatial", 4)
        other, _ = simulator.play_timed("libero_spatial", 5)
        again, _ = simulator.play_timed("libero_spatial", 4)
    finally:
        simulator.close()
    assert first.start == again.start != other.start
    assert first.same_ticks(again) == 3
    assert times.render_ms > 0
    assert min(times.step_ms, times.reset_ms, times.policy_ms) > 0
