"""Rules on a training: each planted cause fires its rule alone, a healthy one none, at the thresholds."""

from __future__ import annotations

from typing import Any

from support.examples.findings_results import approve_findings, make_measurement, result

from strobe.core.findings import Thresholds
from strobe.core.kinds import advise, document
from strobe.core.results.data import Interval
from strobe.train.results import (
    Adapter,
    Gradients,
    LoaderPart,
    LoaderWorker,
    Rank,
    Resumed,
    Stall,
    TrainedOn,
    Training,
    TrainResult,
    Utilisation,
)

HEALTHY = {"data": 2.0, "images to floats": 1.0, "preprocessing": 1.0, "forward": 30.0, "forward/backbone": 20.0,
           "forward/encoder": 9.0, "backward": 55.0, "backward/backbone": 36.0, "backward/encoder": 17.0,
           "optimizer": 9.0, "logging": 1.0, "other": 1.0}  # fmt: skip


def training_result(parts: dict[str, float] | None = None, share: float = 1.0, **more: Any) -> TrainResult:
    """100 ms a step, two workers that decode, unless said otherwise."""
    step = make_measurement(HEALTHY | (parts or {}), name="training step", phase="training step")
    step.traits.trained_share = share
    figures: dict[str, Any] = {
        "batch_size": 8, "workers": 2, "steps": 20, "run_steps": 20, "planned_steps": 100_000, "samples_per_s": 80.0,
        "planned_hours": 2.8, "bound": "compute", "data_share": 0.02, "overhead": 0.0,
        "shares": {"data": 0.02, "compute": 0.94, "host": 0.04, "interruptions": 0.0}, "machine_cpu": 0.5,
        "loader": [worker(0), worker(1)],
        "loader_parts": [LoaderPart(name="video decoding", ms=60, share=0.7, waiting=0.1),
                         LoaderPart(name="row reads", ms=20, share=0.3, waiting=0.1)],
    }  # fmt: skip
    return result(step, of=TrainResult, training=Training.model_validate(figures | more))


def starved_result(*parts: LoaderPart, **more: Any) -> TrainResult:
    """Half of its time waits for data."""
    loader: dict[str, Any] = {"loader_parts": parts} if parts else {}
    return training_result(data_share=0.5, bound="data", **loader | more)


def worker(index: int, ms: float = 80.0, fastest: float | None = None) -> LoaderWorker:
    return LoaderWorker(name=f"worker {index}", batches=10, batch_ms=ms, fastest_ms=fastest, busy=0.5, cpu=0.9)


def part(name: str, share: float, waiting: float | None = 0.1) -> LoaderPart:
    return LoaderPart(name=name, ms=100 * share, share=share, waiting=waiting)


def ranks(*own: float, **parts: tuple[float, ...]) -> TrainResult:
    """Ranks that compute for so long and wait for the rest of 100 ms; ``parts`` are of each."""
    made = [
        Rank(rank=place, steps=20, step_ms=100, own_ms=ms, communication_ms=100 - ms, exposed_ms=100 - ms,
             parts={name: each[place] for name, each in parts.items()})
        for place, ms in enumerate(own)
    ]  # fmt: skip
    return training_result(processes=2, ranks=made)


def stalled_result(cause: str, hours: float | None = None) -> TrainResult:
    return training_result(
        stalls=[Stall(cause=cause, steps=2, each_ms=500, share=0.1, planned_hours=hours, sentence="")]
    )


def input_result(gflop: dict[str, float] | None = None, **more: Any) -> TrainResult:
    """Trained on 3 episodes, as its flags say unless said otherwise; ``gflop``: of a step, by dtype."""
    trained_on = TrainedOn(dataset="local/arm", episodes_there=3, samples_per_step=8, **more)
    return training_result(trained_on=trained_on, mfu=Utilisation(gflop=gflop) if gflop else None)


