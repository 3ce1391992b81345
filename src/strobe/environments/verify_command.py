"""`strobe verify --against_python=OTHER/bin/python`: does the policy act in another environment as in this one?

Strobe starts a process in each environment, and both load the same policy. They act on the same observations with the
same noise. The guard is that of rounding, or --guard. The answer names the first stage of a chunk that differs, and the
packages that differ. --against_lerobot=CHECKOUT tries a checkout of LeRobot in place of the installed one. To time both
as well: strobe compare --variant 'next: python=…'.

Examples:
  strobe verify --policy.path=FOLDER --dataset.root=DATASET --against_python=.venv-next/bin/python
  strobe verify --policy.path=FOLDER --against_lerobot=../lerobot
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from strobe.core.cli.bounds import exclusive_minimum_bound, minimum_bound
from strobe.core.cli.live import Live, importing
from strobe.core.cli.runner import EXIT_CODES, Command, Studied
from strobe.environments.compare_command import HERE, is_overridden, require_policy
from strobe.environments.side import SideOptions
from strobe.policy_cli.run_flags import InputFlags, read_flags
from strobe.policy_cli.subject import build_study_answer, load_subject

THERE = "the other environment"


@dataclass
class VerifyEnvironmentConfig(InputFlags):
    """Flags of `strobe verify` for environments."""

    # The other environment's interpreter: Python 3.10 or later, with torch and LeRobot.
    against_python: str | None = None
    # A checkout of LeRobot, used there in place of the installed one.
    against_lerobot: str | None = None
    # How far the actions may be apart (default: rms<=0.02, worst<=0.2, flips<=0).
    guard: str = ""
    # How many observations to compare on.
    observations: int = field(default=16, metadata=minimum_bound(2))
    # Seconds for the comparison of the actions, roughly. If a chunk takes long, there are fewer observations.
    seconds: float | None = field(default=600.0, metadata=exclusive_minimum_bound(0))


def read(argv: Sequence[str]) -> VerifyEnvironmentConfig:
    """Return the flags, checked. Raises UserError."""
    from strobe.core.measure.guard import Guards

    refused = {"--recipe": "--recipe is checked in this environment: leave it out, or --against_python"}
    config = read_flags(VerifyEnvironmentConfig, argv, refused=refused)
    other_side(config).check()
    Guards.from_flag(config.guard, "actions", "strobe evaluate")
    require_policy(config.subject)
    return config


def other_side(config: VerifyEnvironmentConfig) -> SideOptions:
    """Return the other side."""
    return SideOptions(THERE, config.against_python, config.against_lerobot)


def study(config: VerifyEnvironmentConfig, live: Live) -> Studied:
    """Load the policy in both environments and compare its actions. Raises UserError."""
    with importing(announced=True):
        from strobe.core.measure.guard import Guards
        from strobe.environments.run import verify_environment
        from strobe.environments.sides import SidesOptions

    options = SidesOptions(
        sides=[SideOptions(HERE), other_side(config)],
        seed=config.seed,
        threads=config.threads or 0,
        overridden=is_overridden(config),
    )
    how = {"count": config.observations, "seconds": config.seconds or math.inf}
    with tempfile.TemporaryDirectory(prefix="strobe-") as folder:
        load, guards = partial(load_subject, config, live), Guards.parse(config.guard)
        result = verify_environment(load, options, guards, Path(folder), live, **how)
    return build_study_answer(result, config, code=EXIT_CODES[result.outcome])


VERIFY = Command("verify", __doc__, VerifyEnvironmentConfig, read, study, heavy="untimed", gives_way=True)
