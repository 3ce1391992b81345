"""The loop that joins a bus to a terminal: it answers when an answer is due, and waits in `select` otherwise."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable

from strobe.emulator.bus import Bus, Delivery, PortGone
from strobe.emulator.terminal import Terminal

_QUIET_S = 0.005  # a packet that has not ended by then never will
_LOOK_S = 1.0


def serve(
    bus: Bus,
    terminal: Terminal,
    control: int,
    told: Callable[[bytes], None] = lambda data: None,
    alive: Callable[[], bool] = lambda: True,
) -> None:
    """Serve until the pipe ``control`` ends or ``alive`` denies, which is asked every second.

    What comes through ``control`` goes to ``told``, between two answers. A fault that unplugs the adapter hangs the
    terminal up; the rest goes on.
    """
    due: deque[Delivery] = deque()
    heard = time.monotonic()
    plugged = True
    while alive():
        now = time.monotonic()
        while plugged and due and due[0].due_s <= now:
            terminal.write(due.popleft().data)
        wait = min(_LOOK_S, due[0].due_s - now) if due else _LOOK_S
        if bus.unfinished:
            wait = min(wait, _QUIET_S)
        ready, _, _ = select.select([control, terminal.fd] if plugged else [control], [], [], max(0.0, wait))
        now = time.monotonic()
        try:
            if plugged and terminal.fd in ready:
                due += bus.receive(terminal.read(), now)
                heard = now
            elif bus.unfinished and now - heard >= _QUIET_S:
                due += bus.quiet(now)
        except PortGone:
            plugged = False
            due.clear()
            terminal.hang_up()
        if control in ready:  # after the driver's requests, which came first if the parent waited for them
            data = os.read(control, 65536)
            if not data:
                return
            told(data)
