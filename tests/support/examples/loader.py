"""A search for a data loader by hand."""

from __future__ import annotations

from strobe.dataloader import results as data
from strobe.dataloader.throughput import block_rate
from support.examples.runs import MACHINE


def rate(per_s: float, spread: float = 0.0) -> data.Rate:
    """A rate over eight blocks, their times alternating ``spread`` about the mean."""
    return block_rate(8, [8 / per_s * (1 + spread * (-1) ** i) for i in range(8)])


def starving_loader(**more: object) -> data.Dataloader:
    """Diffusion on a machine of two cores: 4 workers are too many, 2 would feed the step."""
    own = data.LoaderSettings(
        num_workers=4, prefetch_factor=4, batch_size=8, video_backend="pyav", start_method="spawn"
    )
    measured = {(0, 4): 30.0, (1, 4): 80.0, (2, 4): 150.0, (4, 4): 90.0, (8, 4): 60.0, (2, 2): 140.0}
    made = [
        data.LoaderRow(
            settings=own.model_copy(update={"num_workers": workers, "prefetch_factor": ahead, "start_method": "fork"}),
            status="done", rate=rate(per_s, 0.02), start_up_s=0.4, shared_most_bytes=workers * ahead * 2**20, rungs=1,
            own=(workers, ahead) == (4, 4), chosen=(workers, ahead) == (2, 4),
        )
        for (workers, ahead), per_s in measured.items()
    ]  # fmt: skip
    found = data.Recommendation(
        batch_size=8, flags=["--num_workers=2", "--prefetch_factor=4"], own=rate(90, 0.02), chosen=rate(150, 0.02),
        fed=True, reason="the step never waits for this loader", step_ms_now=8000 / 90, step_ms_then=8000 / 120,
        steps=100_000, searched_s=20.0,
    )  # fmt: skip
    facts = data.DatasetFacts(name="local/reach", frames=800, episodes=10, fps=80, cameras={"a": [480, 640, 3]},
                              video=True, sample_bytes=2**21)  # fmt: skip
    values = {
        "strobe_version": "0.1.0", "title": "a loader for diffusion on local/reach", "policy": "diffusion",
        "dataset": facts, "own": own, "machine": MACHINE, "rows": made, "recommendations": [found],
        "needs": [data.StepNeed(batch_size=8, samples_per_s=120.0, source="given")],
    }  # fmt: skip
    return data.Dataloader.model_validate(values | more)
