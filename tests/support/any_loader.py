"""Strategies for any valid search for a data loader, and one by hand."""

from __future__ import annotations

from datetime import UTC

from hypothesis import strategies as st

from strobe.measure.throughput import rate_of
from strobe.results import dataloader as data
from strobe.results.data import Interval
from support.any_result import COUNT, TEXT, TEXTS, TIME, findings, machines, maybe, samples, small

RATE = st.floats(1e-3, 1e9)
STATUS = st.sampled_from(["done", "refused", "failed", "not run"])
SECONDS = maybe(st.floats(0, 1e5))
spans = st.builds(Interval, low=RATE, high=RATE, level=st.just(0.95))
rates = st.builds(
    data.Rate, samples_per_s=RATE, interval=maybe(spans), block_samples=st.integers(1, 999), blocks_s=st.just([1.0])
)
settings = st.builds(
    data.LoaderSettings,
    num_workers=st.integers(0, 256),
    prefetch_factor=st.integers(1, 32),
    batch_size=st.sampled_from([8, 64]),
    video_backend=TEXT,
    start_method=maybe(TEXT),
)
rows = st.builds(
    data.LoaderRow,
    settings=settings,
    status=STATUS,
    reason=TEXT,
    rate=maybe(rates),
    start_up_s=SECONDS,
    worker_pss_bytes=maybe(COUNT),
    worker_uss_bytes=maybe(COUNT),
    shared_most_bytes=COUNT,
    shared_seen_bytes=maybe(COUNT),
    rungs=st.integers(0, 9),
    own=st.booleans(),
    chosen=st.booleans(),
)
loaders = st.builds(
    data.Dataloader,
    strobe_version=TEXT,
    title=TEXT,
    command=TEXTS,
    started=st.datetimes(timezones=st.just(UTC)),
    duration_s=TIME,
    status=st.sampled_from(["complete", "interrupted"]),
    policy=TEXT,
    dataset=st.builds(
        data.DatasetFacts,
        name=TEXT,
        frames=COUNT,
        episodes=COUNT,
        fps=RATE,
        cameras=st.dictionaries(TEXT, st.just([480, 640, 3]), max_size=2),
        video=st.booleans(),
        sample_bytes=COUNT,
    ),
    own=settings,
    machine=machines,
    needs=st.lists(
        st.builds(
            data.StepNeed,
            batch_size=st.sampled_from([8, 64]),
            samples_per_s=RATE,
            source=st.just("given"),
            step_ms=maybe(samples),
        ),
        max_size=2,
    ),
    rows=st.lists(rows, max_size=5),
    recommendations=st.lists(
        st.builds(
            data.Recommendation,
            batch_size=st.sampled_from([8, 64]),
            flags=TEXTS,
            own=maybe(rates),
            chosen=rates,
            fed=st.booleans(),
            reason=TEXT,
            step_ms_now=maybe(RATE),
            step_ms_then=maybe(RATE),
            steps=st.integers(1, 10**7),
            searched_s=TIME,
        ),
        max_size=2,
    ),
    start_ups=st.lists(
        st.builds(data.StartUp, start_method=TEXT, status=STATUS, first_batch_s=SECONDS, epoch_start_s=SECONDS),
        max_size=3,
    ),
    what_ifs=st.lists(
        st.builds(data.WhatIf, name=TEXT, note=TEXT, status=STATUS, rate=maybe(rates), beside=maybe(rates)), max_size=2
    ),
    encodings=st.lists(
        st.builds(
            data.Encoding,
            name=TEXT,
            status=STATUS,
            reason=TEXT,
            rate=maybe(rates),
            bytes_per_hour=maybe(st.floats(0, 1e15)),
            psnr_db=maybe(st.floats(0, 99)),
            encode_s=SECONDS,
        ),
        max_size=3,
    ),
    findings=st.lists(findings, max_size=1),
    notes=TEXTS,
)


def rate(per_s: float, spread: float = 0.0) -> data.Rate:
    """A rate over eight blocks, their times alternating ``spread`` about the mean."""
    return rate_of(8, [8 / per_s * (1 + spread * (-1) ** i) for i in range(8)])


def starved(**more: object) -> data.Dataloader:
    """Diffusion on a machine of two cores: 4 workers are too many, 2 would feed the step."""
    own = data.LoaderSettings(
        num_workers=4, prefetch_factor=4, batch_size=8, video_backend="pyav", start_method="spawn"
    )
    measured = {(0, 4): 30.0, (1, 4): 80.0, (2, 4): 150.0, (4, 4): 90.0, (8, 4): 60.0, (2, 2): 140.0}
    made = [
        data.LoaderRow(
            settings=own.model_copy(update={"num_workers": workers, "prefetch_factor": ahead, "start_method": "fork"}),
            status="done",
            rate=rate(per_s, 0.02),
            start_up_s=0.4,
            shared_most_bytes=workers * ahead * 2**20,
            rungs=1,
            own=(workers, ahead) == (4, 4),
            chosen=(workers, ahead) == (2, 4),
        )
        for (workers, ahead), per_s in measured.items()
    ]
    found = data.Recommendation(
        batch_size=8,
        flags=["--num_workers=2", "--prefetch_factor=4"],
        own=rate(90, 0.02),
        chosen=rate(150, 0.02),
        fed=True,
        reason="the step is fed no slower than it eats",
        step_ms_now=8000 / 90,
        step_ms_then=8000 / 120,
        steps=100_000,
        searched_s=20.0,
    )
    values = {
        "strobe_version": "0.1.0",
        "title": "a loader for diffusion on local/reach",
        "policy": "diffusion",
        "dataset": data.DatasetFacts(
            name="local/reach",
            frames=800,
            episodes=10,
            fps=80,
            cameras={"a": [480, 640, 3]},
            video=True,
            sample_bytes=2**21,
        ),
        "own": own,
        "machine": small().machine,
        "needs": [data.StepNeed(batch_size=8, samples_per_s=120.0, source="given")],
        "rows": made,
        "recommendations": [found],
    }
    return data.Dataloader.model_validate(values | more)
