"""`strobe compare --variant 'next: python=OTHER/bin/python'`: the same policy in two Python environments.

Does the robot still act the same after an upgrade, or with a pull request? Is it slower? Strobe starts a process in
each environment, and both load the same policy. Their rounds alternate. Neither computes while the other one is timed.
Both then act on the same observations with the same noise. Strobe judges the time in pairs and the actions by the guard
of rounding. It names the first stage of a chunk that differs: a setting, weights, a processor's step, vision, prefix, a
denoising step. It also compares the loss and the gradient of a training batch, and lists the packages that differ.

A variant's keys are python (an interpreter with torch and LeRobot, Python 3.10 or later) and lerobot (a checkout, used
in place of the installed LeRobot). With one such variant the first side is this environment. With several, the first
variant is the first side. The other environment needs no Strobe. Only a policy with random weights (--policy.type)
needs more there: Python 3.12 and Strobe's own dependencies, because Strobe's source builds it there too.

Examples:
  strobe compare --policy.path=FOLDER --dataset.root=DATASET --variant 'next: python=.venv-next/bin/python'
  strobe compare --policy.path=FOLDER --variant 'main: lerobot=BASE' --variant 'pr: lerobot=HEAD'
  strobe report RUN --output=pr.md                                     the answer as Markdown, for the pull request
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from strobe.core.cli.bounds import exclusive_minimum_bound, minimum_bound
from strobe.core.cli.live import Live
from strobe.core.cli.parse import take_repeated
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError, nearest
from strobe.core.slices import variant_settings
from strobe.environments.side import SideOptions
from strobe.lerobot.policies.options import PolicyOptions
from strobe.policy_cli.run_flags import InputFlags, SubjectFlags, read_flags
from strobe.policy_cli.subject import build_study_answer, load_subject

KEYS = ("python", "lerobot")
HERE = "this environment"


@dataclass
class CompareEnvironmentsConfig(InputFlags):
    """Flags of `strobe compare` for environments."""

    # How many rounds to measure. By default until the interval is narrow enough (see --interval).
    iterations: int | None = field(default=None, metadata=minimum_bound(1))
    # Time to spend on the rounds, in seconds (default: 30, or longer for six rounds; with --iterations no limit). What
    # follows takes about as long again. Loading comes on top.
    seconds: float | None = field(default=None, metadata=exclusive_minimum_bound(0))
    # Stop when the half-width of the interval of every ratio is below this share.
    interval: float = field(default=0.01, metadata=exclusive_minimum_bound(0))
    # Samples in the batch of the training step.
    batch_size: int = field(default=2, metadata=minimum_bound(1))
    # Equivalence margin: "as fast" means that the interval lies within ± this share.
    as_fast_within: float = field(default=0.02, metadata=exclusive_minimum_bound(0))
    # An environment, 'NAME: python=INTERPRETER, lerobot=CHECKOUT'; may be repeated.
    variant: list[str] = field(default_factory=list)


def read(argv: Sequence[str]) -> CompareEnvironmentsConfig:
    """Return the flags, checked. Raises UserError."""
    texts, rest = take_repeated(argv, "--variant")
    config = read_flags(CompareEnvironmentsConfig, rest, extra=["--variant"])
    config.variant = texts
    parse_sides(texts)  # checks them
    require_policy(config.subject)
    return config


def require_policy(subject: SubjectFlags) -> PolicyOptions:
    """Return the flags of a policy of LeRobot. Raises UserError for anything else."""
    if isinstance(subject, PolicyOptions):
        return subject
    raise UserError("other environments run policies of LeRobot: give --policy.path, or --policy.type")


def is_overridden(config: InputFlags) -> bool:
    """Return whether flags change the config of a checkpoint."""
    policy = require_policy(config.subject)
    return policy.path is not None and bool(policy.overrides)


def parse_sides(texts: Sequence[str]) -> list[SideOptions]:
    """Return the sides that variants name, the first one first. Raises UserError."""
    sides = [parse_side(text) for text in texts]
    if len(sides) == 1:
        sides.insert(0, SideOptions(HERE))
    names = [side.name for side in sides]
    if len(set(names)) < len(names):
        raise UserError(f"two variants have the same name: {', '.join(names)}")
    for side in sides:
        side.check()
    return sides


def parse_side(text: str) -> SideOptions:
    """Read ``'NAME: python=INTERPRETER, lerobot=CHECKOUT'``. Raises UserError."""
    name, colon, _ = text.partition(":")
    given = variant_settings(text)
    if not colon or not name.strip() or not given:
        raise UserError(f"--variant '{text}': write 'NAME: python=INTERPRETER, lerobot=CHECKOUT'")
    for key, value in given:
        if key not in KEYS:
            hint = nearest(key, KEYS)
            raise UserError(f"--variant '{text}': a variant that names an environment has no '{key}': {hint}")
        if not value:
            raise UserError(f"--variant '{text}': {key}= names nothing")
    return SideOptions(name.strip(), **dict(given))


def study(config: CompareEnvironmentsConfig, live: Live) -> Studied:
    """Load the policy on all sides and compare them. Raises UserError; KeyboardInterrupt before the first round."""
    from strobe.core.cli.live import importing

    with importing(announced=True):
        from strobe.core.measure.sampling import SamplingBudget
        from strobe.core.studies.shared.measuring import Options
        from strobe.environments.run import compare_environments
        from strobe.environments.sides import SidesOptions

    budget = SamplingBudget.make_requested(config.iterations, config.seconds, precision=config.interval)
    measuring = Options(budget, counted=False, within=config.as_fast_within)
    options = SidesOptions(
        sides=parse_sides(config.variant),
        seed=config.seed,
        threads=config.threads or 0,
        overridden=is_overridden(config),
        batch_size=config.batch_size,
    )
    with tempfile.TemporaryDirectory(prefix="strobe-") as folder:
        result = compare_environments(partial(load_subject, config, live), options, measuring, Path(folder), live)
    return build_study_answer(result, config)


COMPARE = Command("compare", __doc__, CompareEnvironmentsConfig, read, study, heavy="timed", gives_way=True)
