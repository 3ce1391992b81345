"""How MuJoCo's simulators render where there is no screen."""

from __future__ import annotations

import ctypes.util
import os
import sys

from strobe.errors import UserError

NO_OPENGL = "MuJoCo needs OpenGL to render: apt-get install libosmesa6 (Debian, Ubuntu) and set MUJOCO_GL=osmesa"


def choose_opengl() -> None:
    """Set how MuJoCo renders without a screen, which it reads as it is imported; the user's own choice stays.

    Raises UserError if there is no OpenGL that renders without one.
    """
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ or os.environ.get("DISPLAY"):
        return
    for library, name in (("OSMesa", "osmesa"), ("EGL", "egl")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return
    raise UserError(NO_OPENGL)
