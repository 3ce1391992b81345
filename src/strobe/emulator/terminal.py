"""A pseudo-terminal that passes for a serial port, with a symbolic link to it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import tty
from pathlib import Path

from strobe.errors import UserError, in_words


class Terminal:
    """The servos' end of a pseudo-terminal. ``port`` is the path that a driver opens.

    The driver's end is raw from the start, because a driver may set only some of the modes. It stays open here too:
    otherwise the servos' end would fail when a driver leaves. Without ``link``, one is made in a temporary folder.

    Raises UserError if the link cannot be made, or if something else has its name.
    """

    def __init__(self, link: Path | None = None) -> None:
        self.fd, self._driver = os.openpty()
        self._folder: Path | None = None
        self.link: Path | None = None
        try:
            tty.setraw(self._driver)
            os.set_blocking(self.fd, False)
            self._target = os.ttyname(self._driver)
            if link is None:
                self._folder = Path(tempfile.mkdtemp(prefix="strobe-arm-"))
                link = self._folder / "port"
            self._make(link)
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> str:
        return str(self.link)

    def read(self) -> bytes:
        """Return the bytes that the driver has sent; b"" if there are none."""
        try:
            return os.read(self.fd, 4096)
        except BlockingIOError:
            return b""

    def write(self, data: bytes) -> None:
        """Send ``data`` to the driver. Bytes beyond its buffer are lost, as on a real port."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.fd, data)

    def hang_up(self) -> None:
        """End the connection as a pulled plug does: reading and writing fail from now on."""
        for fd in (self.fd, self._driver):
            with contextlib.suppress(OSError):
                os.close(fd)

    def close(self) -> None:
        """Hang up and remove the link. Another arm's link of that name stays."""
        self.hang_up()
        if self.link:
            with contextlib.suppress(OSError):
                if os.readlink(self.link) == self._target:
                    self.link.unlink()
            self.link = None
        if self._folder:
            with contextlib.suppress(OSError):
                self._folder.rmdir()

    def _make(self, link: Path) -> None:
        link = link.absolute()
        try:
            if link.is_symlink():
                link.unlink()  # of an arm that was killed
            link.symlink_to(self._target)
        except FileExistsError:
            raise UserError(f"{link} is there already, and it is no link to an emulated arm") from None
        except OSError as error:
            raise UserError(f"cannot make the port {link}: {in_words(error)}") from None
        self.link = link
