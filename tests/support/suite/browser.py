"""A page in headless Chromium, asked through DevTools' pipe what its document has become."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Browse = Callable[..., str]  # from a page's source to the document that it becomes: the fixture `browse`
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
SETTLED = "document.documentElement.dataset.settled === 'true' || 'errors' in document.documentElement.dataset"
PATIENCE_S = 600  # of a machine with other work to do; a page that settles is not waited for any longer


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser of its own with a fresh profile in ``folder``."""

    def __init__(self, folder: Path) -> None:
        reads, self._out = os.pipe()
        self._in, writes = os.pipe()
        command = [str(find_browser()), *QUIET, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        # Chromium reads from descriptor 3 and writes to 4, which pass_fds cannot choose. Not sh: dash knows one digit.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{reads} 4>&{writes}', "bash", *command],
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)
        self._count, self._received, self._end = 0, b"", 0.0

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # its renderers too
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def document(self, address: str, until: str = SETTLED, *, dark: bool = False, width: int | None = None) -> str:
        """Open a page and return the whole document as HTML, once the JavaScript expression ``until`` is true.

        Args:
            dark: whether the user prefers a dark colour scheme.
            width: of the window, in pixels, where that matters.
        """
        self._end = time.monotonic() + PATIENCE_S
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", session, features=[scheme])
        if width is not None:
            window = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
            self._ask("Emulation.setDeviceMetricsOverride", session, **window)
        self._ask("Page.navigate", session, url=address)
        while not self._value(session, f"location.href === {json.dumps(address)} && ({until})"):
            time.sleep(0.05)
        document = self._value(session, "document.documentElement.outerHTML")
        self._ask("Target.closeTarget", targetId=target)
        return document

    def _value(self, session: str, expression: str) -> Any:
        return self._ask("Runtime.evaluate", session, expression=expression, returnByValue=True)["result"].get("value")

    def _ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._in], [], [], max(0.0, self._end - time.monotonic()))
            assert ready, f"the page did not settle within {PATIENCE_S} s"
            read = os.read(self._in, 2**16)
            assert read, "the browser ended"
            self._received += read
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)
