"""Sweeps, and episodes of evaluations, on Ray's own test cluster: a head that runs nothing, and two nodes of one CPU.

Both are here because a cluster takes seconds to start.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from support.checks.presence import require_value
from support.fakes.made_up_simulator import Lines, MadeUp, make_request, plan, run_evaluation
from support.programs.side_by_side import OnNodes, Slow
from support.suite.places import TESTS

import strobe
from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.processes.command import CommandLimits
from strobe.core.results.recipe import Recipe
from strobe.core.runs import store
from strobe.core.runs.recipe_file import dump
from strobe.evaluate.episodes.crews import RayEpisodeRunner
from strobe.sweep.execute import Job, read_outcome, run_on_ray
from strobe_ray import fleet
from strobe_ray.fleet import load_ray

pytestmark = pytest.mark.slow("a real cluster of Ray")

if importlib.util.find_spec("ray") is None:  # importorskip would import it before `load_ray` has told it to be quiet
    pytest.skip("needs Ray", allow_module_level=True)

GIB = 2**30


class Nodes:
    """The cluster, by the names of its nodes; a node that a test took is there again for the next."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        # A node that is gone is dead after 3 s (Ray's own 15 to 30 would be most of this file's time); one that is slow
        # to answer on a busy machine is not.
        silence = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_timeout_ms": 30000}
        config = {**silence, "health_check_failure_threshold": 3}
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": config}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.by_name: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return require_value(self.cluster.address)

    def add(self, name: str, wait: bool = True, **more: Any) -> None:
        variables = {"LIGHT_NODE": name, **more.pop("env_vars", {})}
        self.by_name[name] = self.cluster.add_node(
            wait, node_name=name, env_vars=variables, **{"num_cpus": 1, "object_store_memory": 80 * 2**20, **more}
        )

    def kill(self, name: str) -> None:
        self.cluster.remove_node(self.by_name.pop(name), allow_graceful=False)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    # Short, since Ray keeps sockets there; its own, so that no 'auto' elsewhere on this machine finds this cluster.
    folder = tempfile.mkdtemp(prefix="ray")
    paths = [str(Path(strobe.__file__).parents[1]), str(TESTS), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("TMPDIR", folder)  # a cell that is killed with its node leaves its files
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.delenv("RAY_ADDRESS", raising=False)
        load_ray()
        made = Nodes()
        made.add("one", wait=False)
        made.add("two", wait=False)
        made.cluster.wait_for_nodes()
        yield made
        made.cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Heard:
    """A watch that remembers."""

    began_: list[tuple[str, str]] = field(default_factory=list)
    lost_: list[tuple[str, str]] = field(default_factory=list)

    def began(self, job: Job, node: str = "") -> None:
        self.began_.append((job.key, node))

    def say(self, job: Job, line: str) -> None: ...

    def report_lost(self, job: Job, why: str) -> None:
        self.lost_.append((job.key, why))


@pytest.fixture
def light(tmp_path: Path) -> Callable[..., Job]:
    def job(name: str, memory: int = 4 * GIB, **flags: Any) -> Job:
        argv = (f"--name={name}", *(f"--{key}={value}" for key, value in flags.items()))
        environment = {"LIGHT_LOG": str(tmp_path / "log")}
        limits = CommandLimits(300, memory)
        return Job(
            name,
            1,
            "none",
            argv,
            name,
            tmp_path / "cells" / name,
            limits,
            environment,
            module="support.programs.light_cell",
        )

    return job


def read_log(folder: Path) -> list[dict[str, Any]]:
    log = folder / "log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def wait_for_result(what: Callable[[], Any], seconds: float = 600) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come")


