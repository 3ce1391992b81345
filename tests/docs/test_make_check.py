"""`make check` stays short: what it collects imports no LeRobot, which takes seconds in each of its processes."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from support.suite.places import ROOT

COLLECT = """
import sys, pytest
code = pytest.main([*sys.argv[1:], "--collect-only", "-qq", "-n0", "-p", "no:cacheprovider"])
print("imported:", [name for name in ("lerobot", "transformers") if name in sys.modules], int(code))
"""


@pytest.mark.slow("a fresh Python that collects what make check does")
def test_what_make_check_collects_imports_no_lerobot() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"^CHECKED := (.*?[^\\])$", makefile, re.MULTILINE | re.DOTALL)
    assert found is not None
    words = found[1].replace("\\\n", " ").split()
    assert "tests/core/findings" in words
    checked = [name for word in words for name in (sorted(map(str, ROOT.glob(word))) if "*" in word else [word])]
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *checked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "imported: [] 0", done.stdout[-2000:] + done.stderr[-2000:]
