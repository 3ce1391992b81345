"""Episodes per minute: `strobe evaluate` beside `lerobot-eval`, the same policy from the same seeds, at equal outcomes.

Commands take turns, round by round; each plays the same episodes in a process of its own:

- `lerobot-eval`: as it is called without further flags, batch size and asynchronous environments by its own choice. It
  draws the first ten episodes a second time, for videos.
- the same without those videos, which is what it costs from the eleventh episode on;
- the same with --eval.batch_size=2, whose environments are then asynchronous;
- `strobe evaluate` with one process, and with --parallel=2 (on two cores).

The time counts from the first episode's start, not from the command's: loading is told apart. For `strobe evaluate` it
counts from the line that announces the episodes, so the loading of its processes is in it.

Outcomes: the videos' row, the one without, and both of `strobe evaluate` play the same noise in an episode, which is
seeded with the episode's seed (`lerobot-eval` is given that, and nothing else is changed in it). Their successes must
be equal, and their rewards but for what another number of threads does to a sum (one part in 1000 at most). A batch of
two draws its noise together, so its successes are only shown.

Bar: `strobe evaluate --parallel=2` plays at least twice as many episodes per minute as the fastest row of
`lerobot-eval`, at equal outcomes. With --quick: PushT, a tiny ACT with random weights, short episodes; drawing is cheap
there, so that only the outcomes are judged.

    python benchmarks/episodes_per_minute.py --policy=FOLDER [--rename_map=…] [--episodes=8] [--rounds=1]

Without --policy a Diffusion Policy with random weights plays, whose episodes take 500 ticks: an hour. With one that
presses the button (benchmarks/guard_constants.py trains it) each takes 70: four episodes a row take ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.shared import finish, need
from rich.console import Console
from rich.table import Table

TASK, SEED, BAR, SAME = "button-press-topdown-v3", 1000, 2.0, 1e-3
RENAME = '{"observation.image": "observation.images.corner2"}'
# lerobot-eval, with the noise of each episode seeded with the episode's own seed, and with or without videos.
SEEDED = """
import sys
import torch
from lerobot.scripts import lerobot_eval
rollout, everything = lerobot_eval.rollout, lerobot_eval.eval_policy_all
def run_seeded(*args, **kwargs):
    torch.manual_seed(kwargs["seeds"][0])
    return rollout(*args, **kwargs)
def skip_films(*args, **kwargs):
    return everything(*args, **kwargs | {"max_episodes_rendered": 0})
lerobot_eval.rollout = run_seeded
if sys.argv[1:2] == ["unfilmed"]:
    del sys.argv[1]
    lerobot_eval.eval_policy_all = skip_films
if __name__ == "__main__":
    lerobot_eval.main()
