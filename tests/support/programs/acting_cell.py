"""A cell without LeRobot: starts in a moment, does what its flags say, and logs when it begins and ends."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy

from strobe.core.processes.command import PARENT
from strobe.core.processes.lifetime import bind_to_parent
from strobe.sweep.cell_command import attempt
from strobe.sweep.execute import NOT_KEPT, Outcome, write_outcome


def log(file: str, event: str, name: str) -> None:
    with Path(file).open("a") as out:
        out.write(f"{event} {name} {os.getpid()} {time.time():.6f}\n")


def main() -> None:
    folder = Path(sys.argv[1])
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in sys.argv[3:])
    bind_to_parent(int(os.environ[PARENT]))
    log(flags["log"], "begin", flags["name"])
    print("light cell begins", flush=True)
    act = flags.get("act", "")
    if act == "tell":
        told = {
            "parent": os.getppid(),
            "argv": sys.argv[1:],
            "cwd": os.getcwd(),
            "session": os.getsid(0) == os.getpid(),
        }
        drawn = [random.random(), float(numpy.random.random())]
        told |= {"drawn": drawn, "named": os.environ.get("STROBE_TOLD"), "stdin": sys.stdin.read()}
        print(json.dumps(told | {"threads": len(os.listdir("/proc/self/task"))}), flush=True)
    if act == "kill parent once" and not (been := Path(flags["log"] + ".been")).exists():
        been.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    if act == "hog":
        held = []
        while True:
            held.append(bytearray(2**24))
            time.sleep(0.01)
    if act == "exit":
        print("it went wrong", flush=True)
        os._exit(3)
    if act == "full disk":
        (folder / "trace.json.gz").write_text("begun")
        print("no space left on device", flush=True)
        os._exit(NOT_KEPT)
    if act == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if act == "oom-killer":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "unknown study":
        status, reason = attempt(folder, "nothing", [])
        write_outcome(folder, Outcome(status=status, reason=reason, started=datetime.now(UTC), duration_s=0))
        return
    time.sleep(float(flags.get("sleep", "0.05")))
    (folder / "result.json").write_text("{}")
    log(flags["log"], "end", flags["name"])
    write_outcome(folder, Outcome(status="done", started=datetime.now(UTC), duration_s=0))


if __name__ == "__main__":
    main()
