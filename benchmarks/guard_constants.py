"""Which errors of the actions cost success: each change of a policy, how far it moves the chunks, and paired episodes.

The policy is LeRobot's Diffusion Policy, which presses MetaWorld's button; without --policy it is recorded and trained
here, by the commands in RECORD and TRAIN. Each change is looked at twice:

- on observations of the dataset, with the same noise as the baseline: the error of each action dimension in σ,
  the standard deviation of that dimension in the dataset. Shown are the RMS over all chunks, of the dimension where it
  is largest, and the largest error of any action. Dimensions that never move (σ = 0) are left out;
- in episodes from the same seeds as the baseline's: success, and the 95 % interval of the difference.

The changes are treatments of Strobe's (bf16, int8, fewer denoising steps), all weights rounded to so many bits, other
noise to start denoising from, which is the policy's own spread, and errors of known size: white noise on each action,
and an offset that stays.

Bars: the baseline succeeds in 80 % of its episodes or more; no change within the limits (RMS, LARGEST) is
shown to do worse; some change beyond them is, for else these episodes would forgive anything. With --quick a small
policy with random weights is looked at in the first way alone: the baseline differs from itself by nothing,
bf16 stays within the limits, 4 bits and two steps do not.

An episode ends after TICKS, half again as many as the expert needs. The camera is looked through when the policy asks
for a chunk, at the size of the dataset's images; LeRobot's environment renders 480 × 480 pixels at each tick, and with
that an episode takes several times as long.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import torch
from common.shared import finish, need
from lerobot.configs import PreTrainedConfig
from lerobot.envs.configs import EnvConfig, MetaworldEnv
from lerobot.utils.constants import ACTION, OBS_IMAGE, OBS_STATE
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from strobe.core.measure.agreement import agree
from strobe.core.studies.shared.progress import Silent
from strobe.core.subjects.subject import Subject
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Treatment, Undo, Variant
from strobe.evaluate.pairs import PairedEpisodes
from strobe.ladder.episodes import CandidateError, Episodes
from strobe.lerobot.config_fields import require_policy
from strobe.lerobot.envs.environments import choose_opengl
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject

TASK, TICKS, FIRST_SEED = "button-press-topdown-v3", 120, 1000  # recorded are the seeds from 0 on
RECORD = f"--env=metaworld --task={TASK} --cameras=corner2 --image=96 --episodes=60 --frames=80"
TRAIN = """
    --policy.type=diffusion --policy.n_obs_steps=1 --policy.horizon=16 --policy.n_action_steps=8
    --policy.drop_n_last_frames=8 --policy.resize_shape=[64,64] --policy.down_dims=[64,128,256]
    --policy.use_group_norm=true --policy.pretrained_backbone_weights=null --policy.prediction_type=sample
    --policy.noise_scheduler_type=DDIM --policy.num_inference_steps=10 --policy.optimizer_lr=3e-4
    --policy.scheduler_warmup_steps=100 --policy.push_to_hub=false --policy.device=cpu
    --batch_size=16 --steps=2000 --save_freq=500 --num_workers=1 --seed=1000
