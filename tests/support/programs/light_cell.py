"""A cell that costs nothing: ``python -m support.programs.light_cell FOLDER STUDY FLAGS…``.

It is called as `strobe.sweep.cell_command` is. It tells a log that all cells share when it begins and ends, and does
what its flags say.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from strobe.core.processes.command import PARENT
from strobe.core.processes.lifetime import bind_to_parent
from strobe.sweep.execute import Outcome, write_outcome


def main() -> None:
    bind_to_parent(int(os.environ[PARENT]))
    folder, flags = Path(sys.argv[1]), dict(flag.removeprefix("--").split("=") for flag in sys.argv[3:])
    say("begin", flags["name"])
    print("here I am", flush=True)
    if "sleep_once" in flags and not (been := Path(os.environ["LIGHT_LOG"]).with_name(flags["name"])).exists():
        been.touch()
        time.sleep(float(flags["sleep_once"]))
    time.sleep(float(flags.get("sleep", 0.1)))
    if "until" in flags:
        node, devices = flags["until"].split(":")
        while len(busy_devices(node)) < int(devices):
            time.sleep(0.05)
    if "exit" in flags:
        say("end", flags["name"])
        os._exit(int(flags["exit"]))
    if "hold" in flags:
        held = bytearray(b"x" * int(flags["hold"]))
        time.sleep(30)
        del held
    if flags.get("suicide") == "runner":
        os.kill(int(os.environ[PARENT]), 9)
        time.sleep(30)
    (folder / "trace.json.gz").write_bytes(b"trace of " + flags["name"].encode())
    (folder / "result.json").write_text(json.dumps({"name": flags["name"], "cwd": os.getcwd()}))
    write_outcome(folder, Outcome(status="done", started=datetime.now(UTC), duration_s=0.0))
    say("end", flags["name"])


def busy_devices(node: str) -> set[str]:
    """The devices of ``node`` that cells have begun on."""
    lines = [json.loads(line) for line in Path(os.environ["LIGHT_LOG"]).read_text().splitlines()]
    return {line["gpu"] for line in lines if line["node"] == node}


def say(what: str, name: str) -> None:
    line = {
        "what": what,
        "name": name,
        "time": time.time(),
        "pid": os.getpid(),
        "node": os.environ.get("LIGHT_NODE"),
        "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    with open(os.environ["LIGHT_LOG"], "a") as log:
        log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
