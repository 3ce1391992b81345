"""Libraries' own lines are kept off the screen, or short."""

from __future__ import annotations

import logging

import av
import numpy as np

from strobe.evaluate.episodes.videos import encode
from strobe.lerobot.quiet import shorten_warnings

LEROBOT = logging.getLogger("lerobot.utils.import_utils")


def test_lerobots_warning_of_torchcodec_is_a_line_and_others_stay(caplog, monkeypatch):
    monkeypatch.setattr("strobe.lerobot.quiet._DECODER._passed", False)
    shorten_warnings()
    shorten_warnings()
    for _ in range(2):
        LEROBOT.warning("Could not load libtorchcodec.\nTraceback …\n'torchcodec' is installed but cannot be loaded")
    LEROBOT.warning("another\nwarning")
    assert [record.getMessage() for record in caplog.records] == [
        "torchcodec cannot be loaded here: videos are decoded by pyav",
        "another\nwarning",
    ]


def test_an_encoder_says_nothing_though_lerobot_has_given_libav_its_voice_back(capfd):
    av.logging.restore_default_callback()  # as LeRobot does when it has recorded
    frames = [np.full((32, 32, 3), 10 * number, np.uint8) for number in range(5)]
    content, _ = encode(frames, 10.0)
    assert content
    assert "libx264" not in capfd.readouterr().err
