r"""strobe sweep: how does a study's answer change over a grid of settings?

Runs `breakdown` or `compare` for every combination of the grid's values, and puts all configurations into one table:
which is best (--best), and how time and memory grow with each setting.

Each configuration runs in a process of its own, with a time limit and a memory limit. A configuration that runs out of
memory, crashes or hangs is a row with its reason, and the sweep goes on. Configurations run one at a time, in a random
order. If the sweep is interrupted, give the same command again: it continues.

--dry-run lists the configurations and the time that they will take.

Examples:
  strobe sweep breakdown --policy.type=act --phases='[training forward]' --grid batch_size=8,16,32 --grid cameras=1,2
  strobe sweep compare --policy.type=smolvla --grid rtc.execution_horizon=10,20 --grid policy.num_steps=5,10

More:
The random order, in blocks, spreads a drift of the machine over all configurations. With a changed grid the sweep uses
the finished configurations that fit.

A file has the same settings: 'study', 'flags' (name: value), 'grid' (name: [values]), 'cells' (further combinations)
and 'sweep' (name: value, the flags below). Flags that are not listed here are the study's own: `strobe STUDY --help`.

--best METRIC [where NAME<VALUE and …]: time_ms, p95_ms, throughput, ms_per_sample, memory_gib, activations_gib, cosine;
conditions may also name an axis or 'measurement'. To tell which configurations are slower than the
best, give --repeats=3: a single run of each does not show how much runs differ.

Further examples:
  strobe sweep breakdown --policy.type=act --phases='[training forward]' \
      --grid batch_size=8,16,32,64 --grid image_size=240x320,480x640 --best 'throughput where memory_gib<8'
  strobe sweep breakdown --policy.type=act --grid policy.vision_backbone=resnet18,resnet50 --grid cameras=1,2
  strobe sweep breakdown --policy.type=pi05 --grid policy.num_inference_steps=1,2,5,10 --repeats=2 --dry-run
  strobe sweep breakdown --model.type=vjepa2 --chain --grid model.size=giant,large --grid model.img_size=384,256
  strobe sweep compare --policy.factory=FILE.py:make --variant 'half: precision=bf16' --grid threads=1,2
  strobe sweep --file=grid.yaml
  strobe sweep breakdown --policy.type=act --grid batch_size=8,16 --launcher=ray --ray.address=auto

Exit code: 0; 1 if no configuration gave a figure, 2 for wrong input, 130 after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core import slices
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import format_argument, pairs, parse
from strobe.core.cli.runner import Command, Studied, say_other_work
from strobe.core.errors import NotKeptError, UserError, nearest
from strobe.lerobot.flags.lazy_flags import realise, requests
from strobe.policy_cli.run_flags import InputFlags, check_launcher
from strobe.policy_cli.subject_flags import check_values
from strobe.sweep import grid
from strobe.sweep.flags import SweepConfig
from strobe.sweep.grid import Cell, remove_device

if TYPE_CHECKING:
    from strobe.sweep.best import Wish
    from strobe.sweep.execute import Outcome
    from strobe.sweep.results import Sweep

STUDIES = ("breakdown", "compare")  # command modules that have `read` and `study`


_OWN = {*(item.name for item in fields(SweepConfig) if item.init), "ray.address"} - {"ray"}


def study_cells(config: SweepConfig, live: Live) -> Studied | int:
    """Run the cells in the sweep's folder, or list them (--dry-run).

    Raises:
        UserError: cells are refused, or another sweep is running in the folder.
    """
    study, cells = config.study, config.cells
    wishes = _wishes(config, cells)
    reading = live.each("reading the cells", cells, "cells")
    invalid, flags = check_cells(study, reading, elsewhere=config.launcher == "ray", thorough=config.skip_invalid)
    if invalid and not config.skip_invalid:
        listed = "\n".join(f"  {cell.label}: {invalid[cell.key]}" for cell in cells if cell.key in invalid)
        raise UserError(
            f"{len(invalid)} of {len(cells)} cells are refused (--skip-invalid goes on without them):\n{listed}"
        )
    from strobe.sweep.run import dry_run, launch, lock_sweep, sweep_name
    from strobe.sweep.table import answer

    root = config.sweep_dir or Path("runs") / sweep_name(study, cells)
    if config.dry_run:
        dry_run(config, invalid, root, flags)
        return 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock_sweep(root))
        other_work = say_other_work(live) if config.launcher == "local" else []
        ended, unsaved = launch(config, invalid, root)
        sweep = answer(study, cells, config.repeats, invalid, root, wishes, unsaved)
        sweep.status, sweep.chain = "complete" if ended else "interrupted", config.chain
        sweep.notes += other_work
        options = {"sweep": config, "flags": list(cells[0].argv[: -len(cells[0].settings)])}
        after = partial(_say_what_remains, sweep, unsaved)
        shows = any(cell.rows for cell in sweep.cells)
        return Studied(
            sweep, options, None, None, folder=root, code=0 if shows else 1, after=after, held=stack.pop_all()
        )


def _say_what_remains(sweep: Sweep, unsaved: dict[tuple[str, int], Outcome], root: Path | None) -> Iterator[str]:
    """Yield how to go on with an interrupted sweep. Raises NotKeptError if runs could not be saved."""
    if unsaved:
        count, why = sum(len(cell.runs) for cell in sweep.cells), next(iter(unsaved.values())).reason
        raise NotKeptError(
            f"{len(unsaved)} of {count} runs are not in {root} ({why}): make room, then give the same command again"
        )
    if sweep.status == "interrupted":
        remaining = sum(run.status == "not run" for cell in sweep.cells for run in cell.runs)
        yield f"stopped with {remaining} runs to go; continue with the same command:\n  {shlex.join(sweep.command)}"


def read(argv: Sequence[str]) -> SweepConfig:
    """Return the sweep's flags with its study and its cells, checked. Raises UserError."""
    named, rest = (argv[0], argv[1:]) if not argv[0].startswith("--") else (None, argv)
    own, of_study = _split(rest)
    document: dict[str, Any] = {"study": None, "flags": [], "grid": {}, "cells": [], "sweep": []}
    files = [value for name, value in own if name == "--file"]
    given = {name.removeprefix("--") for name, _ in [*pairs(of_study), *own] if name != "--best"}
    given |= {grid.parse_axis(value or "")[0] for name, value in own if name == "--grid"}
    if files:
        document = grid.read_file(Path(files[-1] or ""), given)
        of_file, unknown = _split(document["sweep"])
        if unknown:
            name = unknown[0].split("=", 1)[0].removeprefix("--")
            raise UserError(f"--file={files[-1]}: 'sweep' has no '{name}': {nearest(name, _OWN)}")
        own = [*of_file, *own]
    repeated = {flag: [value or "" for name, value in own if name == flag] for flag in ("--grid", "--best")}
    config = parse(SweepConfig, [format_argument(name, value) for name, value in own if name not in repeated])
    config.grid, config.best = repeated["--grid"], repeated["--best"]
    check_launcher(config.launcher, config.ray)
    study = named or document["study"]
    if study is None:
        raise UserError(f"name the study: strobe sweep {' or '.join(STUDIES)} …, or 'study' in the file")
    if study not in STUDIES:
        raise UserError(f"no study '{study}' to sweep: {nearest(study, STUDIES)}")
    axes = dict(document["grid"])
    for text in config.grid:
        name, values = grid.parse_axis(text)
        if name in axes:
            raise UserError(f"--grid {name} is given twice: put all its values into one")
        axes[name] = values
    if "output_dir" in given:
        raise UserError("--output_dir is for single runs; a sweep's folder is --sweep_dir")
    flags = document["flags"] + of_study
    config.study, config.cells = study, grid.cells(study, flags, axes, document["cells"], chain=config.chain)
    return config


