"""A cell without LeRobot: starts in a moment, does what its flags say, and logs when it begins and ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from strobe.cli.cell import attempt, end_with
from strobe.sweeps.execute import DRIVER, NOT_KEPT, Outcome, write_outcome


def log(file: str, event: str, name: str) -> None:
    with Path(file).open("a") as out:
        out.write(f"{event} {name} {os.getpid()} {time.time():.6f}\n")


def main() -> None:
    folder = Path(sys.argv[1])
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in sys.argv[3:])
    end_with(int(os.environ[DRIVER]))
    log(flags["log"], "begin", flags["name"])
    print("light cell begins", flush=True)
    act = flags.get("act", "")
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
