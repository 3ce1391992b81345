"""The main figure as a PNG, by a real browser."""

from __future__ import annotations

import pytest
from support.browser import find_browser
from support.places import ROOT

from strobe.core.cli.main import main
from strobe.core.report import picture

RUN = ROOT / "docs" / "examples" / "optimize-act"


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium on the PATH: apt-get install chromium")
def test_a_ladder_is_drawn(tmp_path):
    from PIL import Image

    there = tmp_path / "ladder.png"
    assert main(["report", str(RUN), "--format=png", f"--output={there}"]) == 0
    with Image.open(there) as drawn:
        assert drawn.width == picture.WIDTH
        # Bars of several colours, not a blank page.
        assert len({colour for _, colour in drawn.convert("RGB").quantize(32).convert("RGB").getcolors()}) > 8


def test_what_cannot_be_drawn_is_a_line(tmp_path, monkeypatch, capsys):
    assert main(["report", str(RUN), "--format=png", f"--output={tmp_path / 'none' / 'a.png'}"]) == 2
    monkeypatch.setattr(picture.shutil, "which", lambda _: None)
    assert main(["report", str(RUN), "--format=png", f"--output={tmp_path / 'a.png'}"]) == 2
    assert "Chromium or Chrome draws the picture, and neither is on the PATH" in capsys.readouterr().err