"""
RMS, LARGEST = 0.02, 0.2  # the limits in question, in σ
SUCCEEDS = 0.8
SHADOWS = 1024  # size of the shadow map; MuJoCo's 4096 takes twice as long, for 0.1 of 255 in a mean pixel
OBSERVATIONS = 32
BITS = (8, 4, 3)
NOISE = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
OFFSETS = (0.02, 0.1, 0.3, 0.5, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, help="a checkpoint (pretrained_model); else it is trained, half an hour")
    parser.add_argument("--dataset", type=Path, help="what it was trained on; else it is recorded")
    parser.add_argument("--keep", type=Path, help="folder for what is made here; else it is thrown away")
    parser.add_argument("--task", default=TASK, help="of MetaWorld, which the policy was trained for")
    parser.add_argument("--episodes", type=int, default=48, help="pairs for each change, at most")
    parser.add_argument("--dimension", type=int, default=0, help="of the action, to which offsets are added")
    parser.add_argument("--only", default="", help="changes whose names match this regular expression")
    parser.add_argument("--quick", action="store_true", help="errors of the chunks alone, random weights")
    arguments = parser.parse_args()
    need("diffusion", *(() if arguments.quick else ("metaworld",)), opengl=not arguments.quick)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.quick:
            subject = load_subject(PolicyOptions(type="diffusion", size="tiny", overrides=["--device=cpu"]))
        else:
            policy, dataset = make_checkpoint(arguments.policy, arguments.dataset, arguments.keep or Path(folder))
            subject = load_policy(policy, dataset)
        sigma = torch.as_tensor(subject.inputs.stats[ACTION]["std"]).float().flatten()
        changes = [v for v in variants(subject, sigma, arguments.dimension) if re.search(arguments.only, v.name)]
        before = chunks(subject, Variant("untouched"))
        rows = [Row(change.name, *errors(before, chunks(subject, change), sigma)) for change in changes]
        if not arguments.quick:
            play(subject, changes, rows, arguments.task, arguments.episodes)
    show(rows, f"{subject.info.name}, {len(subject.inputs.observations)} observations, {arguments.episodes} pairs")
    figures: dict[str, Any] = {"quick": arguments.quick, "limits": {"rms": RMS, "largest": LARGEST}}
    figures |= {"sigma": [round(float(value), 4) for value in sigma], "changes": [row.figures() for row in rows]}
    finish(figures, holds_quick(rows) if arguments.quick else holds(rows))


@dataclass
class Row:
    """A change, and what it did."""

    name: str
    rms: float
    largest: float
    cosine: float
    episodes: PairedEpisodes | None = None

    @property
    def is_within_limits(self) -> bool:
        """Whether its errors are within the limits."""
        return self.rms <= RMS and self.largest <= LARGEST

    @property
    def worse(self) -> bool:
        """Whether its episodes show that it succeeds less often."""
        return self.episodes is not None and self.episodes.kind == "worse"

    @property
    def ticks(self) -> tuple[int, int]:
        """Control ticks of all episodes, the baseline's and its own."""
        pairs = self.episodes.pairs if self.episodes is not None else []
        return sum(pair.baseline.ticks for pair in pairs), sum(pair.candidate.ticks for pair in pairs)

    def figures(self) -> dict[str, Any]:
        """Its figures, for the last line."""
        found: dict[str, Any] = {"name": self.name, "rms": self.rms, "largest": self.largest, "cosine": self.cosine}
        if (judged := self.episodes) is not None:
            ends = judged.success_interval
            found |= {"pairs": len(judged.pairs), "success": judged.candidate_success, "kind": judged.kind}
            found |= {"untouched": judged.baseline_success, "difference": judged.success}
            found |= {"interval": [ends.low, ends.high]}
            found |= {"ticks": self.ticks}
        return found

    def cells(self) -> list[str]:
        """The same in words, for the table."""
        within = "yes" if self.is_within_limits else ""
        shown = [self.name, f"{self.rms:.4f}", f"{self.largest:.3f}", f"{self.cosine:.6f}", within]
        if (judged := self.episodes) is None:
            return [*shown, "", "", "", ""]
        ends = judged.success_interval
        before, after = self.ticks
        difference = f"{100 * judged.success:+.1f} [{100 * ends.low:+.1f}, {100 * ends.high:+.1f}]"
        return [*shown, f"{100 * judged.candidate_success:.3g} %", difference, judged.kind, f"{after / before:.2f} ×"]


def holds(rows: list[Row]) -> bool:
    """Whether the policy succeeds, nothing within the limits is shown to do worse, and something beyond them is."""
    succeeded = [row.episodes.baseline_success for row in rows if row.episodes is not None]
    succeeds = bool(succeeded) and min(succeeded) >= SUCCEEDS
    return succeeds and not any(row.worse for row in rows if row.is_within_limits) and any(row.worse for row in rows)


def holds_quick(rows: list[Row]) -> bool:
    """Whether the baseline differs by nothing, bf16 stays within the limits, 4 bits and two steps do not."""
    named = {row.name: row for row in rows}
    nothing = named["untouched"].rms == named["untouched"].largest == 0
    return (
        nothing
        and named["bf16"].is_within_limits
        and not named["4 bits"].is_within_limits
        and not named["2 steps"].is_within_limits
    )


# --- the policy ---


def make_checkpoint(policy: Path | None, dataset: Path | None, folder: Path) -> tuple[Path, Path]:
    """The checkpoint and its dataset; recorded and trained in ``folder`` by LeRobot's own program where not given."""
    if dataset is None:
        dataset = folder / "button"
        run("strobe", "record", f"--root={dataset}", *shlex.split(RECORD))
    if policy is None:
        out, data = folder / "out", [f"--dataset.repo_id=local/{dataset.name}", f"--dataset.root={dataset}"]
        run("lerobot.scripts.lerobot_train", *data, f"--output_dir={out}", *shlex.split(TRAIN))
        policy = out / "checkpoints" / "last" / "pretrained_model"
    return policy, dataset


