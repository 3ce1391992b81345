"""Episodes that are played side by side: the same table, whoever ends first, and no process that stays behind."""

from __future__ import annotations

import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import psutil
import pytest
from support.fakes.made_up_episodes import made_up
from support.fakes.made_up_simulator import Lines, MadeUp, make_request, plan, run_evaluation
from support.programs.side_by_side import Slow
from support.suite.places import TESTS

from strobe.core.errors import UserError
from strobe.evaluate.episode_flags import EpisodeFlags, episode_threads, parse_parallel
from strobe.evaluate.episode_log import NAME, EpisodeLog
from strobe.evaluate.episodes.crews import PoolEpisodeRunner, _RayActor, _share_out_device, _versions
from strobe.evaluate.run import evaluated_rows
from strobe.lerobot.policies.options import PolicyOptions


class Shuffled:
    """A crew of several players whose episodes end in an order by lot."""

    def __init__(self, size: int, seed: int, player: MadeUp, cut: int | None = None) -> None:
        self.size, self.player, self.cut = size, player, cut
        self.handed: list[tuple] = []
        self.lot = random.Random(seed)

    @property
    def free(self) -> int:
        return self.size - len(self.handed)

    def hand(self, candidate, task, seed) -> None:
        self.handed.append((candidate, task, seed))

    def wait_for_episode(self):
        if self.cut is not None and len(self.player.played) >= self.cut:
            raise KeyboardInterrupt
        # The first to be handed out ends last, as far as the lot goes: others play far ahead of it.
        place = self.lot.randrange(len(self.handed))
        return self.player.play(*self.handed.pop(max(place, self.lot.randrange(len(self.handed)))))

    def close(self) -> None:
        self.handed = []


def table(result) -> list[dict]:
    return [one.model_dump() for one in result.variants]


@cache
def play_alone(tasks: tuple[str, ...] = ("pusht",), episodes: int = 60) -> tuple[list[dict], frozenset[tuple]]:
    """The table of one player, and what it played."""
    player = MadeUp()
    with tempfile.TemporaryDirectory() as folder:
        return table(run_evaluation(Path(folder), plan(episodes, tasks=tasks), player)), frozenset(player.played)


@pytest.mark.parametrize("tasks", [("pusht",), ("a", "b", "c")], ids=["a task", "three tasks"])
@pytest.mark.parametrize("size", [2, 5, 40])
def test_the_table_is_that_of_one_player_whoever_ends_first(size, tasks, tmp_path):
    (tmp_path / "many").mkdir()
    many, lines = MadeUp(), Lines()
    wanted, played = play_alone(tasks)
    crew = Shuffled(size, size, many)
    together = run_evaluation(tmp_path / "many", plan(tasks=tasks), crew, lines=lines)
    assert table(together) == wanted
    assert played <= set(many.played), "what counts was played"
    assert len(many.played) == len(set(many.played)), "and nothing twice"
    assert len(many.played) > len(played), "ahead of a verdict: kept, and not counted"
    assert len((tmp_path / "many" / NAME).read_text().splitlines()) == 1 + len(many.played)
    decided = [line for line in lines.lines if "decided after" in line]
    assert len(decided) == 2
    assert not crew.handed, "what is not needed is ended: a latency that is measured next must not run beside it"


@pytest.mark.parametrize("cut", [1, 30, 90])
def test_what_was_cut_goes_on_to_the_same_table_alone_or_together(cut, tmp_path):
    (tmp_path / "many").mkdir()
    before, after = MadeUp(), MadeUp()
    try:
        halted = run_evaluation(tmp_path / "many", plan(), Shuffled(4, cut, before, cut))
        assert halted.status == "interrupted"
        sizes = [row.together.success.episodes for row in halted.variants]
        assert sizes == sorted(sizes, reverse=True), "no episode counts whose predecessor is missing"
    except KeyboardInterrupt:  # none of them counts
        assert cut == 1
    resumed = run_evaluation(tmp_path / "many", plan(), after, resume=True)
    assert table(resumed) == play_alone()[0]
    assert not set(before.played) & set(after.played)