"""


@dataclass
class Row:
    """A command, and what its runs gave."""

    name: str
    command: list[str]
    judged: bool = True  # whether its outcomes must be the others'
    playing_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    successes: list[bool] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def episode_rate(self) -> float:
        """Episodes per minute, the median of the rounds."""
        return 60 * len(self.rewards) / statistics.median(self.playing_s)

    def figures(self) -> dict[str, Any]:
        """Its figures, for the last line."""
        found = {"episodes per minute": self.episode_rate, "successes": sum(self.successes), "rewards": self.rewards}
        return found | {"playing, s": self.playing_s, "with loading, s": self.whole_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, help="a checkpoint (pretrained_model); else random weights")
    parser.add_argument("--rename_map", default=RENAME, help="names of the simulator → names of the policy")
    parser.add_argument("--episodes", type=int, default=8, help="of each row in each round")
    parser.add_argument("--rounds", type=int, default=1, help="how often the rows take turns")
    parser.add_argument("--quick", action="store_true", help="PushT, random weights: outcomes alone")
    arguments = parser.parse_args()
    if arguments.quick:
        need("pusht")
    else:  # lerobot-eval chooses no OpenGL, and ends where there is no screen
        need("diffusion", "metaworld", opengl=True, cores=2)
    with tempfile.TemporaryDirectory() as folder:
        rows = make_rows(arguments, Path(folder))
        for number in range(arguments.rounds):
            for row in rows:
                out = Path(folder) / f"{number} {rows.index(row)}"
                print(f"round {number + 1}: {row.name}", file=sys.stderr, flush=True)
                (ours if "strobe" in row.command else theirs)(row, out)
    show(rows)
    theirs_best = max(row.episode_rate for row in rows if not row.name.startswith("strobe"))
    times = rows[-1].episode_rate / theirs_best
    judged = [row for row in rows if row.judged]
    equal = all(row.successes == judged[0].successes for row in judged)
    apart = max(
        abs(a - b) / max(abs(b), 1e-9) for row in judged for a, b in zip(row.rewards, rows[0].rewards, strict=True)
    )
    figures: dict[str, Any] = {"quick": arguments.quick, "cores": os.cpu_count(), "times": times, "bar": BAR}
    figures |= {"equal successes": equal, "largest difference of a reward": apart}
    figures["rows"] = {row.name: row.figures() for row in rows}
    finish(figures, equal and apart <= SAME and (arguments.quick or times >= BAR))


def make_rows(arguments: argparse.Namespace, folder: Path) -> list[Row]:
    """The commands; the last one is judged."""
    kind, size = ("act", "tiny") if arguments.quick else ("diffusion", "full")
    env = ["--env.type=pusht", "--env.episode_length=40"]
    episodes = 2 if arguments.quick else arguments.episodes
    if not arguments.quick:
        env = ["--env.type=metaworld", f"--env.task={TASK}"]
    rename = [] if arguments.policy is None else [f"--rename_map={arguments.rename_map}"]
    policy = arguments.policy or make_checkpoint(folder / "policy", kind, size, env)
    shared = [*env, *rename, f"--policy.path={policy}", "--policy.device=cpu", f"--seed={SEED}"]
    lerobot = [*shared, f"--eval.n_episodes={episodes}"]
    strobe = [sys.executable, "-m", "strobe", "evaluate", *shared, f"--episodes={episodes}"]
    script = folder / "seeded.py"
    script.write_text(SEEDED)
    filmed, unfilmed = ([sys.executable, str(script), *how, *lerobot] for how in ([], ["unfilmed"]))
    # Its asynchronous environments do not start PushT: their processes do not know its name.
    two = ["--eval.batch_size=2", *(["--eval.use_async_envs=false"] if arguments.quick else [])]
    return [
        Row("lerobot-eval, first ten episodes", filmed),
        Row("lerobot-eval, without videos", unfilmed),
        Row("lerobot-eval --eval.batch_size=2, without videos", [*unfilmed, *two], judged=False),
        Row("strobe evaluate", strobe),
        Row("strobe evaluate --parallel=2", [*strobe, "--parallel=2"]),
    ]


def make_checkpoint(folder: Path, kind: str, size: Any, env: list[str]) -> Path:
    """A checkpoint with random weights that fits the simulator."""
    from lerobot.envs.factory import make_env_config

    from strobe.lerobot.policies.loading import load_subject
    from strobe.lerobot.policies.options import InputOptions, PolicyOptions

    given = dict(flag.removeprefix("--env.").split("=") for flag in env)
    config = make_env_config(given.pop("type"), **{k: int(v) if v.isdecimal() else v for k, v in given.items()})
    subject = load_subject(
        PolicyOptions(type=kind, size=size, overrides=["--device=cpu", "--push_to_hub=false"]), InputOptions(env=config)
    )
    for part in (subject.policy, subject.loaded.preprocessor, subject.loaded.postprocessor):
        part.save_pretrained(folder)
    return folder


def theirs(row: Row, out: Path) -> None:
    """Run lerobot-eval."""
    begun = time.monotonic()
    run([*row.command, f"--output_dir={out}"])
    row.whole_s.append(time.monotonic() - begun)
    told = json.loads((out / "eval_info.json").read_text())
    (task,) = told["per_task"]
    row.playing_s.append(told["overall"]["eval_s"])
    row.successes, row.rewards = task["metrics"]["successes"], task["metrics"]["sum_rewards"]


def ours(row: Row, out: Path) -> None:
    """Run strobe evaluate."""
    begun, episodes_from, ended = time.monotonic(), 0.0, 0.0
    with subprocess.Popen(
        [*row.command, f"--output_dir={out}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            now = time.monotonic()
            episodes_from = now if line.startswith("… episodes in") else episodes_from
            ended = now if ", seed " in line else ended
    if process.returncode:
        raise SystemExit("".join(said[-5:]))
    row.whole_s.append(time.monotonic() - begun)
    row.playing_s.append(ended - episodes_from)
    (log,) = out.glob("*/episodes.jsonl")
    lines = sorted((json.loads(line) for line in log.read_text().splitlines()[1:]), key=lambda one: one["seed"])
    row.successes, row.rewards = [one["success"] for one in lines], [one["reward"] for one in lines]


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit("\n".join(done.stderr.splitlines()[-25:]))


def show(rows: list[Row]) -> None:
    table = Table("command", "episodes per minute", "playing (s)", "with loading (s)", "successes")
    for row in rows:
        spent = [f"{statistics.median(seconds):.1f}" for seconds in (row.playing_s, row.whole_s)]
        table.add_row(row.name, f"{row.episode_rate:.2f}", *spent, f"{sum(row.successes)} of {len(row.successes)}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
