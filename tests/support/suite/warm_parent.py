"""The process that `warm` has forked: it imports what takes seconds, then each fork of it becomes a Python of its own.

``python warm_parent.py CONNECTION MODULES…``. It must not import Strobe, which each fork does afresh.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

Variables = Mapping[str, str]


def serve_orders(connection: socket.socket) -> dict[str, Any]:
    """Fork at each order that comes. Returns in the forks alone, with the order; ends with the connection."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, 2**20, 2)
        if not message:
            os._exit(0)
        order, is_fork = json.loads(message), _fork_detached()
        if is_fork:
            for number, stream in enumerate(streams, start=1):
                os.dup2(stream, number)
            if order["session"]:
                os.setsid()
            connection.send(str(os.getpid()).encode())
            connection.close()
        for stream in streams:
            os.close(stream)
        if is_fork:
            return order


def _fork_detached() -> bool:
    """Return whether this is the fork. It is no child of this process, but of the one that gave the order.

    That one adopts orphans meanwhile, and the process between the two ends at once.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # `warm` knows of Arrow's thread
        between = os.fork()
        is_fork = between == 0 and os.fork() == 0
    if between == 0 and not is_fork:
        os._exit(0)
    if is_fork:
        os.close(write)
        os.read(read, 1)  # until the parent closes its end: the process between is over, and this one adopted
    else:
        os.waitpid(between, 0)
        os.close(write)
    os.close(read)
    return is_fork


def replace_process_state(order: Mapping[str, Any], began_with: Variables, imports_set: Variables) -> None:
    """Be a fresh Python: its folder, variables, random numbers and paths, and then its program.

    Args:
        order: the arguments of `warm.start`.
        began_with: the variables that the parent was started with.
        imports_set: those that its imports have set.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["cwd"])
    for name in set(os.environ) - set(order["env"]):
        del os.environ[name]
    os.environ.update({**order["env"], **imports_set})
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # from the system; Python's own generator does so by itself
    old, new = _paths(began_with), _paths(order["env"])
    sys.path[:] = [*new, *(path for path in sys.path[1:] if path not in old)]
    importlib.invalidate_caches()
    _run(order["arguments"])


def _paths(variables: Variables) -> list[str]:
    given = variables.get("PYTHONPATH", "")
    return [os.path.abspath(path) for path in given.split(os.pathsep)] if given else []


def _run(arguments: Sequence[str]) -> None:
    """``python ARGUMENTS…``: -m MODULE …, or -c CODE …."""
    kind, program, *_ = arguments
    sys.argv = [kind, *arguments[2:]]
    if kind == "-m":
        sys.path.insert(0, os.getcwd())
        sys.modules.pop(program, None)  # a command of LeRobot's that the parent has imported
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, "")
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), vars(main))


def main() -> None:
    began_with = dict(os.environ)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for the forks, and for pytest
    for name in sys.argv[2:]:
        importlib.import_module(name)
    imports_set = {name: value for name, value in os.environ.items() if began_with.get(name) != value}
    gc.collect()
    gc.freeze()  # else each fork would copy what a look at it touches
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.send(b"ready")
    replace_process_state(serve_orders(connection), began_with, imports_set)


if __name__ == "__main__":
    main()
