"""Flags: their bounds, wherever they are declared, and the nearest one for a misspelt one."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest

from strobe.commands.breakdown import BreakdownConfig, read
from strobe.core.cli.bounds import check_bounds, exclusive_minimum_bound, minimum_bound, open_interval_bound
from strobe.core.cli.help import help_text
from strobe.core.cli.parse import parse
from strobe.core.errors import UserError
from strobe.dataloader.command import DataloaderConfig
from strobe.ladder.command import OptimizeConfig
from strobe.simulators.record_command import RecordConfig
from strobe.sweep.command import SweepConfig
from strobe.train.batch_command import BatchConfig
from strobe.train.command import TrainConfig


@dataclass
class Inner:
    # How often.
    times: int = field(default=0, metadata=minimum_bound(0))


@dataclass
class Config:
    # How deep it goes.
    depth: int = field(default=1, metadata=minimum_bound(1))
    # How long it takes.
    seconds: float | None = field(default=None, metadata=exclusive_minimum_bound(0))
    # How fast it is.
    rate: float = field(default=5.0, metadata=exclusive_minimum_bound(0, finite=True))
    # Which part of it.
    within: float = field(default=0.1, metadata=open_interval_bound(0, 1))
    # Anything.
    seed: int = 0
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("--depth=0", "--depth=0: must be at least 1"),
        ("--seconds=0", "--seconds=0.0: must be above 0"),
        ("--seconds=.nan", "--seconds=nan: must be above 0"),
        ("--rate=-2", "--rate=-2.0: must be above 0"),
        ("--rate=.inf", "--rate=inf: must be a finite number"),
        ("--within=1", "--within=1.0: must be between 0 and 1"),
        ("--inner.times=-1", "--inner.times=-1: must be 0 or more"),
    ],
)
def test_a_number_outside_its_bound_is_refused(argv: str, says: str):
    with pytest.raises(UserError) as told:
        parse(Config, [argv])
    assert str(told.value) == says


def test_numbers_within_their_bounds_pass():
    config = parse(Config, ["--depth=1", "--seconds=.inf", "--within=0.5", "--seed=-3", "--inner.times=0"])
    assert (config.depth, config.seconds, config.within, config.seed) == (1, float("inf"), 0.5, -3)
    check_bounds(Config())


def test_help_shows_default_bound_and_comment():
    lines = help_text("Doc.", Config).splitlines()
    assert lines[lines.index("  --depth (default: 1; at least 1)") + 1] == "      How deep it goes."
    assert lines[lines.index("  --seconds (above 0)") + 1] == "      How long it takes."
    assert "  --within (default: 0.1; between 0 and 1)" in lines
    assert "  --seed (default: 0)" in lines


@pytest.mark.parametrize("name", ["off", "2024", "2024-11-29", "1e3"])
@pytest.mark.parametrize("command", [BreakdownConfig, OptimizeConfig, DataloaderConfig, RecordConfig, TrainConfig])
def test_a_folder_may_have_a_name_that_yaml_takes_for_something_else(command: type, name: str):
    paths = [item.name for item in fields(command) if str(item.type) in ("Path", "Path | None")]
    config = parse(command, [f"--{path}={name}" for path in paths])
    assert {getattr(config, path) for path in paths} == {Path(name)}


@pytest.mark.parametrize(
    ("config", "argv"),
    [
        *[(BreakdownConfig, f"--{name}=0") for name in ("iterations", "depth", "batch_size", "threads", "cameras")],
        *[(BreakdownConfig, argv) for argv in ("--inference_delay=-1", "--seconds=0", "--interval=0")],
        *[
            (OptimizeConfig, argv)
            for argv in ("--target_hz=0", "--time_limit=.inf", "--eval.n_episodes=-1", "--depth=0")
        ],
        *[(TrainConfig, argv) for argv in ("--depth=0", "--record_steps=1", "--planned_steps=0")],
        *[(DataloaderConfig, argv) for argv in ("--seconds=0", "--encoding_episodes=0")],
        *[(SweepConfig, argv) for argv in ("--repeats=0", "--timeout=0", "--memory_gib=0")],
        *[(BatchConfig, argv) for argv in ("--largest=0", "--within=1", "--timeout=0.5", "--memory_gib=-1")],
        *[(RecordConfig, argv) for argv in ("--episodes=0", "--frames=0", "--fps=0")],
    ],
)
def test_every_command_s_numbers_have_bounds(config: type, argv: str):
    with pytest.raises(UserError, match=f"{argv.split('=')[0]}=.*: must be "):
        parse(config, [argv])


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--policy.typ=act"], "unknown flag --policy.typ: did you mean --policy.type?"),
        (["--policy-type=act"], "unknown flag --policy_type: did you mean --policy.type?"),
        (["--model.typ=vjepa2"], "unknown flag --model.typ: did you mean --model.type?"),
        (["--iteratons=3", "--policy.typ=act"], "unknown flag --iteratons: did you mean --iterations?"),
        (["--policy.type=act", "--policy.siez=tiny"], "unknown flag --policy.siez: did you mean --policy.size?"),
        # Fields of some policy's config are no misspelt names, and nothing resembles these.
        (["--policy.dtype=bfloat16"], "name the policy:"),
        (["--model.hidden_size=64"], "name the model:"),
        (["--model.num_frames=0"], "--model.num_frames=0: must be at least 1"),
        (["--model.img_size=large"], "--model.img_size=large: must be a whole number"),
    ],
)
def test_a_misspelt_flag_is_answered_with_the_nearest(argv: list[str], says: str):
    with pytest.raises(UserError) as told:
        read(argv)
    assert str(told.value).startswith(says)
