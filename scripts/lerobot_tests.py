"""LeRobot's own tests of RTC, pi0, pi0.5 and SmolVLA, with Strobe's exact treatments on every policy that they make.

  git -C LEROBOT archive v0.6.1 tests | tar -x -C FOLDER
  python scripts/lerobot_tests.py FOLDER
  python scripts/lerobot_tests.py FOLDER --plain     # without treatments, to see what fails by itself

The tests want a GPU and what the Hub has. Here the policies are tiny, of the same architecture, on the CPU, and their
tokenizers are stand-ins; what asks for openpi's weights or for a compiled model of full size is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lerobot.policies.rtc.modeling_rtc import RTCProcessor

from strobe.core.families import registry
from strobe.core.results.subject import SubjectInfo
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.build import shrink
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.policies.standins import stand_ins
from strobe.treatments.flow.rtc import ClosedFormGuidance, Guidance

TESTS = (
    "tests/policies/rtc/test_modeling_rtc.py",
    "tests/policies/pi0_pi05/test_pi0.py",
    "tests/policies/pi0_pi05/test_pi05.py",
    "tests/policies/pi0_pi05/test_pi0_rtc.py",
    "tests/policies/pi0_pi05/test_pi05_rtc.py",
    "tests/policies/smolvla/test_smolvla_rtc.py",
)
POLICIES = {"pi0": "PI0Policy", "pi05": "PI05Policy", "smolvla": "SmolVLAPolicy"}
EXACT = (
    {"padding": "trimmed"},
    {"cameras": "batched"},
    {"prefix_tail": "skipped"},
    {"prefix_cache": "static"},
    {"timesteps": "precomputed"},
    {"masks": "once"},
)


class Treated:
    """A plug-in of pytest: tiny policies take the place of full-size ones, and each carries the treatments."""

    def __init__(self, plain: bool) -> None:
        self.plain, self.applied = plain, 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Wrappers ask for CUDA or a token, and marks for weights or no CI. Tests of CUDA tensors stay as they are.
        for item in items:
            item.own_markers = [m for m in item.own_markers if "CUDA not available" in str(m.kwargs.get("reason"))]
            if isinstance(item, pytest.Function):
                item.obj = inspect.unwrap(item.obj)

    @pytest.fixture(autouse=True)
    def tiny_and_treated(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for kind in POLICIES:
                stack.enter_context(stand_ins(kind, random_weights=True, tiny=True))
            for kind, name in POLICIES.items():
                choice = getattr(importlib.import_module(f"lerobot.policies.{kind}.modeling_{kind}"), name)
                patch.setattr(choice, "__init__", self._wrap_init(choice.__init__))
            if not self.plain:  # processors of no policy, for the tests of RTC alone
                patch.setattr(RTCProcessor, "denoise_step", lambda rtc, *args, **told: Guidance(rtc)(*args, **told))
            yield

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_line(f"treated policies: {self.applied}")

    def _wrap_init(self, plain: Any) -> Any:
        @functools.wraps(plain)
        def init(policy: Any, config: Any, *args: Any, **options: Any) -> None:
            config.device = "cpu"
            shrink(config)
            with registry.building(config, tiny=True):
                plain(policy, config, *args, **options)
            if not self.plain and config.image_features:  # without features it is never run
                self._treat(policy, config)

        return init

    def _treat(self, policy: Any, config: Any) -> None:
        info = SubjectInfo(name=config.type, kind=config.type, source="", inputs="", **lerobot_policies.count(policy))
        subject = PolicySubject(lerobot_policies.Loaded(policy, None, None, info), inputs.synthetic(config, count=1))
        treatments: list[Treatment] = [catalogue.make(spec) for spec in catalogue.sort_specs(EXACT)]
        if config.rtc_config is not None:
            treatments.append(ClosedFormGuidance())
        Variant("exact", tuple(treatments)).apply(subject)
        self.applied += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="that LeRobot's tests/ is in")
    parser.add_argument("--plain", action="store_true", help="without treatments, to see what fails by itself")
    arguments, more = parser.parse_known_args()
    if not (arguments.folder / TESTS[0]).is_file():
        parser.error(f"no {TESTS[0]} in {arguments.folder}")
    os.chdir(arguments.folder)
    sys.path.insert(0, ".")  # they import each other as tests.utils
    return pytest.main(["-q", "-p", "no:cacheprovider", *TESTS, *more], plugins=[Treated(arguments.plain)])


if __name__ == "__main__":
    sys.exit(main())