def run(module: str, *arguments: str) -> None:
    """Run a program, and show its command and how long it took."""
    begun = time.perf_counter()
    print(f"python -m {module} {shlex.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{module} failed:\n{done.stderr[-3000:]}")
    print(f"  {(time.perf_counter() - begun) / 60:.1f} minutes", flush=True)


def load_policy(policy: Path, dataset: Path) -> PolicySubject:
    """The policy with observations of its dataset."""
    config: PreTrainedConfig = lerobot_policies.config_from_path(policy, ["--device=cpu"])
    fed = inputs.from_dataset(config, dataset, count=OBSERVATIONS)
    if config.n_obs_steps == 1 and config.observation_delta_indices is not None:  # Diffusion wants the one step's axis
        for observation in fed.observations:
            observation[OBS_STATE] = observation[OBS_STATE][:, None]
    (camera,) = config.image_features
    return PolicySubject(lerobot_policies.load(config, fed, rename={OBS_IMAGE: camera}), fed)


# --- the changes ---


def variants(subject: PolicySubject, sigma: Tensor, dimension: int) -> list[Variant]:
    """All changes, from nothing to a lot, kind by kind."""
    dimension = dimension if sigma[dimension] > 0 else int(sigma.argmax())
    steps = subject.traits("inference", 1).denoising_steps or 0
    written = {"bf16": "precision=bf16", "int8 weights": "int8=weights"}
    written |= {f"{n} step{'s' * (n > 1)}": f"policy.num_inference_steps={n}" for n in (5, 3, 2, 1) if n < steps}
    found = [Variant("untouched"), Variant("other noise", (OtherNoise(),))]
    found += [Variant(name, catalogue.compose(catalogue.parse(text))) for name, text in written.items()]
    found[4:4] = [Variant(f"{bits} bits", (FewerBits(bits),)) for bits in BITS]
    found += [Variant(f"white noise of {size:g} σ", (Disturbed(size * sigma),)) for size in NOISE]
    axis = torch.nn.functional.one_hot(torch.tensor(dimension), len(sigma)) * sigma
    return found + [Variant(f"offset of {size:g} σ", (Disturbed(size * axis, constant=True),)) for size in OFFSETS]


@dataclass
class OtherNoise(Treatment):
    """Another draw of the noise from which denoising starts."""

    effect = "lossy"

    def apply(self, subject: Subject) -> Undo:
        policy: Any = require_policy(subject).policy
        predict = policy.predict_action_chunk

        def other(*given: Any, **options: Any) -> Tensor:
            torch.randn(4096)  # what the baseline gets comes from further ahead in the same stream
            return predict(*given, **options)

        policy.predict_action_chunk = other
        return lambda: vars(policy).pop("predict_action_chunk")


@dataclass
class FewerBits(Treatment):
    """All weights of linear layers and convolutions rounded to ``bits``, with a scale for each output channel."""

    bits: int
    effect = "lossy"

    @torch.no_grad()
    def apply(self, subject: Subject) -> Undo:
        kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d)
        layers = [module for module in subject.module.modules() if isinstance(module, kinds)]
        before = [(layer, layer.weight.detach().clone()) for layer in layers]
        for layer, weight in before:
            outputs = 1 if isinstance(layer, nn.ConvTranspose1d) else 0
            others = [axis for axis in range(weight.ndim) if axis != outputs]
            scale = weight.abs().amax(others, keepdim=True).clamp_min(1e-12) / (2 ** (self.bits - 1) - 1)
            layer.weight.copy_((weight / scale).round() * scale)

        @torch.no_grad()
        def undo() -> None:
            for layer, weight in before:
                layer.weight.copy_(weight)

        return undo


