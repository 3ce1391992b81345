"""Calls to GR00T's policy server of each generation: their parts, and what goes wrong. The server is a stand-in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zmq", reason="Strobe's extra 'remote' is missing")

from support.servers.groot_server import Generation, Policy, serving
from support.servers.protocols import Protocol

from strobe.core.errors import UserError
from strobe.servers.protocols.observations import ObservationOptions, Source, read

SMALL = read(ObservationOptions(image_size=(16, 24)))


GROOT = Protocol("GR00T", SMALL, [10, 7], needs="zmq")
called, asked = GROOT.call_server, GROOT.ask_policy


@pytest.mark.parametrize("generation", ["N1.5", "N1.6", "later"])
def test_each_generation_is_understood(generation: Generation):
    answer = asked(Policy(generation=generation))
    assert (answer.protocol, answer.chunk, answer.faults, answer.status) == ("GR00T", [10, 7], [], "complete")
    assert answer.metadata["action"].endswith("steps 0 to 9 (10)")


def test_each_generation_gets_the_observation_that_it_takes():
    old, new = Policy(generation="N1.5"), Policy(generation="later")
    asked(old, 1)
    asked(new, 1)
    assert {name: getattr(value, "shape", value) for name, value in old.seen[0].items()} == {
        "video.top": (1, 16, 24, 3),
        "state.arm": (1, 8),
        "task": ["pick up the cube"],
    }
    seen = new.seen[0]
    assert seen["video"]["top"].shape == (1, 1, 16, 24, 3)
    assert seen["video"]["top"].dtype == np.uint8
    assert (seen["state"]["arm"].shape, seen["state"]["arm"].dtype) == ((1, 1, 8), np.float32)
    assert seen["language"] == {"task": [["pick up the cube"]]}
    assert np.array_equal(seen["video"]["top"][0], old.seen[0]["video.top"])


def test_frames_of_a_data_set_get_the_servers_names():
    frame = {
        "observation.images.front": np.full((16, 24, 3), 7, np.uint8),
        "observation.state": np.ones(6),
        "task": "x",
    }
    policy = Policy()
    with serving(policy) as url:
        answer = called(url, 1, source=Source(ObservationOptions(dataset=Path("made-up")), [frame]))
    assert policy.seen[0]["state"]["arm"].tolist() == [[[1.0] * 6]]
    assert policy.seen[0]["language"] == {"task": [["x"]]}
    assert [image.name for image in answer.images] == ["video.top"]
    assert [each.kind for each in answer.encodings] == ["as sent", "JPEG"]


def test_more_cameras_than_the_server_takes_are_a_line():
    frame = {f"observation.images.{name}": np.zeros((16, 16, 3), np.uint8) for name in "ab"}
    source = Source(ObservationOptions(dataset=Path("made-up")), [{**frame, "observation.state": np.ones(2)}])
    with serving(Policy()) as url, pytest.raises(UserError, match=r"2 cameras.*takes the videos top"):
        called(url, source=source)
