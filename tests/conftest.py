"""What holds for all tests."""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from support.suite.browser import Browse, Browser

pytest_plugins = ["support.suite.durations", "support.suite.patience"]

# Workers that each use all cores hold each other up. Set before anything imports torch, for all that tests start too.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Nothing is fetched.
os.environ["HF_HUB_OFFLINE"] = "1"
# The key of the user's own runs is theirs.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="strobe-state-")


@atexit.register
def _remove_state(folder: str = os.environ["XDG_STATE_HOME"], owner: int = os.getpid()) -> None:
    if os.getpid() == owner:  # not in a fork
        shutil.rmtree(folder, ignore_errors=True)


# Else torch.compile asks, in each process, by starting Pythons that import torch; how fast its code is is not tested.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")

# A shell that runs pytest in the background lets it, and all that it starts, ignore Ctrl-C, which some tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The time that an example takes says more about what else runs on the machine than about the code.
# One commit gives one verdict: examples follow from the test. ``--hypothesis-profile=search`` draws new and more ones.
_calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _calm, derandomize=True)
settings.register_profile("search", _calm, max_examples=2000)
settings.register_profile("few", _calm, derandomize=True, max_examples=10)  # in `make check`
settings.load_profile("same")


@pytest.hookimpl(tryfirst=True)  # the marks are there when pytest selects by them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that open a browser; those that need an accelerator are skipped where there is none."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
    marked = [item for item in items if "gpu" in item.keywords]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _ordinary_priority() -> None:
    """Take back the real-time priority that the encoder SVT-AV1 gives to a process of root's that records video.

    A driver that spins would keep the process that emulates its servos, which inherits it, from the cores for good.
    """
    if hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """The fixtures have written their recordings by now."""
    _ordinary_priority()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """So has the test itself."""
    _ordinary_priority()


@pytest.fixture(scope="module", autouse=True)
def _give_memory_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each file let go of the models that it kept: a worker runs many, and what is freed can lie scattered."""
    yield
    for kept in vars(request.module).values():
        if hasattr(kept, "cache_clear") and getattr(kept, "__module__", "") == request.module.__name__:
            kept.cache_clear()
    if (dynamo := sys.modules.get("torch._dynamo")) is not None:
        dynamo.reset()
    gc.collect()
    gc.freeze()  # what is left are modules: to look through them again takes 0.4 s, for each file and many times within
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="module", autouse=True)
def _logs_as_before() -> Iterator[None]:
    """What LeRobot's commands put on the root logger would be on the stderr of other files' tests."""
    from strobe.lerobot.quiet import root_logger_restored

    with root_logger_restored():
        yield
    assert logging.root.manager.disable == logging.NOTSET, "a test of this file leaves logging disabled"


@pytest.fixture(autouse=True)
def _isolated_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep earlier ladders and engines out of the user's cache: none is read there, and none is left."""
    if "STROBE_CACHE" not in os.environ:
        base = request.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        monkeypatch.setenv("STROBE_CACHE", str(base / "cache" / f"{abs(hash(request.node.nodeid))}"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Headless Chromium for the pages of a file of tests. Skips where there is none."""
    from support.suite.browser import NAMES, Browser, find_browser

    if find_browser() is None:
        pytest.skip(f"no Chromium on the PATH (looked for {', '.join(NAMES)}): apt-get install chromium")
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def browse(browser: Browser, tmp_path: Path) -> Browse:
    """Open a page and return what its document has become once it has settled."""

    def open_page(source: str, **window: Any) -> str:
        page = tmp_path / "page.html"
        page.write_text(source, encoding="utf-8")
        return browser.document(page.as_uri(), **window)

    return open_page


@pytest.fixture(scope="session")
def saved_policies(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Tiny policies of random weights as LeRobot saves them, and what they were, by their kinds."""
    from support.builders.checkpoints import FEW_STEPS, tiny_checkpoint

    folders = {kind: tmp_path_factory.mktemp(kind) for kind in FEW_STEPS}
    return {kind: (folder, tiny_checkpoint(kind, folder)) for kind, folder in folders.items()}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An accelerator of two cards that stands in for torch's module of every type of device."""
    import torch
    from support.devices.made_up_accelerator import Accelerator

    accelerator = Accelerator()
    monkeypatch.setattr(torch, "get_device_module", lambda _: accelerator)
    return accelerator


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time that passes only where a test sleeps by it."""
    from support.fakes.sleeper import Clock

    return Clock().wind(monkeypatch)


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes of PushT, as a LeRobotDataset with video."""
    from strobe.simulators.scripted import record_pusht

    return record_pusht(tmp_path_factory.mktemp("pusht") / "data", episodes=2, frames=12, image=96)


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find this machine at rest, whatever runs beside the tests."""
    from strobe.core.measure import other_work

    monkeypatch.setattr(other_work, "look", lambda: other_work.OtherWork(2, 0.0, 0.0))
