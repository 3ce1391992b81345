"""Import LIBERO without its questions: its config file, its assets, and the starting states of its episodes."""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from importlib import import_module, util
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError

TYPES = ("libero", "libero_plus")
ASSETS = "STROBE_LIBERO_ASSETS"
_CONFIG = "LIBERO_CONFIG_PATH"  # LIBERO's own: the folder of its config.yaml
_PARTS = ("scenes", "textures")  # parts of the assets: every suite needs them


def prepare() -> None:
    """Import ``libero.libero`` safely and point it to its assets.

    Without a config file the import asks on standard input for a folder of data sets. If the user has no such file,
    this writes one into a folder of this process, with the package's own folders. Assets are looked for in the folder
    of the environment variable STROBE_LIBERO_ASSETS, in the package, and in LIBERO's cache, filled from the Hub.

    Raises:
        UserError: its assets are missing.
    """
    spec = util.find_spec("libero")
    assert spec is not None
    package = Path(next(iter(spec.submodule_search_locations or ())), "libero")
    assets = _named_assets()
    _give_config(package, assets)
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)  # it warns that its settings are the defaults
    libero = import_module("libero.libero")
    if assets is not None:
        vars(libero)["_assets_path_cache"] = str(assets)
    folder = Path(libero.get_assets_path())
    if not folder.is_dir():
        raise UserError(
            f"LIBERO's assets are missing and cannot be fetched from the Hub: set {ASSETS}=FOLDER to a copy of them"
        )
    if assets is not None and folder != assets:
        raise UserError(f"this LIBERO looks for no assets elsewhere: link {assets} to {package / 'assets'}")
    _let_errors_through()


def choose_starts(vector: object, seeds: Sequence[int]) -> None:
    """Let the environments of ``vector`` begin at the starting states that ``seeds`` index in LIBERO's list.

    LeRobot's environment takes the next state of the list at each reset, whatever the seed. With the seed as index, one
    seed is one start. Indices wrap around. Other simulators are left as they are.
    """
    for env, seed in zip(getattr(vector, "envs", ()), seeds, strict=False):
        inside: Any = getattr(env, "unwrapped", env)
        if hasattr(inside, "init_state_id"):
            inside.init_state_id = seed


def simulation(env: object) -> type | None:
    """Return the class whose ``render`` draws the cameras of a started LIBERO environment; None for other simulators.

    It is the class and not an object, because each reset makes a new simulation.
    """
    sim = getattr(getattr(env, "_env", None), "sim", None)
    return type(sim) if hasattr(env, "init_state_id") and callable(getattr(sim, "render", None)) else None


def _named_assets() -> Path | None:
    path = os.environ.get(ASSETS)
    if not path:
        return None
    folder = Path(path).expanduser().resolve()
    if missing := [part for part in _PARTS if not (folder / part).is_dir()]:
        raise UserError(f"{ASSETS}={path} is not a folder of LIBERO's assets: it has no {missing[0]}/")
    return folder


def _give_config(package: Path, assets: Path | None) -> None:
    users = Path(os.environ.get(_CONFIG) or Path.home() / ".libero")
    if (users / "config.yaml").is_file():
        return
    folder = Path(tempfile.mkdtemp(prefix="strobe-libero-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    paths = {
        "benchmark_root": package,
        "bddl_files": package / "bddl_files",
        "init_states": package / "init_files",
        "datasets": package.parent / "datasets",
        "assets": assets or package / "assets",
    }
    text = json.dumps({name: str(path) for name, path in paths.items()})  # JSON is YAML
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    os.environ[_CONFIG] = str(folder)


def _let_errors_through() -> None:
    wrapper = import_module("libero.libero.envs.env_wrapper")
    unlucky = wrapper.RandomizationError

    def reset(self: Any) -> Any:
        while True:
            try:
                return self.env.reset()
            except unlucky:  # objects that fit nowhere: place them again
                continue

    wrapper.ControlEnv.reset = reset
