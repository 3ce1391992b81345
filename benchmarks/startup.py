"""How soon does a command answer? Beside `python -c 'import torch'` and `lerobot-eval --help`, in alternation.

Every command's --help, wrong flags of each kind, and a breakdown of a tiny ACT to its first line and to its first
iteration. Bars are ratios of the same round, so that a slow machine or a busy one asks the same:

- `strobe --help` and `--version`: at most a tenth of `import torch`,
- any other help and any wrong flag: at most 0.6 of it (1 s where torch takes 1.7 s),
- the first line of a breakdown: at most 0.6 of it,
- the first iteration of a breakdown begins no later than `lerobot-eval --help` ends,
- a breakdown is over soon after its last line: in at most 0.6 of it.

The files that are read are in the system's cache: a round is run first that does not count.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common.shared import finish
from rich.console import Console
from rich.table import Table

from strobe.core.slices import commands

TORCH, EVAL = "python -c 'import torch'", "lerobot-eval --help"
FIRST_LINE, FIRST_ITERATION = "breakdown: first line", "breakdown: first iteration"
END = "breakdown: from its last line to its end"
SHORT, ANSWER, BEGUN = 0.1, 0.6, 1.0  # the bars

ACT = ["breakdown", "--policy.type=act"]
WRONG = [
    ["breakdown"],
    ["breakdown", "--polcy.type=act"],
    ["breakdown", "--policy.type=actt"],
    [*ACT, "--policy.chunk_sise=3"],
    [*ACT, "--policy.chunk_size=x"],
    [*ACT, "--iterations=many"],
    [*ACT, "--env.type=pushtt"],
    [*ACT, "--env.type=pusht", "--env.tsak=x"],
    [*ACT, "--dataset.rot=x"],
    [*ACT, "--rtc.execution_horizn=3"],
    [*ACT, "--recipe=/no/such.yaml"],
    ["breakdown", "--model.type=vjepa3"],
    ["compare", "--policy.type=act", "--variant", "a: speed=1"],
    ["optimize", "--policy.type=act", "--only=precison"],
    ["evaluate", "--policy.type=act", "--env.type=pusht", "--steps=ten"],
    ["sweep", *ACT, "--grid", "policy.chunk_sise=1,2"],
    ["train", "--", "--polcy.type=act"],
    ["rollout", "--", "--robot.type=x", "--polcy.path=x"],
    ["replay", "/no/run"],
]
STUDY = [*ACT, "--policy.size=tiny", "--device=cpu", "--iterations=1", "--skip_counting"]


def seconds(command: list[str]) -> float:
    """How long a process takes from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def breakdown(folder: Path) -> dict[str, float]:
    """Seconds to a breakdown's first line, to the line before its first iteration, and from its last line on."""
    command = [sys.executable, "-u", "-m", "strobe", *STUDY, f"--output_dir={folder}"]
    start = time.perf_counter()
    first = begun = last = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = time.perf_counter() - start
            first = first or last
            if line.startswith("… inference"):
                begun = begun or last
    assert process.returncode == 0, f"{' '.join(command)} failed"
    return {FIRST_LINE: first, FIRST_ITERATION: begun, END: time.perf_counter() - start - last}


def one_round(folder: Path) -> dict[str, float]:
    """Seconds of everything, once."""
    lerobot = shutil.which("lerobot-eval", path=str(Path(sys.executable).parent))
    took = {
        TORCH: seconds([sys.executable, "-c", "import torch"]),
        EVAL: seconds(
            [lerobot, "--help"] if lerobot else [sys.executable, "-m", "lerobot.scripts.lerobot_eval", "--help"]
        ),
    }
    for argv in (["--help"], ["--version"], *([name, "--help"] for name in commands()), *WRONG):
        took[f"strobe {' '.join(argv)}"] = seconds([sys.executable, "-m", "strobe", *argv])
    return took | breakdown(folder)


def startup_bar(name: str) -> tuple[str, float]:
    """Return the yardstick of a row, and the largest ratio to it."""
    if name == FIRST_ITERATION:
        return EVAL, BEGUN
    return TORCH, SHORT if name in ("strobe --help", "strobe --version") else ANSWER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="3 rounds: two minutes on an idle machine")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one_round(Path(folder))
        rounds = [one_round(Path(folder)) for _ in range(3 if asked.quick else asked.rounds)]
    table = Table(box=None, pad_edge=False)
    for title in ("", "seconds", "of", "ratio", "bar", ""):
        table.add_column(title, justify="left" if title in ("", "of") else "right")
    figures: dict[str, dict[str, float]] = {}
    holds = True
    for name in rounds[0]:
        usual = statistics.median(took[name] for took in rounds)
        figures[name] = {"seconds": round(usual, 3)}
        if name in (TORCH, EVAL):
            table.add_row(name, f"{usual:.2f}")
            continue
        against, bar = startup_bar(name)
        ratio = statistics.median(took[name] / took[against] for took in rounds)
        figures[name]["ratio"] = round(ratio, 3)
        holds &= ratio <= bar
        table.add_row(name, f"{usual:.2f}", against, f"{ratio:.2f}", f"{bar:g}", "" if ratio <= bar else "too slow")
    Console(width=140).print(table)
    finish({"rounds": len(rounds), "rows": figures}, holds)


if __name__ == "__main__":
    main()
