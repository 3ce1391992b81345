"""Does act_relative_rtc learn, whichever way it is trained over delays, and does LeRobot run what it learnt with RTC?

Records MetaWorld's expert (or takes --root, any dataset that ``strobe record --env=metaworld`` made) and runs LeRobot's
own ``lerobot-train`` on it once per way: ``sampled``, ``expanded``, ``packed``, all with one-way attention, the same
seed and as many samples. Then each checkpoint is loaded and judged in the same way:

- loss: the reconstruction's, normalised, as LeRobot logs it, from the first line to the last. Bar: it falls, by a
  tenth at least.
- held-out: the same loss over all delays, on the frames of episodes that training did not see, without the latent.
  Bar: the largest of the ways is at most 1.25 × the smallest.
- RTC: LeRobot's own engine runs it on MetaWorld, until it has asked for --chunks chunks. Bar: each begins with exactly
  the actions that it was to continue. The engine is told the dataset's frames per second; what renders in software is
  slower than that, so how the arm does is seen in the next:
- rollouts: the arm in MetaWorld with a chunk every 8 ticks of which the first 2 are given, from starts that were not
  recorded; success and return beside the expert's. A small model after so few steps: not a bar.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from common.shared import finish, need
from lerobot.configs import PreTrainedConfig
from lerobot.datasets.factory import resolve_delta_timestamps
from lerobot.datasets.lerobot_dataset import LeRobotDataset, LeRobotDatasetMetadata
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.rollout.inference.rtc import RTCInferenceEngine
from lerobot.utils.constants import ACTION, OBS_STATE
from lerobot_policy_act_relative_rtc import ACTRelativeRTCPolicy
from rich.console import Console
from rich.table import Table

from strobe.lerobot.quiet import quiet
from strobe.simulators.scripted import MetaWorld, Scene, open_metaworld, record_metaworld

TASK, IMAGE, HELD_OUT = "reach-v3", 96, 2
WAYS = ("sampled", "expanded", "packed")
CHUNK, DELAYS, PAST = 16, 6, 2
EVERY, GIVEN = 8, 2
FALLS = 0.9
MODEL = {
    "type": "act_relative_rtc", "device": "cpu", "push_to_hub": "false", "prefix_attention": "one_way",
    "chunk_size": CHUNK, "rtc_max_delay": DELAYS - 1, "obs_state_delta_frames": PAST,
    "vision_backbone": "resnet18", "pretrained_backbone_weights": "null", "dim_model": 128, "n_heads": 4,
    "dim_feedforward": 256, "n_encoder_layers": 2, "n_vae_encoder_layers": 1, "latent_dim": 8,
    "optimizer_lr": 3e-4, "optimizer_lr_backbone": 3e-4,
}  # fmt: skip


def train(way: str, root: Path, episodes: int, out: Path, steps: int, batch: int) -> dict[str, Any]:
    """Run lerobot-train; the losses it logged, and how long a step took it."""
    flags = {
        **{f"policy.{name}": value for name, value in MODEL.items()},
        "policy.delay_training": way,
        "dataset.repo_id": f"local/{root.name}",
        "dataset.root": root,
        "dataset.episodes": list(range(episodes - HELD_OUT)),
        "steps": steps,
        "batch_size": batch,
        "log_freq": max(steps // 15, 1),
        "save_checkpoint": "true",
        "save_freq": steps,
        "num_workers": 0,
        "seed": 0,
        "wandb.enable": "false",
        "output_dir": out,
    }
    command = [sys.executable, "-m", "lerobot.scripts.lerobot_train", *(f"--{k}={v}" for k, v in flags.items())]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if done.returncode:
        sys.exit(f"lerobot-train failed:\n{done.stderr[-3000:]}")
    log = done.stderr + done.stdout
    losses = [float(loss) for loss in re.findall(r"l1_loss:([\d.]+)", log)]
    took = [float(seconds) for seconds in re.findall(r"updt_s:([\d.]+)", log)]
    return {"losses": losses, "seconds_per_step": sorted(took)[len(took) // 2]}


class Trained:
    """A checkpoint as LeRobot loads it."""

    def __init__(self, folder: Path) -> None:
        self.config = PreTrainedConfig.from_pretrained(folder)
        self.policy = ACTRelativeRTCPolicy.from_pretrained(folder, config=self.config).eval()
        self.before, self.after = make_pre_post_processors(self.config, pretrained_path=str(folder))

    @torch.no_grad()
    def held_out(self, root: Path, meta: LeRobotDatasetMetadata) -> float:
        """Mean reconstruction loss over all delays of the frames that training did not see."""
        unseen = list(range(meta.total_episodes - HELD_OUT, meta.total_episodes))
        deltas = resolve_delta_timestamps(self.config, meta)
        dataset = LeRobotDataset(meta.repo_id, root=root, episodes=unseen, delta_timestamps=deltas)
        total = 0.0
        for batch in torch.utils.data.DataLoader(dataset, batch_size=16):
            size = len(batch[ACTION])
            _, parts = self.policy(self.before(batch), torch.arange(DELAYS).expand(size, -1))
            total += parts["l1_loss"] * size
        return total / len(dataset)

    def engine(self, world: MetaWorld, meta: LeRobotDatasetMetadata, chunks: int) -> dict[str, Any]:
        """Run LeRobot's RTC engine on the environment; whether each chunk continues what was left of the last."""
        calls: list[tuple[int, Any, Any]] = []
        predict = self.policy.predict_action_chunk

        def record_call(batch: dict[str, Any], **options: Any) -> torch.Tensor:
            chunk = predict(batch, **options)
            calls.append((options["inference_delay"], options["prev_chunk_left_over"], chunk))
            return chunk

        self.policy.predict_action_chunk = record_call  # type: ignore[method-assign]
        robot: Any = SimpleNamespace(robot_type="metaworld", action_features={})  # all that the engine asks of one
        engine = RTCInferenceEngine(
            self.policy, self.before, self.after, robot,
            RTCConfig(execution_horizon=CHUNK - EVERY), meta.features, world.description, meta.fps, "cpu",
            rtc_queue_threshold=EVERY,
        )  # fmt: skip
        raw: Any = world.reset(1000)
        ticks, end = 0, time.monotonic() + 60
        engine.start()
        engine.reset()
        engine.notify_observation(seen_by_robot(world, raw))
        engine.resume()
        while len(calls) < chunks and time.monotonic() < end and not engine.failed:
            action = engine.get_action(None)
            if action is None:
                time.sleep(0.005)
                continue
            raw, *_ = world.env.step(action.numpy().clip(-1, 1))
            engine.notify_observation(seen_by_robot(world, raw))
            ticks += 1
        engine.stop()
        del self.policy.predict_action_chunk
        kept = []
        for delay, left, chunk in calls:
            if left is None:
                continue
            length = min(delay, DELAYS - 1, len(left))
            if length:
                kept.append(torch.equal(chunk[0, :length], left[:length]))
        exact = len(calls) >= chunks and len(kept) > 0 and all(kept) and not engine.failed
        return {"chunks": len(calls), "with_prefix": len(kept), "ticks": ticks, "exact": exact}

    def rollout(self, world: MetaWorld, seed: int, ticks: int) -> tuple[bool, float]:
        """(succeeded, return) of an episode in which computing a chunk takes ``GIVEN`` ticks."""
        raw, chunk, success, total = world.reset(seed), None, False, 0.0
        past = [raw[:4]] * (PAST + 1)
        self.policy.reset()
        for _ in range(0, ticks, EVERY):
            observation = {name: torch.from_numpy(image.copy()) for name, image in world.images().items()}
            batch = {name: image.permute(2, 0, 1)[None] / 255 for name, image in observation.items()}
            batch[OBS_STATE] = torch.tensor([[past[-1 - PAST], past[-1]]], dtype=torch.float32)
            if chunk is None:
                chunk = self.policy.predict_action_chunk(self.before(batch))
            else:
                chunk = self.policy.predict_action_chunk(self.before(batch), GIVEN, chunk[:, EVERY:])
            for action in self.after(chunk)[0, :EVERY].numpy().clip(-1, 1):
                raw, reward, _, _, info = world.env.step(action)
                past.append(raw[:4])
                total += reward
                success = success or bool(info["success"])
        return success, total


