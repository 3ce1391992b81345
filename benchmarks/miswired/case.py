"""The arguments that `preflight.py` gives to preflight, and the record of a planted miswiring."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from miswired.data import Ticks, World, rewrite_vectors, write

from strobe.core.kinds import advise
from strobe.core.results.finding import Finding
from strobe.open_loop.run import Frames
from strobe.preflight.lag import read_run
from strobe.preflight.results.wiring import PreflightResult
from strobe.preflight.run import Preflight, look_at_frames, preflight
from strobe.preflight.wiring.dataset import read_dataset
from strobe.preflight.wiring.of_run import parse_settings
from strobe.preflight.wiring.robot import Connected

SECONDS = 900.0  # for the predictions of a look: enough on a busy machine
# Serious on the machine that the benchmark runs on, and no fault of the wiring: a call takes longer on a busy one.
OF_THE_MACHINE = frozenset({"call-longer-than-chunk"})


@dataclass(frozen=True)
class Case:
    """The arguments of `strobe preflight`.

    Args:
        frames: on which the policy is run; 0 reads only.
        episodes: from which they are; None for all.
        decode: whether a few images of the data set are decoded.
    """

    policy: Path
    data: Path
    rename: Mapping[str, str] = field(default_factory=dict)
    robot: Connected | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    rollout: Path | None = None
    frames: int = 0
    episodes: Sequence[int] | None = None
    seed: int = 0
    decode: bool = False

    def reading(self, fix: Path | None = None) -> Preflight:
        """Return the look that reads files."""
        run = read_run(self.rollout) if self.rollout is not None else None
        return Preflight(
            self.policy, self.data, self.robot, self.rename, fix, run, self.settings, episodes=self.episodes,
            decode=self.decode,
        )  # fmt: skip


def look(case: Case) -> tuple[PreflightResult, list[Finding]]:
    """Return what preflight finds."""
    result = preflight(case.reading())
    if case.frames:
        overrides = [f"--{name}={value}" for name, value in case.settings.items()]
        frames = Frames(
            case.data, SECONDS, case.episodes, (), dict(result.wiring.rename), overrides, case.seed, case.frames
        )
        look_at_frames(result, case.policy, frames, lambda _: None)
    return result, advise(result)


def serious(findings: Sequence[Finding]) -> list[str]:
    """Return the rules of the serious findings, but those on the speed of this machine."""
    return [each.rule for each in findings if each.level == "warning" and each.rule not in OF_THE_MACHINE]


@dataclass(frozen=True)
class Stage:
    """A soundly wired policy.

    Args:
        data: on which it was trained.
        episodes: of this data.
        work: a folder for what is planted.
    """

    world: World
    policy: Path
    data: Path
    episodes: Sequence[Ticks]
    work: Path

    @property
    def sound(self) -> Case:
        """The look that finds nothing."""
        return Case(self.policy, self.data)

    def copy(self) -> Path:
        """Return a copy of the checkpoint."""
        folder = self.work / "planted"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.policy, folder)
        return folder

    def write_dataset(self, episodes: Sequence[Ticks], name: str, fps: int | None = None) -> Path:
        """Write the first episodes, changed, as a data set."""
        own = self.episodes[: len(episodes)]
        root, images = self.work / name, self.world.cameras
        if all(mine[key] is ticks[key] for mine, ticks in zip(own, episodes, strict=True) for key in images):
            source = self.data
            if len(own) < len(self.episodes):
                source = write(self.world, self.data.parent / f"{self.world.name}-first-{len(own)}", own)
            return rewrite_vectors(root, source, episodes)
        return write(self.world, root, episodes, fps=fps, again=True)

    def robot(self, **changed: Any) -> Connected:
        """Return a robot that fits: with the joints and the cameras of the data."""
        features = {
            name: feature.model_copy(update={"normalisation": None, "dtype": ""})
            for name, feature in read_dataset(self.data).features.items()
        }
        fits = Connected(self.world.name, features, float(self.world.fps), self.world.task, "sync")
        return replace(fits, **changed)


@dataclass(frozen=True)
class Plant:
    """A miswiring.

    Args:
        kind: of the issue's list: "read", "hypotheses", "lag" or "truth".
        policy: the policy and the world that it is shown to.
        rules: of findings, any of which names it.
        says: words of what the finding says to fix it.
        make: plants it.
        fix: does what the finding says.
    """

    kind: str
    name: str
    policy: tuple[str, str]
    rules: tuple[str, ...]
    says: str
    make: Callable[[Stage], Case]
    fix: Callable[[Finding, Case, Stage], Case]


def flag(finding: Finding, name: str) -> str:
    """Return the value of a flag in what a finding says to do; of a JSON object the whole of it."""
    found = re.search(rf"{re.escape(name)}='?(\{{[^}}]*\}}|\S+)", finding.do or "")
    return found.group(1).rstrip(".'") if found else ""


def apply_policy_flag(finding: Finding, case: Case, name: str) -> Case:
    """Return ``case`` with the policy's flag that a finding names."""
    return replace(case, settings=parse_settings([f"--{name}={flag(finding, f'--policy.{name}')}"]))


def apply_rename_map(finding: Finding, case: Case) -> Case:
    """Return ``case`` with the rename map that a finding names."""
    return replace(case, rename=json.loads(flag(finding, "--rename_map") or "{}"))


def use_fixed_copy(finding: Finding, case: Case, stage: Stage) -> Case:
    """Return ``case`` with the copy that --fix writes."""
    new = stage.work / "fixed"
    shutil.rmtree(new, ignore_errors=True)
    preflight(case.reading(new))
    return replace(case, policy=new)