def test_processes_play_the_same_table_and_leave_none_behind(tmp_path):
    (tmp_path / "begun").mkdir()
    (tmp_path / "many").mkdir()
    with PoolEpisodeRunner(2, ()) as workers:
        pids = [one.pid for one in workers.pool.workers]
        workers.begin(Slow(tmp_path / "begun", {0: 0.3}))
        together = run_evaluation(tmp_path / "many", plan(20), workers)
    assert {row.calls.concurrent for row in together.variants} == {1}
    assert "timed while up to 1 other process" in " ".join(together.notes)
    for row in together.variants:
        row.calls.concurrent = 0
    assert table(together) == play_alone(episodes=20)[0]
    played = {int(pid) for file in (tmp_path / "begun").iterdir() for pid in file.read_text().split()}
    assert played == set(pids), "both played"
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"dies": 3}, "one of the 2 processes that play episodes ended (signal SIGKILL): if memory ran out"),
        ({"fails": 3}, "seed 3: no torque"),
    ],
    ids=["a process that dies", "an episode that fails"],
)
def test_what_goes_wrong_in_a_process_is_a_line_and_keeps_the_episodes(how, said, tmp_path):
    (tmp_path / "begun").mkdir()
    with PoolEpisodeRunner(2, ()) as workers:
        pids = [one.pid for one in workers.pool.workers]
        workers.begin(Slow(tmp_path / "begun", **how))
        with pytest.raises(UserError) as caught:
            run_evaluation(tmp_path, plan(), workers)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len((tmp_path / NAME).read_text().splitlines()) >= 1 + 8
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.slow("processes that are killed")
@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_processes_end_with_the_one_that_plays_and_what_ended_is_kept(ends, tmp_path):
    (tmp_path / "begun").mkdir()
    (tmp_path / "many").mkdir()
    request = make_request(plan()).model_dump_json()
    folders = [str(tmp_path / "many"), str(tmp_path / "begun")]
    argv = [sys.executable, "-m", "support.programs.side_by_side", *folders, request, "0.05"]
    paths = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    driver = subprocess.Popen(argv, env=os.environ | {"PYTHONPATH": paths}, start_new_session=True)
    log = tmp_path / "many" / NAME

    # Both are then in an episode that takes ten minutes.
    def nine_have_ended() -> bool:
        assert driver.poll() is None, "the driver ended before it was told to"
        return len(list((tmp_path / "begun").iterdir())) == 11 and len(log.read_text().splitlines()) == 10

    wait_until_true(nine_have_ended)
    family = psutil.Process(driver.pid).children(recursive=True)
    assert len(family) >= 2
    if ends == signal.SIGINT:  # a terminal sends it to all of them
        os.killpg(driver.pid, ends)
    else:
        driver.kill()
    driver.wait(300)
    _, alive = psutil.wait_procs(family, timeout=300)
    assert not alive
    kept = log.read_bytes()
    resumed = run_evaluation(tmp_path / "many", plan(), MadeUp(), resume=True)
    assert log.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    for row in resumed.variants:
        row.calls.concurrent = 0
    assert table(resumed) == play_alone()[0]


def wait_until_true(true) -> None:
    deadline = time.monotonic() + 600
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_is_played_by_one_command_at_a_time(tmp_path):
    first = EpisodeLog.begin(tmp_path, make_request(plan()))
    with pytest.raises(UserError, match="another strobe evaluate is running in"):
        EpisodeLog.resume(tmp_path, make_request(plan()))
    first.close()
    EpisodeLog.resume(tmp_path, make_request(plan())).close()


def test_threads_are_part_of_what_was_asked(tmp_path):
    EpisodeLog.begin(tmp_path, make_request(plan(), threads=3)).close()
    assert episode_threads(None, 1, tmp_path) == episode_threads(None, 2, tmp_path) == 3
    with pytest.raises(UserError, match="that run used 3 torch threads, this one 1; pass --threads=3"):
        EpisodeLog.resume(tmp_path, make_request(plan(), threads=1))
    assert episode_threads(5, 4, None) == 5
    assert episode_threads(None, 1, None) is None
    assert episode_threads(None, 10**6, None) == 1
    assert parse_parallel("auto") >= 1
    for wrong in ("0", "-1", "two", ""):
        with pytest.raises(UserError, match="write a number of processes from 1 on, or auto"):
            parse_parallel(wrong)


def test_a_node_without_the_checkpoint_or_with_other_versions_says_so(tmp_path, monkeypatch):
    from strobe.evaluate.episodes.player_spec import PlayerSpec, PolicySpec, RemotePlayerSpec

    policy = PolicySpec(PolicyOptions(path=str(tmp_path / "policy")), None, "")  # type: ignore[arg-type]
    spec = PlayerSpec(EpisodeFlags(), {"": policy}, evaluated_rows)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)  # it goes there itself
    told = _RayActor().prepare(str(tmp_path), None, _versions(), pickle.dumps(RemotePlayerSpec(spec)))
    assert told == f"there is no checkpoint {tmp_path / 'policy'}: every node needs it at the same path"
    told = _RayActor().prepare(str(tmp_path), None, _versions() | {"torch": "1.0"}, b"")
    assert re.fullmatch("it has torch .*, and the driver 1.0: every node needs the same", told or "")


def test_the_players_of_a_device_share_it():
    assert _share_out_device({"num_cpus": 8}, 1) == [{"num_cpus": 8}]
    assert _share_out_device({"num_cpus": 8}, 3) == [{"num_cpus": 2.6666}] * 3
    assert _share_out_device({"num_gpus": 1, "num_cpus": 0}, 3) == [{"num_gpus": 0.3333, "num_cpus": 0}] * 3
    assert _share_out_device({"num_cpus": 8}, None) == [{"num_cpus": 1}] * 8
    assert _share_out_device({"num_gpus": 1, "num_cpus": 0}, None) == [{"num_gpus": 1, "num_cpus": 0}]


def test_recipes_go_along_and_videos_come_back(monkeypatch):
    from strobe.evaluate.episodes.player_spec import PlayerSpec, RemotePlayerSpec

    seen = []

    def player(self, recipes, keep):
        seen.append([(one.name, one.read_bytes()) for one in recipes])

        def play(name, task, seed):
            keep(f"videos/{seed}.mp4", name.encode())
            return made_up(name, task, seed)

        return play

    monkeypatch.setattr(PlayerSpec, "player", player)
    spec = PlayerSpec(
        EpisodeFlags(recipe=(Path("/nowhere/fast.yaml"), Path("/nowhere/faster.yaml"))), {}, evaluated_rows
    )
    play = RemotePlayerSpec(spec, (b"fast", b"faster"))()
    assert seen == [[("fast.yaml", b"fast"), ("faster.yaml", b"faster")]]
    for seed in (0, 1):
        line, files = play("baseline", "pusht", seed)
        assert line.seed == seed
        assert files == {f"videos/{seed}.mp4": b"baseline"}, "its own alone"
