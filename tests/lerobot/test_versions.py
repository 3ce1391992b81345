"""Where versions of LeRobot differ: the installed one is asked, and one that is not known is told."""

from __future__ import annotations

import logging
from typing import Any

import av
import numpy as np
import pytest
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.utils import import_utils

from strobe.core.errors import UserError
from strobe.core.timeline import ProbeError
from strobe.evaluate.episodes.videos import encode
from strobe.lerobot import versions
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.quiet import shorten_warnings
from strobe.treatments.flow.rtc import require


@pytest.mark.parametrize(
    ("installed", "told"),
    [("0.6.1", False), ("0.6.2", False), ("0.6.2.dev3+g7427f31", False), ("0.6.9", True), ("0.7.0", True)],
)
def test_a_version_that_was_never_tried_is_told(monkeypatch: pytest.MonkeyPatch, installed: str, told: bool) -> None:
    monkeypatch.setattr(versions.metadata, "version", lambda _: installed)
    said = versions.describe_untried()
    assert bool(said) is told
    assert not told or f"Strobe was not tested on LeRobot {installed}, only on 0.6.1 and 0.6.2" in str(said)


@pytest.mark.parametrize(("installed", "older"), [("4.53.2", True), ("5.5.0", False), ("6.0.0", False)])
def test_lerobot_does_without_a_transformers_that_is_older_than_its_policies(
    monkeypatch: pytest.MonkeyPatch, installed: str, older: bool
) -> None:
    monkeypatch.setattr(import_utils, "_transformers_available", True)
    monkeypatch.setattr(versions.metadata, "version", lambda name: installed)
    assert versions.suit_transformers() is older
    assert import_utils._transformers_available is not older


def test_the_note_comes_with_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "TRIED", ("0.1",))
    assert any(
        "Strobe was not tested on LeRobot" in note
        for note in load_subject(PolicyOptions(type="act", size="tiny")).notes
    )


def test_the_types_that_can_be_guided_are_those_of_the_installed_lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    with pytest.raises(UserError, match=r"'act' has no Real-Time Chunking \(LeRobot [\d.]+ guides .*\bpi05\b.*smolvla"):
        require(subject)
    monkeypatch.setattr(ACTPolicy, "supports_rtc", lambda self: True)
    assert "act" in versions.types_with_rtc()
    require(subject)


def test_a_part_that_no_longer_fits_is_refused_with_its_name_and_the_version() -> None:
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    policy: Any = subject.policy
    del policy.model.action_head
    with pytest.raises(ProbeError, match=r"probe 'action head' does not fit lerobot's ACTPolicy as installed \(0\.6"):
        subject.hooks("inference", 1)


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
