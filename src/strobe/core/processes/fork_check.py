"""Imported last by a fork server, in its process: it ends with the one that started it, and says whether it is fit."""

from __future__ import annotations

import os
import sys

from strobe.core.processes.forkable import unfit
from strobe.core.processes.lifetime import bind_to_parent

REASON = None  # why what is forked from it is not as good as a fresh process, in words
if sys.platform == "linux":
    bind_to_parent(os.getppid())
    REASON = unfit()
