"""Does `strobe tune` find the best setting of trained policies? Its search against the exhaustive grid, really played.

On two tasks of MetaWorld a small ``act_relative_rtc`` is trained by lerobot-train on the scripted expert's recording.
It reads states, so that thousands of episodes can be played without a GPU. At 0, 100 and 300 ms of latency all settings
of `strobe tune` play all starts, once: that is the exhaustive grid. The search of `strobe tune` is then run on the kept
episodes, with the starts in another order for each seed.

Bars, at each latency of each task:
- with each of 5 seeds the winner's success rate is within 3 points of the grid's best, and its mean time to the task
  within 5 %. The best is the soonest of the settings whose success rate is within 3 points of the highest;
- with each seed the search plays 35 % of the grid's episodes at most;
- what the closing pairs claim (better, or sooner), holds on 200 further pairs on new starts: the difference has the
  same sign there. These episodes, and those of the closing pairs, are played for it.

With --cliff: success against the delay, with few and with many actions executed, with RTC, and, where LeRobot's policy
server serves the policy, with its async inference.

    python benchmarks/settings_grid.py --keep=FOLDER             records, trains, plays: hours on one core
    python benchmarks/settings_grid.py --policies=FOLDER         plays; FOLDER/TASK/checkpoints/last/pretrained_model
    python benchmarks/settings_grid.py --policies=FOLDER --only=push --starts=60 --pairs=100
    python benchmarks/settings_grid.py --policies=FOLDER --only=pusht   human demonstrations, not run whole yet
    python benchmarks/settings_grid.py --quick                   a policy that learnt nothing, a few episodes: no bar

Every episode is kept in FOLDER/episodes-TASK.jsonl, and is not played again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common.settings_play import PUSHT, Episodes, Trained, checkpoint, make_env_config
from common.shared import finish, need
from rich.console import Console
from rich.table import Table

from strobe.core.measure.statistics import bonferroni
from strobe.evaluate.episode_log import EpisodeLine, Key
from strobe.evaluate.episodes.play import Candidate
from strobe.evaluate.measure.best_arm import mean_s, rank_settings
from strobe.evaluate.measure.success_rates import LEVEL, decide, rate_interval
from strobe.evaluate.measure.time_to_task import Ended, episode_ends, judge_times, time_unjudged_reason
from strobe.tune.run import policy_facts
from strobe.tune.search import HELD_OUT, Search, SearchPlan
from strobe.tune.settings import TunedSetting

TASKS = (
    Trained("button-press-topdown-v3", "act_relative_rtc", 100, 4000, frames=80),
    Trained("push-v3", "act", 150, 2000),
)
# Not without --only=pusht: an hour of training on one core makes no policy that succeeds.
LONG = Trained(PUSHT, "diffusion", 206, 10000, limit=300)
LATENCIES_MS = (0.0, 100.0, 300.0)
SEEDS, MARGIN_OF_LOSS = 5, 0.1
NEAR_RATE, NEAR_TIME, SHARE = 0.03, 1.05, 0.35
FIRST = 1000  # seed of the grid's first start; recorded are the seeds from 0 on
CHECKED = 2 * HELD_OUT  # seed of the first start of the pairs that check a claim
CLIFF_TICKS = (0, 4, 8, 16, 20, 24, 32)
CLIFF = (
    TunedSetting("sync", 10),
    TunedSetting("sync", 40),
    TunedSetting("rtc", None, 40, 30),
    TunedSetting("rtc", None, 40, 40),
    TunedSetting("async", join="weighted_average", share=0.5, sent=40),
    TunedSetting("async", join="latest_only", share=0.9, sent=40),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", "--keep", type=Path, dest="folder", help="policies and episodes; made if missing")
    parser.add_argument("--only", default="", help="tasks that have this in their names")
    parser.add_argument("--starts", type=int, default=100, help="of each setting in the grid")
    parser.add_argument("--pairs", type=int, default=200, help="closing pairs at most, and pairs that check a claim")
    parser.add_argument(
        "--cliff", type=int, default=0, metavar="STARTS", help="success against delay, of so many starts"
    )
    parser.add_argument("--quick", action="store_true", help="a policy that learnt nothing, a few episodes")
    arguments = parser.parse_args()
    tasks = [LONG] if arguments.only == PUSHT else [trained for trained in TASKS if arguments.only in trained.task]
    need(*(("diffusion", "pusht") if tasks == [LONG] else ("metaworld",)), opengl=tasks != [LONG])
    if not tasks:
        parser.error(f"--only={arguments.only}: no task has this in its name")
    if arguments.quick:
        tasks, arguments.starts, arguments.pairs = [Trained(TASKS[0].task, TASKS[0].kind, 2, 4, 45, limit=30)], 2, 8
    console = Console(width=150)
    figures: dict[str, Any] = {"quick": arguments.quick, "starts": arguments.starts, "pairs": arguments.pairs}
    holds = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for trained in tasks:
            policy = checkpoint(trained, folder)
            episodes = Episodes(policy, make_env_config(trained), folder / f"episodes-{trained.task}.jsonl")
            try:
                if arguments.cliff:
                    figures[trained.task] = cliff(episodes, arguments.cliff, console)
                    continue
                judged = [
                    evaluate_at_latency(episodes, ms, arguments.starts, arguments.pairs, console)
                    for ms in (LATENCIES_MS[1:2] if arguments.quick else LATENCIES_MS)
                ]
            finally:
                episodes.close()
            figures[trained.task] = [each.figures() for each in judged]
            holds = holds and all(each.holds for each in judged)
            seconds = episodes.took_s / max(episodes.played, 1)
            console.print(f"{trained.task}: {episodes.played} episodes played now, {seconds:.2f} s each")
    finish(figures, holds or arguments.quick)


# --- the search on the grid ---


@dataclass
class Replayed:
    """A tuning on the kept episodes.

    Attributes:
        share: of the grid's episodes, that its rounds played.
        behind: points of success rate that the winner lies below the best.
        longer: the winner's mean time over the best's.
        claim: 'better', 'sooner' or ''.
        checked: what the further pairs say of the claim.
    """

    winner: str
    share: float
    behind: float
    longer: float
    claim: str
    pairs: int
    checked: dict[str, Any] | None = None

    @property
    def is_near_best(self) -> bool:
        """Whether the winner is as good as the bars ask."""
        return self.behind <= NEAR_RATE + 1e-9 and self.longer <= NEAR_TIME

    @property
    def has_sound_claim(self) -> bool:
        """Whether nothing is claimed that the further pairs contradict."""
        return self.checked is None or self.checked["same_sign"]


@dataclass
class AtLatency:
    """The grid at one latency, and the tunings on it."""

    ms: float
    grid: dict[str, list[Ended]]
    best: str
    tunings: list[Replayed]

    @property
    def holds(self) -> bool:
        """Whether the bars are met."""
        return all(each.is_near_best and each.share <= SHARE and each.has_sound_claim for each in self.tunings)

    def figures(self) -> dict[str, Any]:
        """Return the figures for the last line."""
        rows = {name: {"success": rate(played), "mean_s": mean_s(played)} for name, played in self.grid.items()}
        return {"ms": self.ms, "best": self.best, "grid": rows, "tunings": [vars(each) for each in self.tunings]}


def evaluate_at_latency(episodes: Episodes, ms: float, starts: int, pairs: int, console: Console) -> AtLatency:
    """Play the grid at a latency, search it with each seed, and check what is claimed."""
    rows = episodes.rows(ms)
    seeds = range(FIRST, FIRST + starts)
    episodes.play(rows, seeds)
    grid = {row.name: episode_ends([episodes.play_once(row, seed) for seed in seeds]) for row in rows}
    best = rank_settings(grid)[0]
    found = AtLatency(ms, grid, best, [replay_search(episodes, rows, grid, pairs, seed) for seed in range(SEEDS)])
    for tuning in found.tunings:
        if tuning.claim:
            tuning.checked = check(episodes, rows, tuning, pairs)
    show(found, console)
    return found


def replay_search(
    episodes: Episodes, rows: Sequence[Candidate], grid: Mapping[str, list[Ended]], pairs: int, seed: int
) -> Replayed:
    """Search with the starts in an order of its own; what the closing pairs need is played."""
    starts = len(next(iter(grid.values())))
    random = np.random.default_rng(seed)
    orders = random.permutation(starts) + FIRST, random.permutation(pairs) + HELD_OUT
    (task,) = episodes.stage.tasks
    search = Search(SearchPlan(rows, [task], starts, MARGIN_OF_LOSS, held_out=pairs))
    seen: dict[Key, EpisodeLine] = {}
    while not search.is_finished:
        while (due := search.due(seen)) is not None:
            candidate, _, number = due
            real = orders[1][number - HELD_OUT] if number >= HELD_OUT else orders[0][number]
            row = next(each for each in rows if each.name == candidate.name)
            seen[candidate.name, task, number] = episodes.play_once(row, int(real))
            if number >= HELD_OUT and candidate.name == search.winner:
                break  # the pairs end as soon as they are decided
        for _ in search.advance(seen):
            pass
    best, winner = grid[rank_settings(grid)[0]], grid[search.winner] if search.winner else next(iter(grid.values()))
    pairs_played = search.pairs()
    return Replayed(
        search.winner or "",
        sum(map(len, search.played_in_rounds().values())) / (len(rows) * starts),
        rate(best) - rate(winner),
        mean_s(winner) / mean_s(best),
        verdict(*(episode_ends(side) for side in zip(*pairs_played, strict=True)))["claim"] if pairs_played else "",
        len(pairs_played),
    )


def check(episodes: Episodes, rows: Sequence[Candidate], tuning: Replayed, pairs: int) -> dict[str, Any]:
    """Play the winner and the default on new starts; return what these pairs say of the claim."""
    winner = next(row for row in rows if row.name == tuning.winner)
    seeds = range(CHECKED, CHECKED + pairs)
    episodes.play([rows[0], winner], seeds)
    found = verdict(*(episode_ends([episodes.play_once(row, seed) for seed in seeds]) for row in (rows[0], winner)))
    same = found["difference"] > 0 if tuning.claim == "better" else (found["ratio"] or 0) > 1
    return {**found, "pairs": pairs, "same_sign": same}


def verdict(default: Sequence[Ended], winner: Sequence[Ended]) -> dict[str, Any]:
    """Return the difference of success, the middle ratio of times, and what `strobe tune` claims of these pairs."""
    differences = [int(b.success) - int(a.success) for a, b in zip(default, winner, strict=True)]
    success = decide(differences, MARGIN_OF_LOSS, bonferroni(2, LEVEL)).kind
    times = None if time_unjudged_reason(winner, default) else judge_times(default, winner, bonferroni(2, LEVEL))
    sooner = times is not None and times.kind == "sooner" and success != "worse"
    return {
        "claim": "better" if success == "better" else "sooner" if sooner else "",
        "default": rate(default),
        "difference": float(np.mean(differences)),
        "ratio": times.ratio if times is not None else None,
        "mean_ratio": times.mean_ratio if times is not None else None,
    }


def rate(played: Sequence[Ended]) -> float:
    """Return the share of successes."""
    return sum(each.success for each in played) / len(played)


def show(found: AtLatency, console: Console) -> None:
    """Print the grid, and the tunings on it."""
    starts = len(next(iter(found.grid.values())))
    table = Table("setting", "success", "mean s to the task", "won", title=f"the grid, {starts} starts of each setting")
    for name in rank_settings(found.grid):
        won = sum(each.winner == name for each in found.tunings)
        played = found.grid[name]
        table.add_row(name, f"{rate(played):.1%}", f"{mean_s(played):.3f}", str(won or ""))
    console.print(table)
    table = Table("seed", "winner", "behind the best", "time ÷ best's", "share", "claim (pairs)", "checked")
    for seed, each in enumerate(found.tunings):
        said = ""
        if each.checked is not None:
            ratio = each.checked["ratio"]
            times = f", {ratio:.2f} × as fast" if ratio else ""
            said = f"{100 * each.checked['difference']:+.1f} points{times} at {each.checked['pairs']} pairs"
        table.add_row(
            str(seed), each.winner, f"{100 * each.behind:.1f} points", f"{each.longer:.3f}", f"{each.share:.1%}",
            f"{each.claim} ({each.pairs})" if each.pairs else "", said,
        )  # fmt: skip
    console.print(table)


# --- the cliff ---


def cliff(episodes: Episodes, starts: int, console: Console) -> list[dict[str, Any]]:
    """Play a few settings at more delays; return and print success against delay, each against no delay."""
    fps, seeds = episodes.env.fps, range(FIRST, FIRST + starts)
    facts = policy_facts(episodes.subject)
    able = {"sync": True, "rtc": facts.guided, "async": not facts.not_served}
    settings = [setting for setting in CLIFF if able[setting.engine]]
    figures: list[dict[str, Any]] = []
    before: dict[str, list[Ended]] = {}
    for ticks in CLIFF_TICKS:
        rows = episodes.rows(1e3 * ticks / fps, settings)
        episodes.play(rows, seeds)
        for row, setting in zip(rows, settings, strict=True):
            played = episode_ends([episodes.play_once(row, seed) for seed in seeds])
            pairs = zip(before.setdefault(setting.name, played), played, strict=True)
            kind = decide([int(b.success) - int(a.success) for a, b in pairs], MARGIN_OF_LOSS, LEVEL).kind
            won = sum(each.success for each in played)
            ends = rate_interval(won, starts)
            figures.append(
                {
                    "setting": setting.name, "ticks": ticks, "success": won / starts, "interval": [ends.low, ends.high],
                    "mean_s": mean_s(played), "against 0 ticks": kind,
                }
            )  # fmt: skip
    table = Table("delay, ticks", *(setting.name for setting in settings), title=f"success, {starts} starts each")
    for ticks in CLIFF_TICKS:
        cells = [each for each in figures if each["ticks"] == ticks]
        table.add_row(
            str(ticks), *(f"{e['success']:.0%} in {e['mean_s']:.2f} s, {e['against 0 ticks']}" for e in cells)
        )
    console.print(table)
    return figures


if __name__ == "__main__":
    main()
