"""The search for a data loader, on real loaders of LeRobot over a small recording of PushT."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from lerobot.configs.train import TrainPipelineConfig
from support.builders.broken_datasets import copy_dataset, late
from support.examples.loader import rate, starving_loader

from strobe.core.errors import UserError
from strobe.core.measure import memory
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.subject import Machine
from strobe.core.studies.shared.progress import Silent
from strobe.dataloader import encodings, preparation, process
from strobe.dataloader import run as search
from strobe.dataloader.bench import Bench
from strobe.dataloader.encodings import ImageFormat
from strobe.dataloader.preparation import StepNeeds, read_dataset_facts
from strobe.dataloader.process import LoaderError, LoaderProcess
from strobe.dataloader.results import LoaderSettings, Rate, StepNeed
from strobe.dataloader.run import caches, changes, measure_what_ifs
from strobe.dataloader.settings import SearchOptions, candidates, started_by_fork
from strobe.dataloader.train_loader import (
    KeptSamples,
    keep_samples,
    loader_settings,
    open_dataset,
    open_loader,
    sample_bytes,
)
from strobe.lerobot.policies.training_step import Training
from strobe.train.watch import train_config

pytestmark = pytest.mark.skipif("fork" not in torch.multiprocessing.get_all_start_methods(), reason="needs fork")
OPTIONS = SearchOptions(workers=[0, 1], prefetch=[2], first_s=0.05, last_s=0.1, start_ups=False, what_ifs=False)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainPipelineConfig:
    from strobe.simulators.scripted import record_pusht

    process.warm_up()
    root = record_pusht(tmp_path_factory.mktemp("pusht") / "data", episodes=2, frames=20, image=96)
    flags = [
        "--policy.type=diffusion",
        "--policy.device=cpu",
        "--num_workers=1",
        "--prefetch_factor=2",
        "--batch_size=4",
    ]
    return train_config(["--dataset.repo_id=local/pusht", f"--dataset.root={root}", *flags], measuring=True)


@pytest.fixture(scope="module")
def own(config: TrainPipelineConfig) -> LoaderSettings:
    return started_by_fork(loader_settings(config))


def machine() -> Machine:
    from strobe.core.measure.machine import describe

    return describe(torch.device("cpu"))


def test_the_loader_delivers_what_lerobot_train_s_would(config: TrainPipelineConfig, own: LoaderSettings) -> None:
    from lerobot.datasets import EpisodeAwareSampler

    serial = own.model_copy(update={"num_workers": 0})
    dataset = open_dataset(config, serial)
    batches = iter(open_loader(config, serial, dataset))
    theirs = EpisodeAwareSampler(
        dataset.meta.episodes["dataset_from_index"],
        dataset.meta.episodes["dataset_to_index"],
        drop_n_last_frames=getattr(config.policy, "drop_n_last_frames"),  # noqa: B009
        shuffle=True,
        seed=config.seed or 0,
    )
    epoch = list(theirs)
    assert len(epoch) < dataset.num_frames
    taken = [next(batches) for _ in range(2 * len(epoch) // 4)]
    given = torch.cat([batch["index"] for batch in taken]).tolist()
    assert given[: len(epoch)] == epoch, "lerobot-train's order"
    assert sorted(given[len(epoch) :]) != epoch[: len(given) - len(epoch)]
    assert set(given[len(epoch) :]) <= set(epoch), "then the next epoch, without a seam"
    assert taken[0]["observation.image"].shape == (4, 2, 3, 96, 96)
    assert taken[0]["observation.image"].dtype == torch.uint8


@pytest.mark.slow("a whole search, with a loader's real processes", each_change=True)
def test_a_search_names_the_cheapest_loader_that_feeds_the_step(config: TrainPipelineConfig) -> None:
    answer = search.study(
        config, OPTIONS, machine(), lambda size: StepNeed(batch_size=size, samples_per_s=1e-3, source="given"), Silent()
    )
    said = answer.recommendations[0]
    assert said.fed
    assert said.flags[0] == "--num_workers=1"
    assert "--dataset.video_backend=pyav" in said.flags
    assert said.step_ms_now == said.step_ms_then == pytest.approx(4e6)
    chosen = next(row for row in answer.rows if row.chosen)
    assert chosen.rate is not None
    assert chosen.rate.block_samples % 4 == 0
    assert chosen.start_up_s is not None
    assert (chosen.worker_uss_bytes or 0) > 0
    assert chosen.shared_most_bytes == 2 * 4 * answer.dataset.sample_bytes
    assert answer.own.start_method == "spawn", "what the user's flags say is kept"
    assert answer.dataset.frames == 40


@pytest.mark.slow("every loader for as long as a verdict takes")
def test_asked_for_the_fastest_it_measures_all_and_needs_no_step(config: TrainPipelineConfig) -> None:
    answer = search.study(config, OPTIONS, machine(), lambda size: None, Silent())
    assert {row.settings.num_workers for row in answer.rows if row.status == "done"} == {0, 1}
    assert answer.recommendations[0].step_ms_now is None
    assert not answer.recommendations[0].fed


@pytest.mark.slow("Ctrl-C in a real search")
def test_ctrl_c_keeps_what_was_measured(config: TrainPipelineConfig) -> None:
    class Impatient(Silent):
        looks = 0

        def stage(self, what: str) -> None:
            self.looks += what.endswith(" s")
            if self.looks == 2:
                raise KeyboardInterrupt

    answer = search.study(config, OPTIONS, machine(), lambda size: None, Impatient())
    assert answer.status == "interrupted"
    assert [row.status for row in answer.rows].count("done") == 1
    assert not answer.recommendations


@pytest.mark.slow("a loader's real processes")
def test_a_loader_that_needs_too_much_shared_memory_is_refused_and_the_rest_go_on(
    config: TrainPipelineConfig, own: LoaderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, _ = read_dataset_facts(config, own)
    monkeypatch.setattr(memory, "shared_free", lambda: 3 * 4 * facts.sample_bytes)
    choice = [own.model_copy(update={"prefetch_factor": ahead}) for ahead in (2, 3, 4)]
    with Bench(config, facts, choice, choice[0]) as bench:
        assert [bench.rows[one].status for one in choice] == ["not run", "not run", "refused"]
        assert "workers × prefetch × batch" in bench.rows[choice[2]].reason
        assert "--shm-size" in bench.rows[choice[2]].reason


def is_halted(worker: psutil.Process) -> bool:
    """Whether a process is stopped, once the kernel has got round to it."""
    end = time.monotonic() + 300
    while worker.status() != psutil.STATUS_STOPPED and time.monotonic() < end:
        time.sleep(0.01)
    return worker.status() == psutil.STATUS_STOPPED


def has_ended(process: psutil.Process) -> bool:
    """Whether a process is gone, or soon will be; nobody may be there to take note of its end."""
    end = time.monotonic() + 300
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
        time.sleep(0.05)
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow("a loader that hangs")
def test_a_worker_that_dies_and_one_that_hangs_are_reasons(config: TrainPipelineConfig, own: LoaderSettings) -> None:
    with LoaderProcess(config, own, patience_s=30) as process:
        process.start()
        worker = psutil.Process(process.worker_pids[0])
        process.sample(0.01)
        assert is_halted(worker), "it waits without taking time"
        worker.kill()
        with pytest.raises(LoaderError, match=r"worker.*(killed|exited)"):
            process.sample(5)
    with LoaderProcess(config, own, patience_s=30) as process:
        process.start()
        worker = psutil.Process(process.worker_pids[0])
        process.patience_s = 0.5
        process.worker_pids = []  # nobody wakes it
        worker.suspend()
        with pytest.raises(LoaderError, match=r"hung: no batch for 0\.5 s"):
            process.sample(0.1)
    assert has_ended(worker), "closing ends a halted worker"


@pytest.mark.slow("a loader's real processes")
def test_a_broken_video_is_named_in_one_line(config: TrainPipelineConfig, tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "broken"
    shutil.copytree(str(config.dataset.root), root)
    video = next(root.rglob("*.mp4"))
    video.write_bytes(b"not a video")
    flags = ["--policy.type=diffusion", "--policy.device=cpu"]
    broken = train_config(["--dataset.repo_id=local/pusht", f"--dataset.root={root}", *flags], measuring=True)
    with pytest.raises(UserError, match=r"file-000\.mp4"):
        read_dataset_facts(broken, started_by_fork(loader_settings(broken)))


@pytest.mark.slow("a loader's real processes")
def test_a_dataset_that_cannot_be_read_is_refused_before_a_loader_is_blamed(
    config: TrainPipelineConfig, tmp_path: Path
) -> None:
    root = copy_dataset(Path(str(config.dataset.root)), tmp_path / "late")
    late(root, 1, 1, "observation.image")
    flags = ["--policy.type=diffusion", "--policy.device=cpu", "--num_workers=0", "--batch_size=4"]
    given = train_config(["--dataset.repo_id=local/pusht", f"--dataset.root={root}", *flags], measuring=True)
    with pytest.raises(UserError, match=r"episode 1, frame 19 of .+1 frame \(100 ms\) too late.+episodes=\[0\]"):
        search.study(given, OPTIONS, machine(), lambda _: None, Silent())


def test_candidates_hold_the_user_s_own_first_and_no_prefetch_without_workers(own: LoaderSettings) -> None:
    made = candidates(own, ["pyav", "torchcodec"], 2, SearchOptions())
    assert made[0] == own
    assert len(set(made)) == len(made)
    assert {one.num_workers for one in made} == {0, 1, 2, 4}
    serial = [one for one in made if one.num_workers == 0]
    assert len(serial) == 2, "one per video backend"
    assert {one.prefetch_factor for one in made if one.num_workers} == {2, 4, 8}


class Waiting(Bench):
    """Loaders whose samples wait, and take no core: each worker has its rate, up to sixteen of them."""

    def sample(self, candidate: LoaderSettings, seconds: float) -> Rate:
        self.rows[candidate].status = "done"
        seen = self.rows[candidate].rate = rate(10.0 * min(candidate.num_workers, 16), 0.02)
        return seen


@pytest.mark.parametrize(
    ("needed", "most", "tried"),
    [(1000.0, 64, [8, 16, 32]), (math.inf, 64, [8, 16, 32]), (70.0, 64, [8]), (1000.0, 8, [8]), (1000.0, 4, [])],
)
def test_workers_are_doubled_while_that_is_faster_and_the_step_is_not_fed(
    own: LoaderSettings, needed: float, most: int, tried: list[int]
) -> None:
    four = own.model_copy(update={"num_workers": 4})
    with Waiting(None, starving_loader().dataset, [four], own, needed) as bench:  # type: ignore[arg-type]
        bench.sample(four, 1.0)
        grown = [(row.settings.num_workers, faster) for row, faster in bench.grow(four, most, 1.0)]
    assert grown == [(count, count <= 16) for count in tried]


def test_loading_without_workers_takes_turns_with_the_step(own: LoaderSettings) -> None:
    serial = own.model_copy(update={"num_workers": 0})
    assert search.step_ms(40, 10, own) == pytest.approx(400)
    assert search.step_ms(10, 40, own) == pytest.approx(400)
    assert search.step_ms(40, 10, serial) == pytest.approx(500)
    assert search.step_ms(40, math.inf, own) is None


@pytest.mark.parametrize(("video", "transforms", "update", "names"), [
    (True, False, {}, ["one decoder thread in each worker", "two torch threads in each worker"]),
    (True, False, {"video_backend": "torchcodec"}, ["two torch threads in each worker"]),
    (False, True, {}, ["two torch threads in each worker", "no image transforms in the loader"]),
    (True, True, {"num_workers": 0, "pin_memory": True},
     ["no image transforms in the loader", "memory that is not pinned"]),
    (True, False, {"num_workers": 0}, []),
])  # fmt: skip
def test_only_changes_that_can_matter_are_tried(
    own: LoaderSettings, video: bool, transforms: bool, update: dict[str, object], names: list[str]
) -> None:
    chosen = own.model_copy(update=update)
    made = changes(chosen, video=video, transforms=transforms)
    assert [change.name for change in made] == names
    assert all(change.settings != chosen for change in made)


@pytest.mark.slow("two more loaders for as long as a verdict takes")
def test_what_ifs_are_measured_beside_the_chosen_loader(config: TrainPipelineConfig, own: LoaderSettings) -> None:
    facts, _ = read_dataset_facts(config, own)
    with Bench(config, facts, [own], own) as bench:
        rows = list(measure_what_ifs(bench, own, 0.1, transforms=False, live=Silent()))
        assert list(bench.rows) == [own], "the search's own rows are left alone"
        assert list(bench.alive) == [own]
    assert [(row.name.split()[1], row.status) for row in rows] == [("decoder", "done"), ("torch", "done")]
    assert all(row.rate is not None and row.baseline is not None for row in rows)


@pytest.mark.slow("two more loaders for as long as a verdict takes")
def test_the_bounds_of_a_cache_are_measured_and_nothing_stays(
    config: TrainPipelineConfig, own: LoaderSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shm"
    shared.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    facts, root = read_dataset_facts(config, own)
    with Bench(config, facts, [own], own) as bench:
        decoded, copied = caches(bench, own, root, 0.2, Silent(), shared)
        assert list(bench.rows) == [own]
    assert [(row.name, row.status, row.reason) for row in (decoded, copied)] == [
        ("samples decoded beforehand, in memory", "done", ""), ("the data set in /dev/shm", "done", ""),
    ]  # fmt: skip
    assert "of 40 samples" in decoded.note
    assert all(row.rate is not None and row.baseline is not None for row in (decoded, copied))
    assert [path.name for path in tmp_path.iterdir()] == ["shm"]
    assert not list(shared.iterdir())

    class Interrupted(Silent):
        def stage(self, what: str) -> None:
            if what == "what if: the data set in /dev/shm":
                assert list(shared.iterdir())
                raise KeyboardInterrupt

    with Bench(config, facts, [own], own) as bench, pytest.raises(KeyboardInterrupt):
        list(caches(bench, own, root, 0.1, Interrupted(), shared))
    assert not list(shared.iterdir())


def test_decoded_samples_are_those_that_the_dataset_gives(
    config: TrainPipelineConfig, own: LoaderSettings, tmp_path: Path
) -> None:
    dataset, file = open_dataset(config, own), tmp_path / "samples.pt"
    assert keep_samples(dataset, file, 7 * sample_bytes(dataset), 60.0) == (7, 40)
    kept = KeptSamples(dataset, str(file))
    assert len(kept) == 40
    for index in (0, 6, 9):
        was, now = dataset[index % 7], dict[str, Any](kept[index])
        assert was.keys() == now.keys()
        assert all(torch.equal(now[key], value) if torch.is_tensor(value) else now[key] == value
                   for key, value in was.items())  # fmt: skip


@pytest.mark.parametrize(("free", "where", "why"), [
    (None, "shm", "this machine has no"),
    (1 << 10, "shm", "are more than"),
    (1 << 40, "", "lies in"),
])  # fmt: skip
def test_a_bound_without_room_is_not_judged(
    config: TrainPipelineConfig, own: LoaderSettings, monkeypatch: pytest.MonkeyPatch, free: int, where: str, why: str
) -> None:
    root = Path(str(config.dataset.root))
    monkeypatch.setattr(memory, "shared_free", lambda *_: free)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 40 if free == 1 << 40 else 1 << 12)
    shared = root.parent / where if where else root.parent
    with Bench(config, starving_loader().dataset, [own], own) as bench:
        if free == 1 << 40:
            bench.facts.sample_bytes = 1 << 30  # a batch is more than the most that is kept
        decoded, copied = caches(bench, own, root, 0.1, Silent(), shared)
    assert decoded.status == copied.status == "refused"
    assert decoded.reason.startswith("not judged: a batch of")
    assert copied.reason.startswith("not judged: ")
    assert why in copied.reason


@pytest.mark.slow("data written in another encoding")
def test_a_sample_is_written_anew_and_loaded(
    config: TrainPipelineConfig, own: LoaderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    formats = (ImageFormat("h264", scale=0.5), ImageFormat("no such codec"), ImageFormat(None))
    monkeypatch.setattr(encodings, "FORMATS", formats)
    monkeypatch.setattr(encodings, "TURNS", 1)
    rows = list(encodings.encodings(config, own, 1, 0.1, Silent()))
    assert [row.name for row in rows] == ["baseline", *(one.name for one in formats)]
    assert [row.status for row in rows] == ["done", "done", "failed", "done"]
    assert "no such codec" in rows[2].reason
    assert rows[1].psnr_db is not None
    assert 10 < rows[1].psnr_db < 60, "half the size loses something"
    assert rows[3].psnr_db is None, "single images lose nothing"
    assert (rows[3].bytes_per_hour or 0) > (rows[1].bytes_per_hour or 0) > 0


@pytest.mark.parametrize(("amp", "cast"), [("true", torch.bfloat16), ("false", None)])
def test_the_step_is_measured_as_lerobot_train_runs_it_and_the_notes_say_so(
    config: TrainPipelineConfig, monkeypatch: pytest.MonkeyPatch, amp: str, cast: torch.dtype | None
) -> None:
    from lerobot.policies.act.modeling_act import ACTPolicy

    seen, settings, forward = set(), set(), ACTPolicy.forward

    def watch_forward(*args: Any, **kwargs: Any) -> Any:
        settings.add((torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic))
        seen.add(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
        return forward(*args, **kwargs)

    monkeypatch.setattr(ACTPolicy, "forward", watch_forward)
    monkeypatch.setattr(preparation, "BUDGET", SamplingBudget(iterations=1))
    data = ["--dataset.repo_id=local/pusht", f"--dataset.root={config.dataset.root}", f"--policy.use_amp={amp}"]
    small = ["--policy.dim_model=64", "--policy.n_heads=4", "--policy.pretrained_backbone_weights=null"]
    repeatable = cast is None
    flags = [*data, *small, "--policy.type=act", "--policy.device=cpu", f"--cudnn_deterministic={repeatable}"]
    monkeypatch.setattr(Training, "sets_process", True)  # as on a card
    steps = StepNeeds(train_config(flags, measuring=True), Silent())
    need = steps(2)
    assert need.step_ms is not None
    assert need.samples_per_s == pytest.approx(2000 / need.step_ms.summary.median)
    assert seen == {cast}
    about = [note for note in steps.notes if "autocast" in note]
    assert settings == {(not repeatable, repeatable)}, "as lerobot-train sets it, by its own flag"
    assert any("cudnn.benchmark" in note for note in steps.notes)
    assert about == (["the step was measured under autocast to bfloat16, as lerobot-train runs it"] if cast else [])


def test_the_command_says_what_is_wrong_in_one_line(config: TrainPipelineConfig, tmp_path: Path) -> None:
    from strobe.core.cli.main import main

    data = ["--dataset.repo_id=local/pusht", f"--dataset.root={config.dataset.root}", "--policy.type=act"]
    for argv in (
        data,
        ["--needed=fast", "--", *data],
        ["--workers=two", "--", *data],
        ["--sconds=3", "--", *data],
        ["--", *data, "--num_wrokers=2"],
        ["--", *data, "--dataset.streaming=true"],
    ):
        assert main(["dataloader", *argv]) == 2


@pytest.mark.matrix
def test_a_killed_search_leaves_no_process(config: TrainPipelineConfig) -> None:
    flags = ["--dataset.repo_id=local/pusht", f"--dataset.root={config.dataset.root}", "--policy.type=act"]
    script = str(Path(__file__).parent / "waiting_loader.py")
    command = [sys.executable, script, *flags, "--policy.device=cpu", "--num_workers=1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        family = [psutil.Process(int(pid)) for pid in running.stdout.readline().split()]
        assert len(family) == 2
        running.kill()
    assert all(map(has_ended, family)), "a halted worker ends with its loader, the loader with the search"
    assert os.path.isdir(str(config.dataset.root))
