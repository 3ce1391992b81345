"""The arm's process: its port, its faults while it runs, and that nothing of it is left behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from strobe.core.errors import UserError
from strobe.rehearse import faults
from strobe.rehearse.emulator import calibration
from strobe.rehearse.emulator.arm import ArmEndedError, EmulatedArm
from strobe_servos import feetech as r
from strobe_servos.feetech import Feetech, Packet, Parser, build
from strobe_servos.wire import Instruction

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="emulated arms need Linux")

PING = Packet(1, Instruction.PING)


@pytest.fixture
def arm() -> Iterator[EmulatedArm]:
    with EmulatedArm(latency_ms=0) as arm:
        yield arm


def talk(fd: int, packet: Packet, answers: int = 1, wait_s: float = 10.0) -> list[Packet]:
    """Send ``packet``, and wait for so many answers."""
    parser, found = Parser(), []
    os.write(fd, build(packet))
    until = time.monotonic() + wait_s
    while len(found) < answers and select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
        found += parser.feed(os.read(fd, 4096))
    return found


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def soon(what: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not what() and time.monotonic() < until:
        time.sleep(0.02)
    return what()


def test_drivers_come_and_go_at_one_port(arm: EmulatedArm) -> None:
    for _ in range(2):
        fd = os.open(arm.port, os.O_RDWR | os.O_NOCTTY)
        assert talk(fd, PING) == [Packet(1, 0)]
        os.close(fd)
    assert arm.state().packets == {"ping": 2}


def test_bytes_pass_as_they_are(arm: EmulatedArm) -> None:
    """A terminal that is not raw would eat, echo or change some of them."""
    fd = os.open(arm.port, os.O_RDWR | os.O_NOCTTY)
    for value in (3, 4, 10, 13, 17, 19, 26, 28, 127, 255):
        assert talk(fd, Packet(1, Instruction.WRITE, bytes([r.ACCELERATION.address, value]))) == [Packet(1, 0)]
        assert talk(fd, Packet(1, Instruction.READ, bytes([r.ACCELERATION.address, 1]))) == [
            Packet(1, 0, bytes([value]))
        ]
    os.close(fd)


def test_faults_are_planted_and_cleared_while_it_runs(arm: EmulatedArm) -> None:
    fd = os.open(arm.port, os.O_RDWR | os.O_NOCTTY)
    arm.plant(faults.ErrorBits(servo=1))
    assert talk(fd, PING) == [Packet(1, Feetech.overload)]
    arm.clear()
    assert talk(fd, PING) == [Packet(1, 0)]
    assert arm.state().struck == {"error-bits": 1}
    with pytest.raises(UserError, match="no servo has the id 9"):
        arm.plant(faults.Lost(servo=9))
    os.close(fd)


def test_at_the_end_it_tells_what_the_servos_were_left_with() -> None:
    with EmulatedArm() as arm:
        fd = os.open(arm.port, os.O_RDWR | os.O_NOCTTY)
        arm.place(elbow_flex=1234)
        talk(fd, Packet(3, Instruction.WRITE, bytes([r.TORQUE_ENABLE.address, 1])))
        os.write(fd, b"noise")
        talk(fd, PING)
        os.close(fd)
    assert arm.ended is not None
    assert arm.ended.holding == [3]
    assert (arm.ended.servos[3].present, arm.ended.servos[3].goal) == (1234, 1234)
    assert (arm.ended.packets, arm.ended.noise) == ({"write": 1, "ping": 1}, 5)


def test_a_false_header_on_the_line_costs_no_packet(arm: EmulatedArm) -> None:
    fd = os.open(arm.port, os.O_RDWR | os.O_NOCTTY)
    os.write(fd, b"\xff\xff\x05\xfa")
    assert talk(fd, PING) == [Packet(1, 0)]
    os.close(fd)


def test_requests_are_recorded_with_their_time(tmp_path: Path) -> None:
    with EmulatedArm(record=tmp_path / "packets.jsonl") as arm:
        fd = os.open(arm.port, os.O_RDWR | os.O_NOCTTY)
        before = time.monotonic()
        talk(fd, PING)
        after = time.monotonic()
        os.close(fd)
    (line,) = map(json.loads, (tmp_path / "packets.jsonl").read_text().splitlines())
    assert before <= line.pop("time_s") <= after
    assert line == {"instruction": "ping", "id": 1, "parameters": ""}


def test_two_arms_stand_beside_each_other(arm: EmulatedArm) -> None:
    with EmulatedArm() as other:
        assert other.port != arm.port
        fd = os.open(other.port, os.O_RDWR | os.O_NOCTTY)
        talk(fd, PING)
        os.close(fd)
    assert other.ended is not None
    assert (other.ended.packets, arm.state().packets) == ({"ping": 1}, {})


def test_the_port_is_the_link_that_was_asked_for_and_goes_with_the_arm(tmp_path: Path) -> None:
    link = tmp_path / "follower"
    link.symlink_to("/dev/pts/nowhere")  # left behind by an arm that was killed
    with EmulatedArm(link=link) as arm:
        assert arm.port == str(link)
        assert link.exists()
    assert list(tmp_path.iterdir()) == []


def test_an_arm_leaves_the_link_of_the_one_that_took_its_name(tmp_path: Path) -> None:
    link = tmp_path / "port"
    with EmulatedArm(link=link):
        link.unlink()
        link.symlink_to("/dev/null")
    assert os.readlink(link) == "/dev/null"


def test_a_file_of_the_users_is_not_taken_for_a_link(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("mine")
    with pytest.raises(UserError, match="exists already"), EmulatedArm(link=tmp_path / "port"):
        pass
    with pytest.raises(UserError, match="no such file"), EmulatedArm(link=tmp_path / "missing" / "port"):
        pass
    assert (tmp_path / "port").read_text() == "mine"


def test_a_file_in_the_users_folder_takes_no_modules_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    with EmulatedArm() as arm:
        assert arm.state().holding == []


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_servos_leaves_no_process_and_no_link(sent: signal.Signals) -> None:
    with EmulatedArm() as arm:
        assert arm.pid is not None
        folder = Path(arm.port).parent
        os.kill(arm.pid, sent)
        assert soon(lambda: has_ended(arm.pid or 0))
        assert not folder.exists()
        with pytest.raises(ArmEndedError):
            arm.state()
    assert arm.ended is not None
    assert arm.ended.holding == []


@pytest.mark.parametrize("name", ["port", None])
def test_a_killed_arm_leaves_no_link(tmp_path: Path, name: str | None) -> None:
    with EmulatedArm(link=tmp_path / name if name else None) as arm:
        assert arm.pid is not None
        os.kill(arm.pid, signal.SIGKILL)
    assert not os.path.lexists(arm.port)
    assert arm.ended is None
    assert Path(arm.port).parent.exists() == (name is not None)


PARENT = """
import os, sys, time
from strobe.rehearse.emulator.arm import EmulatedArm
with EmulatedArm() as arm:
    fork = os.fork()  # it inherits the pipe to the servos, as a worker of a data loader does
    if fork:
        print(arm.pid, fork, arm.port, flush=True)
    time.sleep(300)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_servos_end_with_the_program_however_it_ends(sent: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    servos, fork, port = parent.stdout.readline().split()
    try:
        os.kill(parent.pid, sent)
        parent.wait(60)
        assert soon(lambda: has_ended(int(servos)))
        assert not Path(port).parent.exists()
    finally:
        os.kill(int(fork), signal.SIGKILL)
        parent.stdout.close()


WITH_A_WORKER = """
import os, signal, time
from strobe.rehearse.emulator.arm import EmulatedArm
with EmulatedArm() as arm:
    fork = os.fork()
    if not fork:
        time.sleep(300)
print(arm.ended.holding)
os.kill(fork, signal.SIGKILL)
"""


def test_a_forked_worker_does_not_keep_the_servos() -> None:
    ran = subprocess.run([sys.executable, "-c", WITH_A_WORKER], capture_output=True, text=True, check=False)
    assert ran.stdout == "[]\n", ran.stderr


HOLDS_ON = """
import os, signal
from strobe.rehearse.emulator.arm import EmulatedArm
with EmulatedArm() as arm:
    signal.signal(signal.SIGINT, lambda *_: print(arm.state().packets, flush=True))
    os.killpg(0, signal.SIGINT)  # as a terminal does at Ctrl-C
"""


def test_a_ctrl_c_at_the_terminal_does_not_reach_the_servos() -> None:
    """A driver needs them for seconds after it: to go back to the start, and to switch the torque off."""
    ran = subprocess.run(
        [sys.executable, "-c", HOLDS_ON], capture_output=True, text=True, check=False, start_new_session=True
    )
    assert (ran.returncode, ran.stdout) == (0, "{}\n"), ran.stderr


def test_nothing_of_torch_or_lerobot_is_loaded_in_the_servos_process() -> None:
    loaded = (
        "import sys, strobe.rehearse.emulator.served; print(sorted({'torch', 'lerobot', 'numpy'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "it is not JSON"),
        ("{}", "names no joints"),
        ('{"a": {"id": 1}}', "a needs whole numbers for id, drive_mode"),
        (
            '{"a": {"id": 1, "drive_mode": 0, "homing_offset": 0, "range_min": 5, "range_max": 5}}',
            "a has the range 5 to 5",
        ),
        (
            '{"a": {"id": 1, "drive_mode": 0, "homing_offset": 2048, "range_min": 0, "range_max": 5}}',
            "homing offset 2048",
        ),
    ],
)
def test_a_file_that_is_no_calibration_says_why(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "arm.json").write_text(text)
    with pytest.raises(UserError, match=said):
        calibration.read(tmp_path / "arm.json")


def test_a_calibration_is_kept_and_read_again(tmp_path: Path) -> None:
    calibration.write(calibration.so101(), tmp_path / "so_follower" / "arm.json")
    assert calibration.read(tmp_path / "so_follower" / "arm.json") == calibration.so101()
    with pytest.raises(UserError, match="no such file"):
        calibration.read(tmp_path / "other.json")
