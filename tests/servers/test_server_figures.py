"""From round trips to parts and ages, and images in other forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.servers.figures import BOTH, NETWORK, Trip, action_age, parts
from strobe.servers.image_encodings import encodings, images

MS = st.floats(0, 1e4)
TRIPS = st.builds(
    lambda encode, network, decode, server: Trip(encode, network + (server or 0), decode, server),
    MS, MS, MS, st.none() | MS,
)  # fmt: skip


@given(st.lists(TRIPS, min_size=1, max_size=20))
def test_parts_add_up_to_the_round_trips_whatever_the_server_tells(trips: list[Trip]):
    rows = parts(trips)
    whole = float(np.mean([trip.whole for trip in trips]))
    assert sum(row.summary.mean for row in rows) == pytest.approx(whole, rel=1e-6, abs=1e-6)
    if whole > 0:
        assert sum(row.share for row in rows) == pytest.approx(1)
    told = all(trip.server is not None for trip in trips)
    assert [row.name for row in rows][1] == (NETWORK if told else BOTH)


def test_one_time_that_cannot_be_makes_network_and_server_one_part():
    rows = parts([Trip(1, 10, 1, 5), Trip(1, 10, 1, 11)])
    assert [row.name for row in rows] == ["encode", BOTH, "decode"]


def test_ages_go_from_the_observation_to_the_execution():
    age = action_age([40.0, 40.0, 50.0], actions=5, control_hz=50.0)
    assert (age.first.median, age.last.median, age.first.max, age.last.max) == (40, 120, 50, 130)
    assert age.chunk_ms == 100
    assert age.ticks == 3  # of 20 ms: the 99th percentile lies between 40 and 50


IMAGE = np.full((300, 400, 3), 128, np.uint8)


def test_images_are_arrays_with_colours_in_maps_too():
    observation: dict[str, Any] = {
        "a": IMAGE, "in": {"b": np.moveaxis(IMAGE, 2, 0)}, "grey": IMAGE[:, :, :1], "float": IMAGE / 255,
        "matrix": np.zeros((7, 7, 3), np.uint8), "depth": IMAGE[:, :, 0], "grid": np.zeros((300, 400, 5)),
        "state": np.zeros(3), "prompt": "fold",
    }  # fmt: skip
    assert [image.name for image in images(observation)] == ["a", "in.b", "grey", "float"]


def message_bytes(value: Any) -> bytes:
    """A message of as many bytes as its arrays and strings of bytes have."""
    if isinstance(value, dict):
        return b"".join(message_bytes(each) for each in value.values())
    return value if isinstance(value, bytes) else value.tobytes()


@pytest.mark.parametrize("image", [IMAGE, np.moveaxis(IMAGE, 2, 0), (IMAGE / 255).astype(np.float32)])
def test_forms_are_of_the_whole_observation(image: np.ndarray):
    rows = {row.kind: row for row in encodings({"in": {"image": image}, "state": np.zeros(4)}, message_bytes)}
    assert rows["as sent"].payload_bytes == image.nbytes + 32
    assert rows["resized"].payload_bytes == 224 * 224 * 3 + 32
    assert rows["JPEG"].payload_bytes < image.nbytes / 20
    assert rows["resized, then JPEG"].payload_bytes < rows["resized"].payload_bytes / 5
    assert rows["JPEG"].ms > 0


def test_a_small_image_is_not_resized_and_noise_gets_no_jpeg():
    small = {"image": IMAGE[:224, :224]}
    assert [row.kind for row in encodings(small, message_bytes)] == ["as sent", "JPEG"]
    assert [row.kind for row in encodings(small, message_bytes, recorded=False)] == ["as sent"]
    assert encodings({"state": np.zeros(3)}, message_bytes) == []