@dataclass
class Disturbed(Treatment):
    """Something added to every action: white noise of these standard deviations, or, if ``constant``, just that.

    Args:
        size: for each dimension, in the action's own units.
    """

    size: Tensor
    constant: bool = False
    generator: torch.Generator = field(default_factory=torch.Generator, repr=False)
    effect = "lossy"

    def apply(self, subject: Subject) -> Undo:
        owner = require_policy(subject).loaded
        before = owner.postprocessor

        def disturb_actions(actions: Tensor) -> Tensor:
            actions = before(actions)
            drawn = 1.0 if self.constant else torch.randn(actions.shape, generator=self.generator)
            return actions + drawn * self.size

        owner.postprocessor = disturb_actions

        def undo() -> None:
            owner.postprocessor = before

        return undo


# --- what they do ---


def errors(before: list[Tensor], after: list[Tensor], sigma: Tensor) -> tuple[float, float, float]:
    """RMS of the worst dimension and largest error, in σ, and the cosine."""
    moves = sigma > 0
    apart = ((torch.cat(after) - torch.cat(before)) / sigma)[..., moves].flatten(end_dim=-2)
    return float(apart.square().mean(0).sqrt().max()), float(apart.abs().max()), agree(before, after).cosine


def chunks(subject: PolicySubject, change: Variant) -> list[Tensor]:
    """One chunk for each observation, with the same noise whatever the change."""
    undo = change.apply(subject)
    try:
        return [subject.chunk(index).double() for index in range(len(subject.inputs.observations))]
    finally:
        undo()


def play(subject: PolicySubject, changes: list[Variant], rows: list[Row], task: str, count: int) -> None:
    """Fill in the episodes of each row, as far as Ctrl-C lets it."""
    config: Any = subject.policy.config
    ((camera, feature),) = config.image_features.items()
    every = config.n_action_steps if config.n_obs_steps == 1 else 1
    env = Glancing(task=task, camera=camera.rsplit(".", 1)[-1], image=feature.shape[-1], every=every)
    episodes = Episodes(env, subject, Variant("untouched"), count, FIRST_SEED)
    try:
        for change, row in zip(changes, rows, strict=True):
            begun = time.perf_counter()
            try:
                row.episodes, interrupted = episodes.play_against_baseline(change, Unwatched())
            except CandidateError as error:
                print(f"{change.name}: {error}", flush=True)
                continue
            took = time.perf_counter() - begun
            print(" | ".join([*row.cells(), f"{took:.0f} s"]), flush=True)
            if interrupted:
                break
    finally:
        episodes.close()


class Unwatched(Silent):
    """Nobody who watches single episodes."""

    def say(self, line: str) -> None:
        pass


@EnvConfig.register_subclass("metaworld_glancing")
@dataclass
class Glancing(MetaworldEnv):
    """LeRobot's MetaWorld, whose camera renders ``image`` pixels square, and only at every ``every``-th tick.

    In between the last image stays: a policy that takes one observation per chunk does not look at it.
    """

    camera: str = "corner2"
    image: int = 96
    every: int = 8

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> Any:
        choose_opengl()
        return {self.task: {0: gymnasium.vector.SyncVectorEnv([lambda: arm(self)] * n_envs)}}


def arm(config: Glancing) -> Any:
    """LeRobot's environment of ``config``. Its module reads how MuJoCo renders when it is imported."""
    from lerobot.envs import metaworld

    class Arm(metaworld.MetaworldEnv):
        seen: Any = None
        ticks = 0

        def _ensure_env(self) -> None:
            if self._env is None:
                super()._ensure_env()
                env: Any = self._env
                env.unwrapped.model.vis.quality.shadowsize = SHADOWS
                renderer = env.unwrapped.mujoco_renderer
                renderer.width = renderer.height = config.image

        def reset(self, seed: int | None = None, **options: Any) -> Any:
            self.ticks = 0
            return super().reset(seed=seed, **options)

        def step(self, action: Any) -> Any:
            self.ticks += 1
            return super().step(action)

        def _format_raw_obs(self, raw_obs: Any) -> Any:
            if self.ticks % config.every and self.seen is not None:
                return {"pixels": self.seen, "agent_pos": raw_obs[:4]}
            shown = super()._format_raw_obs(raw_obs)
            self.seen = shown["pixels"]
            return shown

    size: dict[str, Any] = {"observation_width": config.image, "observation_height": config.image}
    made = Arm(config.task, camera_name=config.camera, **config.gym_kwargs, **size)
    made._max_episode_steps = TICKS
    return made


def show(rows: list[Row], title: str) -> None:
    columns = ("change", "RMS, σ", "largest, σ", "cosine", "within", "success", "difference (points)", "shown", "ticks")
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row.cells())
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
