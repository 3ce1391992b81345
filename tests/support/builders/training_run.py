"""Short real trainings for tests: LeRobot's own loop on a recorded dataset, a small ACT, workers by fork."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strobe.train.run import Trained, WatchOptions, train


def arguments(dataset: Path, output: Path, *more: str, steps: int = 14, workers: int = 2) -> list[str]:
    """lerobot-train's arguments; ``more`` comes last and wins."""
    given = {
        "--dataset.repo_id": f"local/{dataset.name}", "--dataset.root": str(dataset), "--policy.type": "act",
        "--policy.device": "cpu", "--policy.push_to_hub": "false", "--policy.pretrained_backbone_weights": "null",
        "--policy.dim_model": "64", "--policy.n_heads": "4", "--policy.dim_feedforward": "128",
        "--policy.chunk_size": "8", "--policy.n_action_steps": "8", "--batch_size": "8", "--steps": str(steps),
        "--num_workers": str(workers), "--dataloader_multiprocessing_context": "fork", "--save_checkpoint": "false",
        "--log_freq": "5", "--output_dir": str(output),
    }  # fmt: skip
    given |= dict(argument.split("=", 1) for argument in more)
    return [f"{name}={value}" for name, value in given.items()]


def run_training(dataset: Path, output: Path, *more: str, options: WatchOptions | None = None, **run: int) -> Trained:
    """Train and watch, in this process."""
    return train(arguments(dataset, output, *more, **run), options or WatchOptions())


def rules(findings: Sequence) -> set[str]:
    """Rules of the findings, less the one about the length of the run."""
    return {finding.rule for finding in findings} - {"few-samples"}