def check_cells(
    study: str, cells: Iterable[Cell], *, elsewhere: bool = False, thorough: bool = True
) -> tuple[dict[str, str], dict[str, InputFlags]]:
    """Read the flags of all cells without running anything.

    Args:
        elsewhere: whether they run on other machines, which may have devices that this one lacks.
        thorough: whether to look for values that only LeRobot's configs refuse even if some cells are refused already;
            importing LeRobot takes seconds.

    Returns:
        Cell key → why its flags are refused; cell key → the study's config, of those that can be read.
    """
    command = slices.load(slices.commands()[study].module)
    reasons: dict[str, str] = {}
    configs: dict[str, InputFlags] = {}
    for cell in cells:
        try:
            configs[cell.key] = command.read(remove_device(cell.argv) if elsewhere else list(cell.argv))
        except UserError as error:
            reasons[cell.key] = str(error)
    if reasons and not thorough:
        return reasons, configs
    judged: dict[str, str] = {}  # many cells ask the same of LeRobot, which takes its time to answer
    with importing():
        for key, config in configs.items():
            wanted = repr((config.subject, requests(config)))
            if wanted not in judged:
                try:
                    check_values(config.subject)
                    realise(config)
                    judged[wanted] = ""
                except UserError as error:
                    judged[wanted] = str(error)
            if judged[wanted]:
                reasons[key] = judged[wanted]
    return reasons, configs


def _wishes(config: SweepConfig, cells: Sequence[Cell]) -> list[Wish]:
    if not config.best:
        return []
    from strobe.sweep.best import parse as parse_best

    axes = [axis.name for axis in grid.grid_axes(cells)]
    return [parse_best(text, axes) for text in config.best]


def _split(argv: Sequence[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
    mine, others = [], []
    for name, value in pairs(argv):
        if name.removeprefix("--") in _OWN:
            mine.append((name, value))
        else:
            others.append(format_argument(name, value))
    return mine, others


run = Command("sweep", __doc__, SweepConfig, read, study_cells, bar=False, bare=True)