def assert_none_overlapped(lines: list[dict[str, Any]]) -> None:
    """On each device, a cell had ended when the next began. One that was killed has no end, and nothing came after."""
    devices: dict[Any, list[dict[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: line["time"]):
        devices.setdefault((line["node"], line["gpu"]), []).append(line)
    for of_device in devices.values():
        assert [line["what"] for line in of_device] == ["begin", "end"] * (len(of_device) // 2) + ["begin"] * (
            len(of_device) % 2
        )
        for begin, end in zip(of_device[::2], of_device[1::2], strict=False):
            assert begin["pid"] == end["pid"]


def test_every_job_runs_once_and_its_files_come_home(
    nodes: Nodes,
    light: Callable[..., Job],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # the driver can be started anywhere
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    jobs = [light(f"cell{index}", sleep=0.3) for index in range(5)]
    jobs += [light("crash", exit=3), light("large", memory=GIB // 4, hold=GIB // 2)]
    heard = Heard()

    ended = {job.key: outcome for job, outcome in run_on_ray(jobs, heard, nodes.address)}

    assert sorted(ended) == sorted(job.key for job in jobs)
    assert sorted(key for key, _ in heard.began_) == sorted(ended)
    assert not heard.lost_
    for job in jobs[:5]:
        assert read_outcome(job.folder) == ended[job.key]
        assert ended[job.key].status == "done"
        assert ended[job.key].node in ("one", "two")
        assert (job.folder / "log.txt").read_text() == "here I am\n"
        assert (job.folder / "trace.json.gz").read_bytes() == f"trace of {job.key}".encode()
        assert json.loads((job.folder / "result.json").read_text()) == {"name": job.key, "cwd": str(tmp_path)}
    assert (ended["crash"].status, ended["large"].status) == ("crashed", "out of memory")
    assert "code 3" in ended["crash"].reason
    assert "of 0.2 GiB" in ended["large"].reason
    for job in jobs[5:]:
        assert sorted(file.name for file in job.folder.iterdir()) == ["log.txt", "outcome.json"]
    lines = [line for line in read_log(tmp_path) if line["name"] != "large"]
    assert len(lines) == 2 * 6
    assert {line["node"] for line in lines} == {"one", "two"}
    assert {line["threads"] for line in lines} == {None}  # Ray would say 1, and torch would obey
    assert_none_overlapped(lines)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def two(nodes: Nodes) -> Nodes:
    """The cluster with its two nodes alone, whatever the tests before have made of it."""
    for name in {*nodes.by_name} - {"one", "two"}:
        nodes.kill(name)
    for name in {"one", "two"} - {*nodes.by_name}:
        nodes.add(name)
    return nodes


@pytest.fixture
def begun_folder(tmp_path: Path) -> Path:
    """A folder in which players say what they have begun."""
    (tmp_path / "begun").mkdir()
    return tmp_path / "begun"


def begun_episodes(begun: Path) -> list[list[str]]:
    """Node, process and seed of each episode that was begun, in order."""
    file = begun / "nodes"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def table(result: Any) -> list[dict]:
    return [one.model_dump() for one in result.variants]


@pytest.mark.matrix
def test_two_nodes_play_the_table_of_one_process_though_one_of_them_dies(
    two: Nodes, begun_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "many"):
        (tmp_path / name).mkdir()
    alone = run_evaluation(tmp_path / "one", plan(12), MadeUp())
    files: dict[str, bytes] = {}
    lines, lost = Lines(), []

    def kill() -> None:
        node, pid, _ = wait_for_result(lambda: [line for line in begun_episodes(begun_folder) if line[2] == "4"])[0]
        two.kill(node)
        wait_for_result(lambda: not psutil.pid_exists(int(pid)))
        lost.append(node)

    killer = threading.Thread(target=kill)
    killer.start()
    with RayEpisodeRunner(two.address, 1, lines.say) as players:
        players.begin(OnNodes(Slow(begun_folder), once={4: 600.0}), True, files.update)
        together = run_evaluation(tmp_path / "many", plan(12), players, lines=lines)
    killer.join()
    two.add(lost[0])

    assert table(together) == table(alone)
    assert "episodes by the nodes that played them: " in together.notes[-1]
    assert [line for line in lines.lines if line.startswith(f"lost: node {lost[0]}: ")]
    told = [json.loads(line) for line in (tmp_path / "many" / "episodes.jsonl").read_text().splitlines()[1:]]
    keys = [(line["variant"], line["task"], line["seed"]) for line in told]
    assert len(set(keys)) == len(keys), "what was lost is played once more, and counts once"
    # A node that started late may have been lost under its first episode.
    assert {"one", "two"} - {lost[0]} <= {line["node"] for line in told} <= {"one", "two"}
    assert {f"videos/{seed}-{name}.mp4" for name, _, seed in keys} == set(files)
    assert capfd.readouterr().out == ""


@pytest.mark.matrix
def test_players_end_with_a_driver_that_is_killed_and_what_ended_is_gone_on_with(
    two: Nodes, begun_folder: Path, tmp_path: Path
) -> None:
    for name in ("one", "many"):
        (tmp_path / name).mkdir()
    alone = run_evaluation(tmp_path / "one", plan(8), MadeUp())
    argv = [str(tmp_path / "many"), str(begun_folder), make_request(plan(8)).model_dump_json(), "0.05", two.address]
    driver = subprocess.Popen([sys.executable, "-m", "support.programs.side_by_side", *argv], start_new_session=True)
    # Nine have ended, and both nodes are in one that takes ten minutes.
    wait_for_result(lambda: len(begun_episodes(begun_folder)) == 11)
    playing = {int(pid) for _, pid, seed in begun_episodes(begun_folder) if int(seed) >= 3}
    assert len(playing) == 2
    wait_for_result(lambda: len((tmp_path / "many" / "episodes.jsonl").read_text().splitlines()) == 10)

    driver.kill()
    driver.wait(300)

    wait_for_result(lambda: not any(psutil.pid_exists(pid) for pid in playing))
    resumed = run_evaluation(tmp_path / "many", plan(8), MadeUp(), resume=True)
    assert table(resumed) == table(alone)


def test_an_episode_that_fails_on_a_node_is_a_line_with_its_name(
    two: Nodes, begun_folder: Path, tmp_path: Path
) -> None:
    with RayEpisodeRunner(two.address, 1, print) as players:
        players.begin(OnNodes(Slow(begun_folder, fails=3)), True, lambda files: None)
        with pytest.raises(UserError, match=r"^node (one|two): '.*' failed on pusht, seed 3: no torque$"):
            run_evaluation(tmp_path, plan(12), players)
        playing = {int(pid) for _, pid, _ in begun_episodes(begun_folder)}
        wait_for_result(lambda: not any(psutil.pid_exists(pid) for pid in playing))  # ended before the context does


@pytest.mark.matrix
# Two nodes that import torch and LeRobot: 10 s. What they load must be what was loaded here; the recipe is sent there.
def test_a_real_policy_plays_the_same_table_on_two_nodes(two: Nodes, tmp_path: Path) -> None:
    dump(Recipe(policy="diffusion", size="tiny", treatments=[{"policy.num_inference_steps": 1}]), tmp_path / "1.yaml")
    argv = ["evaluate", "--policy.type=diffusion", "--policy.size=tiny", "--policy.device=cpu"]
    argv += [f"--recipe={tmp_path / '1.yaml'}"]
    argv += ["--policy.num_inference_steps=4", "--policy.n_action_steps=5", "--env.type=pusht", "--threads=1"]
    argv += ["--env.episode_length=10", "--episodes=2", "--videos=1", "--latency_iterations=0"]
    assert main([*argv, f"--output_dir={tmp_path / 'here'}"]) == 0
    on_ray = ["--launcher=ray", f"--ray.address={two.address}", f"--output_dir={tmp_path / 'ray'}"]
    assert main([*argv, *on_ray]) == 0
    (here,), (there,) = (list((tmp_path / name).iterdir()) for name in ("here", "ray"))
    one, many = (list(map(json.loads, (run / "episodes.jsonl").read_text().splitlines())) for run in (here, there))
    assert one[0] == many[0]
    assert {line["node"] for line in many[1:]} <= {"one", "two"}
    same = ("variant", "task", "seed", "start", "success", "ticks", "drawn", "motion")
    assert sorted([[line[name] for name in same] for line in one[1:]], key=repr) == sorted(
        [[line[name] for name in same] for line in many[1:]], key=repr
    )
    assert [file.name for file in sorted((there / "videos").iterdir())] == [
        file.name for file in sorted((here / "videos").iterdir())
    ]
    shown: Any = store.load_answer(there)
    assert len(shown.videos) == 2


@pytest.mark.matrix
def test_lost_node(nodes: Nodes, light: Callable[..., Job], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its cell dies with it and runs elsewhere; a node that joins, of two devices, helps at once."""
    # All but the first two wait for the node that joins: it helps however long it takes to come.
    jobs = [light("first", sleep_once=600), light("cell0")]
    jobs += [light(f"cell{index}", until="three:2") for index in range(1, 6)]
    heard, ended = Heard(), []

    begin: dict[str, Any] = {}
    for job, outcome in run_on_ray(jobs, heard, nodes.address):
        if not ended:
            begin = wait_for_result(lambda: [line for line in read_log(tmp_path) if line["name"] == "first"])[0]
            nodes.kill(begin["node"])
            wait_for_result(lambda pid=begin["pid"]: not psutil.pid_exists(pid))
            nodes.add("three", wait=False, num_gpus=2, num_cpus=2)
        ended.append((job.key, outcome.status, outcome.node))

    assert sorted(key for key, _, _ in ended) == sorted(job.key for job in jobs)
    assert {status for _, status, _ in ended} == {"done"}
    assert [key for key, _ in heard.lost_] == ["first"]
    assert heard.lost_[0][1].startswith(f"node {begin['node']}: ")
    lines = read_log(tmp_path)
    again = [line for line in lines if line["name"] == "first"]
    assert [line["what"] for line in again] == ["begin", "begin", "end"]
    assert again[1]["node"] != begin["node"]
    assert len(lines) == 2 * len(jobs) + 1
    assert {line["gpu"] for line in lines if line["node"] == "three"} == {"0", "1"}
    assert_none_overlapped(lines)
    assert capfd.readouterr().out == ""


@pytest.mark.matrix
def test_a_cell_that_takes_its_node_with_it_is_given_up(nodes: Nodes, light: Callable[..., Job]) -> None:
    jobs = [light("killer", suicide="runner"), light("good")]
    heard = Heard()

    ended = {job.key: outcome for job, outcome in run_on_ray(jobs, heard, nodes.address)}

    assert ended["good"].status == "done"
    assert ended["killer"].status == "crashed"
    assert ended["killer"].reason.startswith("given up after 3 nodes that ran it were lost; node ")
    assert read_outcome(jobs[0].folder) == ended["killer"]
    assert [key for key, _ in heard.lost_] == ["killer"] * 2


@pytest.mark.matrix
def test_stopping_ends_the_cells(nodes: Nodes, light: Callable[..., Job], tmp_path: Path) -> None:
    import ray

    running: Any = run_on_ray(
        [light("quick"), *(light(f"slow{index}", sleep=600) for index in range(3))], Heard(), nodes.address
    )
    assert next(running)[0].key == "quick"
    begun = wait_for_result(lambda: [line for line in read_log(tmp_path) if line["name"].startswith("slow")])

    running.close()

    assert not ray.is_initialized()
    wait_for_result(lambda: not any(psutil.pid_exists(line["pid"]) for line in begun))
    assert not list((tmp_path / "cells").glob("slow*"))


@pytest.mark.matrix
def test_a_node_without_strobe_is_named(nodes: Nodes, light: Callable[..., Job], tmp_path: Path) -> None:
    (tmp_path / "strobe.py").write_text("")
    nodes.add("bare", env_vars={"PYTHONPATH": str(tmp_path)})
    try:
        with pytest.raises(UserError, match=r"^node bare cannot run cells: ModuleNotFoundError: .*strobe.*$"):
            list(run_on_ray([light(f"cell{index}", sleep=600) for index in range(9)], Heard(), nodes.address))
    finally:
        nodes.kill("bare")


@pytest.mark.matrix
def test_a_real_cell(nodes: Nodes, tmp_path: Path) -> None:
    flags = ("--policy.type=act", "--policy.size=tiny", "--iterations=2", "--skip_counting")
    job = Job("real", 1, "breakdown", flags, "real", tmp_path / "real", CommandLimits(600, 8 * GIB))

    [(_, outcome)] = run_on_ray([job], Heard(), nodes.address)

    assert outcome.status == "done", (job.folder / "log.txt").read_text()
    assert store.load(job.folder).measurements
    assert (job.folder / "trace.json.gz").is_file()


def test_no_cluster_is_one_line_at_once(light: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    def tries_for_a_minute(**_: Any) -> None:
        raise AssertionError("Ray was asked for a cluster that is not there")

    monkeypatch.setattr(load_ray(), "init", tries_for_a_minute)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(UserError, match=r"^no Ray cluster at 127.0.0.1:\d+ \(connection refused\).*$"):
            next(run_on_ray([light("cell")], Heard(), address))
    for wrong in ("ray://10.0.0.1:10001", "10.0.0.1"):
        with pytest.raises(UserError, match="write HOST:PORT"):
            next(run_on_ray([light("cell")], Heard(), wrong))


def test_a_cluster_with_no_node_left_ends_the_sweep(light: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    head = {"Alive": True, "NodeID": "head", "Resources": {"memory": 1.0}}
    monkeypatch.setattr(fleet, "connect", lambda _: (SimpleNamespace(nodes=lambda: [head]), False))
    monkeypatch.setattr(fleet, "ALONE_S", 0.2)
    monkeypatch.setattr(fleet, "LOOK_EVERY_S", 0.05)
    with pytest.raises(UserError, match="has had no node to run cells on"):
        next(run_on_ray([light("cell")], Heard(), None))
