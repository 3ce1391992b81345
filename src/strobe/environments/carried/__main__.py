"""One side of a comparison of two environments. Runs in the environment that is compared, which has no Strobe.

It reads orders from its standard input, one JSON object a line. It answers each with one on a descriptor of its own,
whose number is its argument, because anything may print: a wrapper of the interpreter, a library. An answer carries the
number of its order. It ends when its input does, so that it never outlives the process that started it.

Needs Python 3.10 or later, torch and LeRobot. All files of this folder are carried, and import nothing of Strobe.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
import traceback


def main() -> None:
    """Answer orders until the input ends."""
    try:
        answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    except OSError:
        sys.exit("a wrapper of the interpreter closed the pipe for answers: name the interpreter itself")
    os.set_inheritable(answers.fileno(), False)  # a process that is started here would keep it open
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    side = None
    while True:
        order = json.loads(orders.get())
        number = order.pop("number")
        try:
            if side is None:
                side = importlib.import_module("carried_policy").Worker()  # imports torch and LeRobot
            answer = getattr(side, "do_" + order.pop("do"))(**order)
        except BaseException as error:
            answer = {"error": type(error).__name__, "text": _first_line(error), "place": _place(error)}
            traceback.print_exc()
        answers.write(json.dumps({"number": number, "answer": answer}) + "\n")
        answers.flush()


def _read(orders: queue.Queue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else "no reason given"


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return "/".join(frames[-1].filename.replace("\\", "/").split("/")[-3:]) + f", line {frames[-1].lineno}"


if __name__ == "__main__":
    main()
