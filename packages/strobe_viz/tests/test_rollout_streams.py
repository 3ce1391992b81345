"""A kept rollout for viewers: every channel on one time axis, read back by the libraries that viewers use."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.examples.made_up_rollout import header, rtc
from support.suite.places import TESTS

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.loops.observations import Keeper
from strobe_viz.recordings import Number, Picture, streams


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder of three seconds, with events and observations."""
    folder = tmp_path_factory.mktemp("run")
    events = rtc(lambda _: 90.0, seconds=3)
    with gzip.open(folder / "events.jsonl.gz", "wt") as file:
        file.write(json.dumps(header().to_json()) + "\n")
        file.writelines(f"{json.dumps([event])}\n" for event in events)
    keeper = Keeper(folder / "observations")
    keeper.start()
    for at in [event[1] for event in events if event[0] == "tick"][:10]:
        keeper.append((at, {"pan.pos": at / 1e9, "front": np.full((48, 64, 3), 7, np.uint8)}))
    keeper.stop()
    return folder


def test_every_channel_is_there_in_the_order_of_time(run: Path) -> None:
    found = list(streams(run))
    times = [sample.at_ns for sample in found]
    assert times == sorted(times)
    assert times[0] == 0
    numbers = {one.channel for one in found if isinstance(one, Number)}
    assert {"action/pan", "action/lift", "state/pan.pos", "loop/period (ms)", "queue/actions left"} <= numbers
    assert {"queue/age (ms)", "inference/latency (ms)", "inference/delay assumed (actions)"} <= numbers
    latencies = [one.value for one in found if isinstance(one, Number) and one.channel == "inference/latency (ms)"]
    assert latencies
    assert all(abs(value - 90) < 40 for value in latencies)
    pictures = [one for one in found if isinstance(one, Picture)]
    assert len(pictures) == 10
    assert pictures[0].data[:3] == b"\xff\xd8\xff"


def test_an_mcap_file_holds_them(run: Path, tmp_path: Path) -> None:
    reader = pytest.importorskip("mcap.reader")
    pytest.importorskip("foxglove")
    assert main(["report", str(run), "--format=mcap", f"--output={tmp_path / 'x.mcap'}"]) == 0
    with (tmp_path / "x.mcap").open("rb") as file:
        made = reader.make_reader(file)
        topics = {channel.topic for channel in made.get_summary().channels.values()}
        messages = [(message.log_time, json.loads(message.data)) for *_, message in made.iter_messages(["/action/pan"])]
    assert {"/cameras/front", "/queue/actions left", "/state/pan.pos"} <= topics
    wanted = [(one.at_ns, {"value": one.value}) for one in streams(run) if one.channel == "action/pan"]  # type: ignore[union-attr]
    assert messages == wanted


def test_a_rerun_recording_holds_them(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    assert main(["report", str(run), "--format=rrd", f"--output={tmp_path / 'x.rrd'}"]) == 0
    told = subprocess.run(
        [sys.executable, "-m", "rerun", "rrd", "print", "-v", str(tmp_path / "x.rrd")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all(f"/{name}" in told.stdout for name in ("cameras/front", "action/pan", "state/pan.pos"))


def test_a_run_without_events_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no run|has no"):
        next(iter(streams(tmp_path)))


def test_a_run_without_events_leaves_no_file(tmp_path: Path) -> None:
    run = TESTS / "golden" / "rollout"
    for shape in ("rrd", "mcap"):
        assert main(["report", str(run), f"--format={shape}", f"--output={tmp_path / 'x'}"]) == 2
    assert list(tmp_path.iterdir()) == []
