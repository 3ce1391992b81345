"""LeRobot's commands in processes that are forked from one that has imported LeRobot, eight seconds saved each.

What a command would import of plug-ins, and what it reads from its environment and arguments, it does in its own fork.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path


class Forks:
    """A process that runs commands one after the other, each in a fork of it; ended by ``close``."""

    def __init__(self, folder: Path, *modules: str, **variables: str) -> None:
        self._folder, self._count = folder, 0
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
        )

    def run(self, module: str, arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
        """``python -m module arguments`` with more variables: the exit code, and what it printed on both streams."""
        self._count += 1
        out = self._folder / f"{self._count}.out"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([module, list(arguments), dict(variables), str(out)]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return code, out.read_text()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _serve(modules: Sequence[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    for line in sys.stdin:
        module, arguments, variables, out = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(_run(module, arguments, variables, out))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(module: str, arguments: list[str], variables: dict[str, str], out: str) -> int:
    """The exit code of ``module``, in this process."""
    with open(out, "w") as file, open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(variables)
    sys.argv = [module, *arguments]
    warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as done:
        code = int(done.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    _serve(sys.argv[1:])
