"""Policies for `settings_grid.py`: recorded, trained, and played at many settings; each episode is played once.

They read states. In MetaWorld each is LeRobot's ACT, or ``act_relative_rtc``, which lerobot-train trains over the
delays of Real-Time Chunking. Of the latter one checkpoint serves both types of inference. Under sync no action is
executed during a call, so its chunk is that of delay 0. On PushT it is a small Diffusion Policy.
"""

from __future__ import annotations

import functools
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lerobot.envs.configs import EnvConfig, PushtEnv

from strobe.evaluate.episode_log import EpisodeLine, Key
from strobe.evaluate.episodes.play import Candidate
from strobe.evaluate.episodes.runners import RealtimeEpisodeRunner
from strobe.evaluate.episodes.timings import fixed_latency
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.simulators.held_action import choose_hold
from strobe.simulators.metaworld_state import Read, StateArm, record_states
from strobe.tune.run import policy_facts, tuned_rows
from strobe.tune.settings import TuneConfig, TunedSetting, grid, latency_ticks

TRAIN = "--policy.device=cpu --policy.push_to_hub=false --num_workers=0 --log_freq=500 --seed=1000"
ACT = """
    --policy.chunk_size=40 --policy.n_action_steps=10 --policy.dim_model=128 --policy.n_heads=4
    --policy.dim_feedforward=256 --policy.n_encoder_layers=2 --policy.n_decoder_layers=1 --policy.use_vae=false
    --policy.dropout=0.0 --policy.optimizer_lr=3e-4 --batch_size=32
"""
KINDS = {
    "act": f"--policy.type=act {ACT}",
    "act_relative_rtc": f"""
        --policy.type=act_relative_rtc --policy.rtc_max_delay=26 --policy.delay_training=sampled {ACT}
    """,
    "diffusion": """
        --policy.type=diffusion --policy.horizon=16 --policy.n_action_steps=8 --policy.down_dims=[64,128,256]
        --policy.noise_scheduler_type=DDIM --policy.num_inference_steps=10 --policy.optimizer_lr=5e-4 --batch_size=64
    """,
}
PUSHT = "pusht"  # its data set is the one of human demonstrations: ours from `pusht_data.py`, or the Hub's
READ = [*range(3), *range(4, 11), *range(36, 39)]  # of MetaWorld's 39 numbers: the hand, the object's pose, the goal
NOISE = 0.1  # standard deviation of the noise on the recorded velocities
THRESHOLDS, HORIZON = (10, 20, 30, 40), 40  # of rtc's queue; the policy does not read the horizon


@dataclass(frozen=True)
class Trained:
    """How a task's policy is made."""

    task: str
    kind: str
    episodes: int
    steps: int
    frames: int = 90
    limit: int = 200  # ticks of an episode


def checkpoint(trained: Trained, folder: Path) -> Path:
    """Return the task's checkpoint in ``folder``; recorded and trained there if it has none."""
    out = folder / trained.task
    found = out / "checkpoints" / "last" / "pretrained_model"
    if not found.exists():
        dataset = folder / "data" / trained.task
        if not dataset.exists() and trained.task != PUSHT:
            record_states(dataset, trained.episodes, trained.frames, read=Read(trained.task, READ, NOISE))
        data = [f"--dataset.repo_id=local/{trained.task}", f"--dataset.root={dataset}"]
        if not dataset.exists():
            data = ["--dataset.repo_id=lerobot/pusht_keypoints"]
        data += [f"--output_dir={out}"]
        steps = [f"--steps={trained.steps}", f"--save_freq={trained.steps}"]
        command = [sys.executable, str(Path(__file__).with_name("train_cached.py")), *data, *steps]
        begun = time.perf_counter()
        done = subprocess.run([*command, *shlex.split(TRAIN + KINDS[trained.kind])], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"lerobot-train failed:\n{done.stderr[-3000:]}")
        print(f"{trained.task}: trained in {(time.perf_counter() - begun) / 60:.1f} minutes", file=sys.stderr)
    return found


@dataclass
class Episodes:
    """All episodes of a policy that were played so far, in a file; a further one is played when it is asked for.

    Args:
        file: a JSON line for each episode.
        played: how many were played by this process.
    """

    policy: Path
    env: Any
    file: Path
    kept: dict[Key, EpisodeLine] = field(default_factory=dict)
    played: int = 0
    took_s: float = 0.0

    def __post_init__(self) -> None:
        if self.file.exists():
            for line in map(EpisodeLine.model_validate_json, self.file.read_text().splitlines()):
                self.kept[line.variant, line.task, line.seed] = line

    @functools.cached_property
    def subject(self) -> PolicySubject:
        """The policy."""
        torch.set_num_threads(1)
        return load_subject(
            PolicyOptions(path=str(self.policy), overrides=["--device=cpu"]), InputOptions(env=self.env)
        )

    @functools.cached_property
    def stage(self) -> RealtimeEpisodeRunner:
        """The simulator with the policy."""
        return RealtimeEpisodeRunner(self.env, {"": self.subject})

    def rows(self, ms: float, settings: Sequence[TunedSetting] = ()) -> list[Candidate]:
        """Return the settings as candidates at a latency; by default the grid that `strobe tune` would play."""
        latency = fixed_latency(ms)
        if not settings:
            facts = policy_facts(self.subject)
            flags = TuneConfig()
            if facts.guided:
                flags = TuneConfig(execution_horizon=(HORIZON,), queue_threshold=tuple(THRESHOLDS))
            settings = grid(facts, flags, latency_ticks(latency, self.env.fps)).settings
        at_latency = [(latency, setting) for setting in settings]
        return tuned_rows(self.subject, settings=at_latency, hold=choose_hold(self.env), fps=self.env.fps)

    def play_once(self, candidate: Candidate, seed: int) -> EpisodeLine:
        """Return the candidate's episode from a start; it is played if it was not yet."""
        (task,) = self.stage.tasks
        key = (candidate.name, task, seed)
        if key not in self.kept:
            begun = time.perf_counter()
            line = self.stage.play(candidate, task, seed)
            self.took_s += time.perf_counter() - begun
            self.played += 1
            self.kept[key] = line
            short = line.model_dump(mode="json") | {"call_ms": [], "motion": None, "timing": None}
            with self.file.open("a") as file:
                file.write(json.dumps(short) + "\n")
        return self.kept[key]

    def play(self, candidates: Iterable[Candidate], seeds: Iterable[int]) -> None:
        """Play all candidates from all starts, start by start."""
        rows, begun = list(candidates), time.perf_counter()
        for number, seed in enumerate(seeds, start=1):
            for candidate in rows:
                self.play_once(candidate, seed)
            if number % 10 == 0:
                took = time.perf_counter() - begun
                print(
                    f"{self.file.stem}: {number} starts of {len(rows)} rows, {took:.0f} s", file=sys.stderr, flush=True
                )

    def close(self) -> None:
        """Close the simulator, if it was started."""
        if "stage" in vars(self):
            self.stage.close()


def make_env_config(trained: Trained) -> EnvConfig:
    """Return the task's simulator."""
    if trained.task == PUSHT:
        return PushtEnv(obs_type="environment_state_agent_pos", episode_length=trained.limit)
    return StateArm(task=trained.task, episode_length=trained.limit, columns=READ)
