"""An emulated arm in a process of its own, as a context manager."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from strobe.core.errors import UserError
from strobe.core.processes.command import PYTHON_M
from strobe.core.untrusted import JsonObject
from strobe.rehearse import faults as f
from strobe.rehearse.emulator import calibration as cal
from strobe.rehearse.emulator.bus import ArmState

_START_S = 30.0
_REPLY_S = 10.0
_END_S = 5.0


class ArmEndedError(RuntimeError):
    """The process of an emulated arm has ended, or does not answer."""


class EmulatedArm:
    """Six servos on a pseudo-terminal, which LeRobot's drivers take for a real arm.

        with EmulatedArm(calibration.read(path)) as arm:
            robot = SO101Follower(SO101FollowerConfig(port=arm.port, …))
            arm.plant(Late(seconds=0.06))
            …
        arm.ended.holding  # ids of the servos whose torque was on at the end

    A Ctrl-C at the terminal does not reach the servos, which must still answer while a driver releases the arm. They
    end with this object, or with this process, however that ends. Linux only: elsewhere pyserial's way to set 1 Mbaud
    is refused by a pseudo-terminal.

    Args:
        calibration: the servos' registers agree with it; None for a plausible SO-101.
        models: the servos' models by joint, all of one brand; None for STS3215.
        link: the port's path; None to let the arm choose one.
        latency_ms: delay that the adapter adds to each answer.
        led: whether a hand swings the joints, as an operator moves a leader's arm.
        record: file that gets one line of JSON for each request, with its time on the monotonic clock.

    Raises:
        UserError: the port cannot be made.
    """

    def __init__(
        self,
        calibration: cal.Calibration | None = None,
        *,
        models: Mapping[str, str] | None = None,
        link: Path | None = None,
        latency_ms: float = 1.0,
        led: bool = False,
        faults: Iterable[f.Fault] = (),
        record: Path | None = None,
    ) -> None:
        self.calibration = cal.so101() if calibration is None else calibration
        self.port = ""
        self.ended: ArmState | None = None
        self._options = {
            "calibration": cal.calibration_content(self.calibration),
            "models": dict(models or dict.fromkeys(self.calibration, "sts3215")),
            "link": str(link.absolute()) if link else None,
            "latency_s": latency_ms / 1e3,
            "led": led,
            "faults": [f.fault_content(each) for each in faults],
            "record": str(record.absolute()) if record else None,
        }
        self._target = ""  # the terminal behind the link
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = bytearray()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if sys.platform != "linux":
            raise UserError("an emulated arm needs Linux: other systems' pseudo-terminals refuse 1 Mbaud")
        self._process = subprocess.Popen(
            [*PYTHON_M, "strobe.rehearse.emulator.served"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        try:
            self.port = self._ask(self._options | {"parent": os.getpid()}, "port", _START_S)
            self._target = os.readlink(self.port)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pid(self) -> int | None:
        """The process of the servos."""
        return self._process.pid if self._process else None

    def state(self) -> ArmState:
        """Return servos and counts as they are now."""
        return ArmState.from_content(self._ask({}, "state"))

    def plant(self, *faults: f.Fault) -> None:
        """Let ``faults`` strike requests from now on. Raises UserError for an unknown servo."""
        for fault in faults:
            self._ask({"plant": f.fault_content(fault)}, "state")

    def clear(self) -> None:
        """Remove all planted faults. A restarted servo and a pulled plug stay as they are."""
        self._ask({"clear": True}, "state")

    def place(self, **positions: int) -> None:
        """Turn joints by hand until the host would read ``positions`` (counts), as with a leader's arm."""
        self._ask({"place": [(self.calibration[name].id, count) for name, count in positions.items()]}, "state")

    def _ask(self, request: Mapping[str, object], key: str, wait_s: float = _REPLY_S) -> Any:
        if self._process is None or self._process.stdin is None:
            raise ArmEndedError("the emulated arm has not been started, or has ended")
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
            except OSError:
                raise ArmEndedError("the emulated arm's process has ended") from None
            reply = self._line(self._process, wait_s)
        if reply is None:
            raise ArmEndedError("the emulated arm's process has ended or does not answer")
        if "error" in reply:
            raise UserError(reply["error"])
        if "ended" in reply:
            self.ended = ArmState.from_content(reply["ended"])
            raise ArmEndedError("the emulated arm's process has ended")
        return reply[key]

    def _line(self, process: subprocess.Popen[bytes], wait_s: float) -> JsonObject | None:
        assert process.stdout is not None
        fd, until = process.stdout.fileno(), time.monotonic() + wait_s
        while (end := self._rest.find(b"\n")) < 0:
            ready, _, _ = select.select([fd], [], [], max(0.0, until - time.monotonic()))
            data = os.read(fd, 65536) if ready else b""
            if not data:
                return None
            self._rest += data
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return json.loads(line)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):  # in words, because a forked worker may hold the pipe open
            process.stdin.write(b'{"end": true}\n')
        process.stdin.close()
        while self.ended is None and (line := self._line(process, _END_S)) is not None:
            if "ended" in line:
                self.ended = ArmState.from_content(line["ended"])
        process.stdout.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self.ended is None and self._target:
            self._clean_up()

    def _clean_up(self) -> None:
        with contextlib.suppress(OSError):
            if os.readlink(self.port) == self._target:
                os.unlink(self.port)
            if self._options["link"] is None:
                os.rmdir(os.path.dirname(self.port))
