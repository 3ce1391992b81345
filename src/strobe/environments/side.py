"""One side of a comparison of environments: how it is started, and the process in that environment that runs it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError
from strobe.core.processes.command import last_line
from strobe.core.processes.lifetime import Closing, Ending
from strobe.core.results.units import plain
from strobe.core.untrusted import JsonObject, parse_json


@dataclass(frozen=True)
class SideOptions:
    """How a side is started.

    Args:
        python: of the environment; None for this one.
        lerobot: a checkout of LeRobot to use in place of the installed one.
    """

    name: str
    python: str | None = None
    lerobot: str | None = None

    def check(self) -> None:
        """Raise UserError for an interpreter or a checkout that is not there."""
        if self.python and not (Path(self.python).is_file() and os.access(self.python, os.X_OK)):
            raise UserError(f"'{self.name}': python={self.python} is no interpreter that can be run")
        self.source()

    def source(self) -> Path | None:
        """Return the folder in the checkout that holds the package. Raises UserError."""
        if not self.lerobot:
            return None
        for folder in (Path(self.lerobot) / "src", Path(self.lerobot)):
            if (folder / "lerobot" / "__init__.py").is_file():
                return folder.resolve()
        raise UserError(f"'{self.name}': lerobot={self.lerobot} has no package 'lerobot', nor has its folder 'src'")

    @property
    def checkout(self) -> str | None:
        """The commit of the checkout, else its folder's name."""
        if not self.lerobot:
            return None
        command = ["git", "-C", self.lerobot, "describe", "--always", "--dirty", "--exclude=*"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            described = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            return described or Path(self.lerobot).name
        return Path(self.lerobot).resolve().name


CARRIED = Path(__file__).parent / "carried"
GRACE_S = 1.0  # time in which a side ends by itself once its input has closed
LINE_BYTES = 2**20  # largest answer: arrays go through files
MOST_WAITING = 16  # answers that nobody has fetched yet
LOOK_S = 0.5  # how often a side that does not answer is looked at
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")  # this environment's variables


class SideEndedError(UserError):
    """A side's process ended, or did not answer in time, before it had answered."""


class SideFailedError(UserError):
    """An order failed on a side; the process goes on."""


class EnvironmentWorker(Closing):
    """A process that holds the policy in its environment and answers one order after the other.

    Ctrl-C is this process's to answer. The other one ends with its input, so it never outlives this one.

    Args:
        log: takes what the side prints.

    Raises:
        SideEndedError: the interpreter cannot be run.
    """

    def __init__(self, options: SideOptions, log: Path) -> None:
        self.options, self.log = options, log
        self._orders = 0
        self._answers: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        environment = dict(os.environ)
        if options.python:
            environment = {name: value for name, value in environment.items() if name not in _FOREIGN}
        if (source := options.source()) is not None:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(source), environment.get("PYTHONPATH"))))
        answers, theirs = os.pipe()
        try:
            with log.open("wb") as written:
                self._process = subprocess.Popen(
                    [options.python or sys.executable, "-u", str(CARRIED), str(theirs)],
                    stdin=subprocess.PIPE,
                    stdout=written,
                    stderr=written,
                    env=environment,
                    pass_fds=[theirs],
                    start_new_session=True,
                )
        except OSError as error:
            os.close(answers)
            raise SideEndedError(f"'{self.name}': {options.python} cannot be run: {error.strerror or error}") from None
        finally:
            os.close(theirs)
        self.pid: int = self._process.pid
        threading.Thread(target=self._read, args=[answers], daemon=True).start()

    @property
    def name(self) -> str:
        """The side's name."""
        return self.options.name

    def ask(self, do: str, limit_s: float, **order: object) -> JsonObject:
        """Return the answer to an order. Raises as `order` and `answer` do."""
        self.order(do, **order)
        return self.answer(limit_s)

    def order(self, do: str, **order: object) -> None:
        """Give an order, whose answer is to be fetched before the next one. Raises SideEndedError."""
        assert self._process.stdin is not None
        self._orders += 1
        try:
            self._process.stdin.write(json.dumps({"do": do, "number": self._orders, **order}).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise self._side_ended_error() from None

    def answer(self, limit_s: float) -> JsonObject:
        """Return the answer to the order that was given last.

        Raises:
            SideFailedError: the order failed there.
            SideEndedError: the process ended, answered what is no answer, or took longer than ``limit_s`` seconds; it
                was ended for it.
        """
        ends, number, answer = time.monotonic() + limit_s, 0, dict[str, Any]()
        while number < self._orders:  # an earlier one is the answer to somebody who was interrupted
            number, answer = self._next(ends, limit_s)
        if "error" in answer:
            place = f" ({answer['place']})" if answer.get("place") else ""
            raise SideFailedError(plain(f"'{self.name}' failed: {answer['error']}: {answer.get('text', '')}{place}"))
        return answer

    def _next(self, ends: float, limit_s: float) -> tuple[int, JsonObject]:
        while True:
            try:
                line = self._answers.get(timeout=max(0.0, min(LOOK_S, ends - time.monotonic())))
                break
            except queue.Empty:
                if self._process.poll() is not None and self._answers.empty():  # what it started may hold the pipe open
                    raise self._side_ended_error() from None
                if time.monotonic() >= ends:
                    self.close()
                    raise SideEndedError(f"'{self.name}' did not answer within {limit_s:.0f} s and was ended") from None
        if line is None:
            raise self._side_ended_error()
        try:
            told = parse_json(line)
            number, answer = told["number"], told["answer"]
            if not (type(number) is int and number <= self._orders and isinstance(answer, dict)):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            self.close()
            shown = line[:60].decode(errors="replace").strip()
            raise SideEndedError(plain(f"'{self.name}' gave an invalid answer and was ended: {shown}")) from None
        return number, answer

    def close(self) -> None:
        """End it with all that it started. May be called twice."""
        process = self._process
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        ends = time.monotonic() + GRACE_S
        while process.poll() is None and time.monotonic() < ends:
            time.sleep(0.01)
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()

    def _read(self, answers: int) -> None:
        with os.fdopen(answers, "rb") as lines:
            while line := lines.readline(LINE_BYTES):
                self._answers.put(line)
        self._answers.put(None)

    def _side_ended_error(self) -> SideEndedError:
        self.close()
        ending = Ending(self._process.returncode)
        said = last_line(self.log)
        why = " (the kernel does that if memory runs out)" if ending.is_killed else f": {said}" if said else ""
        return SideEndedError(plain(f"'{self.name}' ended with {ending}{why}")[:400])