def adapter_result(**more: Any) -> TrainResult:
    return input_result(
        adapter=Adapter.model_validate({"method": "LORA", "applied": True, "loaded": True, "layers": 4} | more)
    )


RESUMED = Resumed(checkpoint="000100", step=100)
DECODING, STORED = part("video decoding", 0.4), [part("video decoding", 0.9, 0.8), part("collate", 0.1)]
LOW = Utilisation(share=0.1, passes_share=0.12, least_ms=10.0, gflop={"float32": 4.0})
HALF, MIXED, LOW_FLOP = {"float32": 3.0, "bfloat16": 1.0}, {"float32": 1.0, "bfloat16": 9.0}, {"float32": 4.0}
HOST = {"data": 0.02, "compute": 0.6, "host": 0.38, "interruptions": 0.0}


def test_each_cause_fires_its_rule_and_no_other() -> None:
    approve_findings("training", {".*": {
        "healthy": ("", training_result()),
        "healthy ranks": ("", ranks(98, 96)),
        "decoding": ("slow-decoding", starved_result()),
        "storage": ("slow-storage", starved_result(*STORED)),
        "what waits while all cores are busy": ("slow-decoding", starved_result(*STORED, machine_cpu=0.95)),
        "transforms": ("slow-transforms", starved_result(part("image transforms", 0.6), DECODING)),
        "rows": ("slow-rows", starved_result(part("delta timestamps", 0.6), DECODING)),
        "collate": ("slow-collate", starved_result(part("collate", 0.6), DECODING)),
        "a worker": ("slow-worker", starved_result(loader=[worker(0), worker(1, 200.0)])),
        "a worker that others hold up": ("slow-decoding", starved_result(
            loader=[worker(0, fastest=70), worker(1, 200.0, fastest=80)])),
        "a worker that is always slow": ("slow-worker", starved_result(
            loader=[worker(0, fastest=70), worker(1, 200.0, fastest=190)])),
        "no workers": ("loads-itself", starved_result(workers=0, loader=[])),
        "the optimizer": ("slow-optimizer", training_result({"optimizer": 45.0})),
        "a low MFU": ("low-mfu", training_result(mfu=LOW)),
        "a low MFU while the steps wait": ("slow-decoding", starved_result(mfu=LOW)),
        "a high MFU": ("", training_result(mfu=LOW.model_copy(update={"passes_share": 0.5}))),
        "an MFU that is not judged": ("", training_result(mfu=Utilisation(not_judged="the step is compiled"))),
        "checkpoints of 0.5 h": ("frequent-checkpoints", stalled_result("checkpoint", 0.5)),
        "checkpoints of 0.2 h": ("frequent-checkpoints", stalled_result("checkpoint", 0.2)),
        "checkpoints of 0.1 h": ("", stalled_result("checkpoint", 0.1)),
        "epochs": ("slow-epochs", stalled_result("start of an epoch")),
        "the host": ("host-work", training_result(shares=HOST)),
        "memory": ("memory-churn", training_result(bound="memory", kernel_share=0.4)),
        "a rank": ("straggler", ranks(60, 99, forward=(30, 70), backward=(60, 25))),
        "communication": ("communication", ranks(70, 71)),
        "losses": ("", training_result(losses=[0.5, 0.4])),
        "a loss that is no number": ("loss-not-finite", training_result(losses=[0.5, None, None])),
        "no named part": ("other-large", training_result({"other": 12.0})),
        "resumed on other data": ("statistics-of-other-data",
                                  input_result(resumed=RESUMED, statistics_off={"action": 0.2})),
        "resumed on nearly the same data": ("", input_result(resumed=RESUMED, statistics_off={"action": 0.05})),
        "statistics that a policy adapts": ("", input_result(statistics_off={"action": 0.2})),
        "episodes that were not asked for": ("episodes-not-asked", input_result(episodes_asked=1, not_asked=[1, 2])),
        "a stream that reads all": ("episodes-not-asked",
                                    input_result(streaming=True, episodes_asked=1, not_asked=[1, 2])),
        "an episode that never came": ("episodes-missing", input_result(streaming=True, never_came=[2])),
        "many that never came": ("episodes-missing", input_result(streaming=True, never_came=list(range(9)))),
        "an adapter that does nothing": ("adapter-idle", adapter_result(idle=4)),
        "an adapter of which one layer does something": ("", adapter_result(idle=3)),
        "an adapter that this run made": ("", adapter_result(idle=4, loaded=False)),
        "an adapter of which nothing is known": ("", adapter_result(not_judged=4)),
        "an adapter that is not applied": ("adapter-not-applied", adapter_result(applied=False, layers=0)),
        "accumulation": ("accumulation-ignored", input_result(accumulation=4)),
        "AMP that the products did not run in": ("precision-not-used", input_result(HALF, precision="bf16")),
        "use_amp that LeRobot ignores": ("precision-not-used", input_result(LOW_FLOP, precision="no", amp_asked=True)),
        "AMP in which a tenth stays wide": ("", input_result(MIXED, precision="bf16")),
        "no AMP": ("", input_result(LOW_FLOP, precision="no")),
        "weights without a gradient": ("no-gradient", input_result(gradients=Gradients(trained=100, without=40,
                                                                                       modules=["model.head"]))),
        "a bias without a gradient": ("no-gradient", input_result(gradients=Gradients(trained=1000, without=1,
                                                                                      modules=["model.head.bias"]))),
        "a transform without effect": (
            "transforms-idle", input_result(transforms=["noise", "hue"], transforms_idle=["noise"])),
        "workers that start at once": ("", input_result(startup_ms=100)),
        "a lower limit": ("slow-decoding", training_result(data_share=0.05), Thresholds(data_bound=0.04)),
        "a higher limit": ("", starved_result(), Thresholds(data_bound=0.6)),
    }})  # fmt: skip


