"""Things that pages rely on: a data set, checkpoints, runs, a recipe, traces. Each is made when it is first needed.

``python -m pages.made KIND FOLDER`` saves a tiny policy of random weights, in a process of its own.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

RECIPES = {
    "act": "policy: act\ntreatments:\n  - channels_last: true\n",
    "diffusion": "policy: diffusion\ntreatments:\n  - channels_last: true\n",
    "smolvla": "policy: smolvla\ntreatments:\n  - padding: trimmed\n",
    "factory": "policy: torch module\ntreatments:\n  - precision: bf16\n",
    "pi05": "policy: pi05\ntreatments:\n  - padding: trimmed\n",
}
FACTORY = """
import torch

class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = torch.nn.Linear(64, 256), torch.nn.Linear(256, 14)

    def forward(self, observation):
        return self.head(torch.relu(self.vision(observation)))

def make():
    return Policy().eval(), [torch.randn(32, 64) for _ in range(4)]
"""
ROBOT = [
    "--robot.type=so101_follower", "--policy.type=smolvla", "--inference.type=rtc", "--task=push", "--duration=4",
]  # fmt: skip
FLOW = ("smolvla", "pi05")  # whose checkpoints need the Hub for a tokenizer and a config
PREPARED_S = 300.0
AGAIN = "again"  # the same once more: a copy of a run is no second run
Run = Callable[[Sequence[str], Path, float], str]  # arguments of Python, the folder, seconds → what was printed


class UnpreparedError(Exception):
    """A thing that a page takes for granted could not be made."""


class Made:
    """A folder of made-up things, by name."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self._run = folder, run
        folder.mkdir()

    def get(self, name: str) -> Path:
        """Return the thing called ``name``, such as 'policy act' or 'breakdown', made if it is not there yet."""
        path = self.folder / re.sub(r"[ ,=]", "-", name)
        if not path.exists():
            what, _, of = name.partition(" ")
            getattr(self, f"make_{what}")(path, *([of] if of else []))
        return path

    def make_dataset(self, path: Path) -> None:
        self._strobe("record", f"--root={path}", "--episodes=3", "--frames=24", "--image=96")

    def make_video(self, path: Path) -> None:
        shutil.copy(next(self.get("dataset").rglob("*.mp4")), path)

    def make_policy(self, path: Path, kind: str) -> None:
        self._run(["-m", "pages.made", kind, str(path)], self.folder, PREPARED_S)

    def make_recipe(self, path: Path, kind: str) -> None:
        path.write_text(RECIPES.get(kind, RECIPES["act"]))

    def make_factory(self, path: Path) -> None:
        path.write_text(FACTORY)

    def make_breakdown(self, path: Path, kind: str = "act") -> None:
        kind = kind.replace(AGAIN, "act")
        self._keep_run(path, "breakdown", f"--policy.type={kind}", "--policy.size=tiny", "--iterations=8")

    def make_runs(self, path: Path) -> None:
        for thing in ("breakdown", f"breakdown {AGAIN}"):
            shutil.copytree(self.get(thing), path / thing)

    def make_sweep(self, path: Path) -> None:
        steps = "policy.num_inference_steps=1,2,4"
        flags = ["--policy.type=diffusion", "--policy.size=tiny", "--iterations=6", f"--sweep_dir={path}"]
        self._strobe("sweep", "breakdown", *flags, "--grid", steps)

    def make_rollout(self, path: Path) -> None:
        self._keep_run(path, "rehearse", "--observations", "--", *ROBOT)

    def make_tuning(self, path: Path) -> None:
        self._keep_run(
            path, "tune", "--policy.path=demo", "--latency=100", "--inference.type=sync", "--starts=8", "--pairs=8"
        )

    def make_export(self, path: Path, kind: str) -> None:
        given = [f"--policy.path={self.get(f'policy {kind}')}", f"--dataset.root={self.get('dataset')}"]
        self._strobe("export", *given, f"--to={path}")

    def make_trace(self, path: Path) -> None:
        self._write_trace(path)

    def make_rank(self, path: Path, number: str) -> None:
        self._write_trace(path, int(number), 2)

    def make_latencies(self, path: Path) -> None:
        rows = [f"{steps},{20 + 8 * steps + 0.1 * place:.1f},{8 * steps}" for steps in (1, 2, 5) for place in range(8)]
        path.write_text("\n".join(["steps,total,denoise step", *rows]) + "\n")

    def make_results(self, path: Path, of: str) -> None:
        """As lerobot-eval writes it."""
        from support.examples import eval_info

        eval_info.write(path.parent, path.name, {"spatial 0": [1, int(of == "A")] * 10})

    def make_trials(self, path: Path) -> None:
        """A plan whose table an operator has filled in."""
        settings = [
            "--setting",
            "default: --policy.n_action_steps=50",
            "--setting",
            "tuned: --policy.n_action_steps=10",
        ]
        robot = ["--", "--robot.type=so101_follower", "--robot.port=PORT", "--policy.path=FOLDER"]
        self._strobe("trials", *settings, f"--output={path}", *robot)
        head, *rows = csv.reader((path / "trials.csv").read_text().splitlines())
        for row in rows:
            row[4], row[5] = "yes", str(10 + int(row[0]) % 3)
        with (path / "trials.csv").open("w", newline="") as file:
            csv.writer(file).writerows([head, *rows])

    def make_history(self, path: Path) -> None:
        """A run under git, with two commits."""
        git = ["git", "-C", str(path), "-c", "user.name=a", "-c", "user.email=a@b"]
        for thing in ("breakdown", f"breakdown {AGAIN}"):
            shutil.copytree(self.get(thing), path / "act", dirs_exist_ok=True)
            if not (path / ".git").exists():
                subprocess.run([*git, "init", "-q"], check=True)
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a run"], check=True)

    def _write_trace(self, path: Path, rank: int | None = None, ranks: int | None = None) -> None:
        from support.examples import made_trace

        events = made_trace.training(100 + 50 * (rank or 0))
        made_trace.write(path.with_suffix(".gz"), made_trace.document(events, rank, ranks)).rename(path)

    def _keep_run(self, path: Path, *words: str) -> None:
        """Run a command, and keep its run's folder as ``path``."""
        runs = self.folder / f"{path.name}-runs"
        self._strobe(words[0], f"--output_dir={runs}", *words[1:])
        found = [file.parent for file in runs.rglob("result.json")]
        found[0].rename(path)

    def _strobe(self, *words: str) -> None:
        self._run(["-m", "strobe", *words], self.folder, PREPARED_S)


