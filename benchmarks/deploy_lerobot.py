"""Show that LeRobot's own commands run a recipe with nothing but a variable: as fast as promised, and the same.

`lerobot-eval` plays PushT with an ACT of random weights three times each: as it is (``STROBE_RECIPE=off``), with a
recipe, and with a file that is none. The runs alternate. What is compared is the action of each tick and the time that
the policy takes for a chunk, both taken down inside LeRobot's process; the first chunks, which check the recipe, are
left out of the times.

    python benchmarks/deploy_lerobot.py [--quick] [--treatment precision=bf16 …]

The last line is JSON: `holds` is whether the treated runs' actions stayed within 0.2 σ on the first tick, each run with
the recipe said so in one line, and each run with the broken file said so and acted as the baseline did, to the
bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common.shared import finish, need

HERE = Path(__file__).resolve().parent.parent
# LeRobot's command in its own process, with a note of each action and of each chunk's time.
EVAL = """
import json, os, sys, time
import lerobot.scripts.lerobot_eval as program
from lerobot.policies.act.modeling_act import ACTPolicy
chunks, actions, plain = [], [], ACTPolicy.select_action
def select_action(self, batch):
    empty, began = len(self._action_queue) == 0, time.perf_counter()
    action = plain(self, batch)
    if empty:
        chunks.append(time.perf_counter() - began)
    actions.append(action.flatten().tolist())
    return action
ACTPolicy.select_action = select_action
program.main()
json.dump({"chunks": chunks, "actions": actions}, open(os.environ["NOTES"], "w"))
"""
CHECKED = 2  # chunks at the start that are not counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny policy, one run of each")
    parser.add_argument("--treatment", nargs="*", default=["channels_last=true", "precision=bf16"])
    asked = parser.parse_args()
    need("pusht")
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), asked.quick, asked.treatment)
    finish(found, found.pop("holds"))


def run(folder: Path, quick: bool, treatments: list[str]) -> dict[str, Any]:
    """Play the episodes and compare them."""
    sys.path.insert(0, str(HERE / "tests"))
    import yaml
    from support.builders.checkpoints import pusht_checkpoint

    from strobe.core.results.recipe import Recipe
    from strobe.core.runs.recipe_file import dump

    checkpoint = folder / "checkpoint"
    pusht_checkpoint(checkpoint, size="tiny" if quick else "full")
    specs = [{key: yaml.safe_load(value)} for key, _, value in (one.partition("=") for one in treatments)]
    dump(Recipe(policy="act", treatments=specs), folder / "recipe.yaml")
    (folder / "broken.yaml").write_text("treatments: [")
    cases = {"plain": "off", "treated": str(folder / "recipe.yaml"), "broken": str(folder / "broken.yaml")}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for number in range(1 if quick else 3):
        for name, recipe in cases.items():
            runs[name].append(play(checkpoint, folder / f"{name} {number}", recipe, 60 if quick else 300))
            print(f"{name}: {1000 * runs[name][-1]['chunk_s']:.1f} ms a chunk; {runs[name][-1]['said']}", flush=True)
    plain, treated, broken = (runs[name][0] for name in cases)
    first = max(abs(a - b) for a, b in zip(plain["actions"][0], treated["actions"][0], strict=True))
    told = all(len(one["said"]) == 1 and "1 treatment" not in one["said"][0] for one in runs["broken"])
    on = all(len(one["said"]) == 1 and "recipe.yaml on act" in one["said"][0] for one in runs["treated"])
    times = {name: statistics.median(one["chunk_s"] for one in found) for name, found in runs.items()}
    return {
        "holds": first <= 0.2 and on and told and broken["actions"] == plain["actions"],
        "treatments": treatments,
        "plain_ms": round(1000 * times["plain"], 2),
        "treated_ms": round(1000 * times["treated"], 2),
        "times_as_fast": round(times["plain"] / times["treated"], 2),
        "first_action_moved": first,
        "said": treated["said"],
        "broken_said": broken["said"],
    }


def play(checkpoint: Path, out: Path, recipe: str, ticks: int) -> dict[str, Any]:
    """One run of `lerobot-eval`: the normalised actions, the median time of a chunk, and what Strobe logged."""
    out.mkdir()
    notes = out / "notes.json"
    ran = subprocess.run(
        [
            sys.executable, "-c", EVAL, f"--policy.path={checkpoint}", "--env.type=pusht",
            f"--env.episode_length={ticks}", "--eval.batch_size=1", "--eval.n_episodes=1", "--policy.device=cpu",
            "--eval.use_async_envs=false", f"--output_dir={out / 'eval'}", "--seed=3",
        ],
        capture_output=True, text=True, check=False,
        env={**os.environ, "STROBE_RECIPE": recipe, "NOTES": str(notes), "MUJOCO_GL": "osmesa"},
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(ran.stderr[-3000:])
    found = json.loads(notes.read_text())
    said = [line.partition(" strobe: ")[2] for line in ran.stderr.splitlines() if " strobe: " in line]
    return {"actions": found["actions"], "chunk_s": statistics.median(found["chunks"][CHECKED:]), "said": said}


if __name__ == "__main__":
    main()
