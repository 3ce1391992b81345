"""Policies, variants and simulator of episodes as data, from which another process makes an equal player."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from lerobot.envs.configs import EnvConfig

from strobe.core.devices.accelerators import find_device_memory
from strobe.core.errors import UserError
from strobe.core.measure.memory import available_bytes
from strobe.core.subjects.subject import fingerprint
from strobe.evaluate.episode_flags import EpisodeFlags
from strobe.evaluate.episode_log import EpisodeLine
from strobe.evaluate.episodes.play import Candidate, Plan
from strobe.evaluate.episodes.runners import LocalEpisodeRunner, RealtimeEpisodeRunner
from strobe.evaluate.episodes.videos import Filming, Keep
from strobe.lerobot.envs.seldom_rendered import Rendering
from strobe.lerobot.policies import lerobot_policies
from strobe.lerobot.policies.inputs import Inputs
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject

# Makes what is played of a policy, with the recipes at these paths; picklable. Raises UserError if one does not apply.
RowsOf = Callable[[PolicySubject, Sequence[Path]], Sequence[Candidate]]


@dataclass(frozen=True)
class PolicySpec:
    """A policy as data, from which another process loads an equal one; picklable.

    Args:
        options: its path is absolute if it is a folder's that another machine has too.
        fed: `picklable` form of the inputs that it was loaded with here.
        weights: its `fingerprint` here.
    """

    options: PolicyOptions
    fed: Inputs
    weights: str

    @classmethod
    def from_subject(cls, options: PolicyOptions, subject: PolicySubject) -> PolicySpec:
        """Return the policy that was loaded of ``options``."""
        return cls(options, picklable(subject.inputs), fingerprint(subject.policy))

    def load(self, config: EpisodeFlags) -> PolicySubject:
        """Raises UserError for what cannot be loaded, or has other weights here."""
        options, fed = self.options, self.fed
        if options.path is not None:
            own = lerobot_policies.config_from_path(options.path, options.overrides)
        else:
            own = lerobot_policies.config_from_type(options.type or "", options.overrides)
        rename = config.rename_map or None
        subject = PolicySubject(
            lerobot_policies.load(own, fed, size=options.size, seed=config.seed, rename=rename), fed, config.seed
        )
        if fingerprint(subject.policy) != self.weights:
            raise UserError("the policy was loaded again and has other weights: play in one process, with --parallel=1")
        return subject


@dataclass(frozen=True)
class PlayerSpec:
    """Everything that another process needs to play episodes; picklable.

    Called, it loads the policies, all into memory, starts the simulator, and returns what plays an episode.

    Args:
        config: the command's flags.
        policies: by the names that candidates have for them.
        rows_of: makes what is played; rows with a timing are true to time.
        threads: torch's in the other process.
        videos: first starts of each variant that are filmed, and ``folder``, the run's.
    """

    config: EpisodeFlags
    policies: Mapping[str, PolicySpec]
    rows_of: RowsOf
    threads: int = 1
    videos: int = 0
    folder: Path = Path()

    def __call__(self) -> Callable[[str, str, int], EpisodeLine]:
        """Raises UserError for what cannot be loaded or started, or is not the same here."""
        return self.player(self.config.recipe)

    def player(self, recipes: Sequence[Path], keep: Keep | None = None) -> Callable[[str, str, int], EpisodeLine]:
        """The same with the recipes at these paths; ``keep`` takes the videos, as in `Filming`."""
        torch.set_num_threads(self.threads)
        config = self.config
        subjects = {name: policy.load(config) for name, policy in self.policies.items()}
        rows = self.rows_of(next(iter(subjects.values())), recipes)
        runner = make_runner(config.simulator, subjects, rows, config.rendering)
        # As many starts as are filmed: the plan is used for these only.
        first = Plan(rows, runner.tasks, self.videos, margin=0.0, seed=config.seed)
        player = Filming(runner, first, self.videos, self.folder, config.simulator.fps, keep)
        named = {row.name: row for row in rows}
        return lambda name, task, seed: player.play(named[name], task, seed)


def make_runner(
    env: EnvConfig, subjects: Mapping[str, PolicySubject], rows: Sequence[Candidate], rendering: Rendering
) -> LocalEpisodeRunner:
    """Return what plays ``rows``: true to time, where they have a timing. Raises UserError as the runners do."""
    kind = LocalEpisodeRunner if rows[0].timing is None else RealtimeEpisodeRunner
    return kind(env, subjects, rendering)


@dataclass(frozen=True)
class RemotePlayerSpec:
    """`PlayerSpec` on a machine that need not share files with this one. Its episodes come with their videos.

    Recipes are sent along. A checkpoint in a folder is too large for that: each machine needs it at the same path.

    Args:
        recipes: the content of its recipes.
    """

    spec: PlayerSpec
    recipes: tuple[bytes, ...] = ()

    def __call__(self) -> Callable[[str, str, int], tuple[EpisodeLine, dict[str, bytes]]]:
        """Raises UserError as `PlayerSpec` does, and where the checkpoint is not there."""
        for policy in self.spec.policies.values():
            path = policy.options.path
            if path is not None and Path(path).is_absolute() and not Path(path).is_dir():
                raise UserError(f"there is no checkpoint {path}: every node needs it at the same path")
        files: dict[str, bytes] = {}
        with tempfile.TemporaryDirectory(prefix="strobe-recipes-") as folder:
            recipes = [Path(folder) / recipe.name for recipe in self.spec.config.recipe]
            for recipe, content in zip(recipes, self.recipes, strict=True):
                recipe.write_bytes(content)
            play = self.spec.player(recipes, files.__setitem__)

        def play_with_files(name: str, task: str, seed: int) -> tuple[EpisodeLine, dict[str, bytes]]:
            files.clear()
            return play(name, task, seed), dict(files)

        return play_with_files


def picklable(fed: Inputs) -> Inputs:
    """``fed`` without what only a study needs that trains or checks: features, statistics and some observations."""
    return replace(fed, make_batch=_refuse_here, make_checks=_refuse_here)


def require_memory(subjects: Collection[PolicySubject], count: int) -> None:
    """Raises UserError where ``count`` further copies of the policies on the CPU do not fit into memory."""
    tensors = [
        tensor
        for subject in subjects
        if subject.device.type == "cpu"
        for tensor in subject.policy.state_dict().values()
    ]
    each, free = sum(tensor.numel() * tensor.element_size() for tensor in tensors), available_bytes()
    if count * each > free:
        copied = "the policy" if len(subjects) == 1 else f"{len(subjects)} policies"
        raise UserError(
            f"--parallel={count}: each process holds a copy of {copied}, {each / 2**30:.1f} GiB, and "
            f"{free / 2**30:.1f} GiB are free: take a smaller --parallel"
        )


def require_room(flag: str, paths: Sequence[str], device: torch.device) -> None:
    """Raises UserError where the checkpoints at ``paths`` do not fit into the memory of ``device`` all at once.

    Args:
        flag: that names them.
        paths: folders of those that are still to be loaded; of another path the size is not known, and none counts.
    """
    files = [file for path in paths for file in Path(path).glob("*.safetensors")]
    needed = sum(file.stat().st_size for file in files)
    memory = None if device.type in ("cpu", "mps") else find_device_memory(device)  # MPS takes the machine's
    free = available_bytes() if memory is None else memory.free()
    if free is not None and needed > free:
        raise UserError(
            f"{flag}: all checkpoints are in memory at once: {len(paths)} more take {needed / 2**30:.1f} GiB, and "
            f"{free / 2**30:.1f} GiB are free: name fewer"
        )


def _refuse_here(_count: int) -> object:
    raise UserError("no batches or checks where episodes are played")