def save_policy(kind: str, folder: Path) -> None:
    """Save a tiny policy of random weights: for PushT, an arm ('robot') or MetaWorld, or of other data ('misfit')."""
    from support.builders.checkpoints import FEW_STEPS, pusht_checkpoint, tiny_for_robot

    if kind.startswith("robot"):
        cameras = dict(re.findall(r"(\w+)=(\d+)", kind)) or {"front": "96"}
        tiny_for_robot("act", folder, 6, list(cameras), int(next(iter(cameras.values()))))
    elif kind == "metaworld":
        save_for_metaworld(folder, FEW_STEPS)
    elif kind == "misfit":
        pusht_checkpoint(folder, kind="act")
        move_statistics(folder)
    else:
        pusht_checkpoint(folder, kind=kind)


def move_statistics(folder: Path) -> None:
    """Write other statistics into a checkpoint: those of no data that it is used with."""
    from safetensors.torch import load_file, save_file

    for file in folder.glob("policy_*processor*.safetensors"):
        save_file({name: 3 * value + 2 for name, value in load_file(file).items()}, file)


def save_for_metaworld(folder: Path, few_steps: dict[str, list[str]]) -> None:
    from lerobot.envs.configs import MetaworldEnv

    from strobe.lerobot.envs.environments import choose_opengl
    from strobe.lerobot.policies import inputs, lerobot_policies

    choose_opengl()
    config = lerobot_policies.config_from_type("diffusion", ["--device=cpu", *few_steps["diffusion"]])
    loaded = lerobot_policies.load(config, inputs.from_env(config, MetaworldEnv(task="push-v3"), count=1), size="tiny")
    for part in (loaded.policy, loaded.preprocessor, loaded.postprocessor):
        part.save_pretrained(folder)


if __name__ == "__main__":
    save_policy(sys.argv[1], Path(sys.argv[2]))