def seen_by_robot(world: MetaWorld, raw: Any) -> dict[str, Any]:
    """An observation as LeRobot's robots give it: single numbers, and images under their cameras' names."""
    images = {name.rsplit(".", 1)[1]: image for name, image in world.images().items()}
    return {**dict(zip(("x", "y", "z", "gripper"), raw[:4].tolist(), strict=True)), **images}


def expert(world: MetaWorld, seed: int, ticks: int) -> tuple[bool, float]:
    """(succeeded, return) of MetaWorld's own script."""
    raw, success, total = world.reset(seed), False, 0.0
    for _ in range(ticks):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that its velocities are to be clipped
            action = world.expert.get_action(raw).clip(-1, 1)
        raw, reward, _, _, info = world.env.step(action)
        total += reward
        success = success or bool(info["success"])
    return success, total


def parse_flags() -> argparse.Namespace:
    """Return the flags; those of a quick run are set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help=f"dataset of {TASK} at {IMAGE}×{IMAGE}; recorded if there is none")
    parser.add_argument("--output_dir", type=Path, help="keeps the checkpoints; default: a folder that is removed")
    parser.add_argument("--episodes", type=int, default=12, help=f"to record, of which {HELD_OUT} are held out")
    parser.add_argument("--frames", type=int, default=32, help="in an episode")
    parser.add_argument("--steps", type=int, default=150, help="of training")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--chunks", type=int, default=6, help="for the RTC engine to ask for")
    parser.add_argument("--rollouts", type=int, default=3, help="episodes per way")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--quick", action="store_true", help="a few steps of one way: no bar is judged")
    arguments = parser.parse_args()
    need("metaworld", opengl=True)
    if arguments.quick:
        arguments.episodes, arguments.frames, arguments.steps, arguments.chunks = 3, 5, 4, 3
        arguments.rollouts = 0
        arguments.ways = WAYS[-1:]
    return arguments


def make_table(figures: dict[str, Any], by_expert: tuple[float | None, float | None], title: str) -> Table:
    """Return a row for each way, and one for the scripted expert."""
    table = Table(
        "way", "loss, first", "last", "of first", "held-out", "s per step", "RTC chunks (prefixed)", "success",
        "return",
        title=title,
    )  # fmt: skip
    for way, figure in figures.items():
        first, last = figure["losses"][0], figure["losses"][-1]
        rtc = figure["rtc"]
        kept = f"{rtc['chunks']} ({rtc['with_prefix']}), {'exact' if rtc['exact'] else 'NOT KEPT'}"
        table.add_row(
            way, f"{first:.3f}", f"{last:.3f}", f"{last / first:.2f}", f"{figure['held_out']:.3f}",
            f"{figure['seconds_per_step']:.2f}", kept, *format_success(figure["success"], figure["return"]),
        )  # fmt: skip
    table.add_row("expert", *[""] * 6, *format_success(*by_expert))
    return table


def main() -> None:
    arguments = parse_flags()
    logging.disable(logging.WARNING)
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output_dir or Path(temporary)
        root = arguments.root or folder / "reach"
        start = time.perf_counter()
        if not (root / "meta" / "info.json").exists():
            record_metaworld(root, arguments.episodes, arguments.frames, scene=Scene(TASK), image=IMAGE)
        recording = time.perf_counter() - start
        with quiet():
            meta = LeRobotDatasetMetadata(f"local/{root.name}", root=root)
        console.print(f"{meta.total_episodes} episodes, {meta.total_frames} frames, recorded in {recording:.0f} s")
        cameras = [name.rsplit(".", 1)[1] for name in meta.video_keys]
        world = open_metaworld(TASK, cameras, meta.features[meta.video_keys[0]]["shape"][0])
        figures: dict[str, Any] = {}
        for way in arguments.ways:
            start = time.perf_counter()
            figure = train(way, root, meta.total_episodes, folder / way, arguments.steps, arguments.batch_size)
            took = time.perf_counter() - start
            with quiet():
                trained = Trained(folder / way / "checkpoints" / "last" / "pretrained_model")
                figure["held_out"] = trained.held_out(root, meta)
                figure["rtc"] = trained.engine(world, meta, arguments.chunks)
                played = [trained.rollout(world, 1000 + i, 80) for i in range(arguments.rollouts)]
            figure["success"], figure["return"] = mean(played)
            figures[way] = figure
            judging = time.perf_counter() - start - took
            fell = f"{figure['losses'][0]} to {figure['losses'][-1]}"
            console.print(f"{way}: loss {fell}, trained in {took:.0f} s, judged in {judging:.0f} s")
        by_expert = mean([expert(world, 1000 + i, 80) for i in range(arguments.rollouts)])
        world.close()

    title = f"{TASK}, {arguments.steps} steps of {arguments.batch_size}, {DELAYS} delays"
    console.print(make_table(figures, by_expert, title))
    held_out = [figure["held_out"] for figure in figures.values()]
    spread = max(held_out) / min(held_out)
    console.print(f"largest held-out loss over the smallest: {spread:.3f}")
    holds = all(f["losses"][-1] <= FALLS * f["losses"][0] and f["rtc"]["exact"] for f in figures.values())
    judged = not arguments.quick
    finish(
        {**figures, "expert_return": by_expert[1], "held_out_spread": spread, "judged": judged},
        not judged or (holds and spread <= 1.25),
    )


def mean(played: list[tuple[bool, float]]) -> tuple[float | None, float | None]:
    """(share of successes, mean return); None where nothing was played."""
    if not played:
        return None, None
    return sum(success for success, _ in played) / len(played), sum(total for _, total in played) / len(played)


def format_success(success: float | None, total: float | None) -> tuple[str, str]:
    return ("–", "–") if success is None or total is None else (f"{success:.0%}", f"{total:.0f}")


if __name__ == "__main__":
    main()