def test_the_head_names_the_limit_the_step_and_how_many_steps_the_hours_rest_on() -> None:
    answers = document(training_result(planned_hours=38.04, data_share=0.0)).answers
    assert answers[0] == "Compute-bound: faster data loading would gain nothing."
    assert answers[1].startswith("94 % of the 100 ms step is compute")
    assert answers[2].startswith("100,000 steps (--planned_steps) take about 38 h here (from ")
    assert answers[2].endswith("; use --steps=100 to firm it up).")
    limits = Interval(low=79.0, high=81.0, level=0.95)
    (plan,) = [line for line in document(training_result(planned_hours=38.04, samples_interval=limits)).answers
               if line.startswith("100,000 steps")]  # fmt: skip
    assert plan.startswith("100,000 steps (--planned_steps) take about 38 h [37.6, 38.5] here"), (
        "an interval deserves a third figure"
    )
    assert document(starved_result()).answers[0] == "Data-bound: faster data loading would gain up to 50 %."


def test_the_next_command_of_a_training_limited_by_compute_names_its_policy_however_the_flag_is_written() -> None:
    for policy in (["--policy.type=act"], ["--policy.type", "act"]):
        command = ["strobe", "train", "--", *policy, "--batch_size=4", "--policy.device=cpu"]
        found = training_result(bound="compute").model_copy(update={"command": command})
        assert f"Next: strobe compare {' '.join(policy)} --levers=auto" in document(found).answers


def test_a_rank_that_others_wait_for_is_what_bounds_the_training() -> None:
    """And neither the loader nor other work of the process that waits."""
    result = ranks(60, 99, forward=(30, 70), backward=(60, 25))
    assert document(result).answers[0] == "Bound by rank 1: waiting for it takes up to 39 %."
    result.training.shares = HOST
    assert {each.rule for each in advise(result)} >= {"straggler"}
    assert "host-work" not in {each.rule for each in advise(result)}
    assert not any(sentence.startswith("Next: strobe") for sentence in document(result).answers)
