"""A training step on a card runs as `lerobot-train` sets its process, and puts back what it found."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from lerobot.scripts import lerobot_train
from support.devices.emulated_device import EmulatedDevice
from support.suite.matrix import matrix
from torch import nn

from strobe.commands.variants import lever, parse_levers
from strobe.core.errors import UserError
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.subject import Ceiling
from strobe.core.studies.shared.measuring import Options, measure
from strobe.core.treatments.treatment import Undo, Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.policies.training_step import Training
from strobe.treatments.process_settings import TensorFloat32

Setting = tuple[str, bool]
AS_LEROBOT_TRAIN, AS_TORCH = ("high", True), ("highest", False)


@pytest.fixture(autouse=True)
def _torch_default_settings() -> Iterator[None]:
    """Trainings of other tests in this process may have set it otherwise, as lerobot-train does for good."""
    before = now()
    torch.set_float32_matmul_precision(AS_TORCH[0])
    torch.backends.cudnn.benchmark = AS_TORCH[1]
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.benchmark = before[1]


def tiny(kind: str = "act", *flags: str) -> PolicySubject:
    options = PolicyOptions(type=kind, size="tiny", overrides=["--device=cpu", *flags])
    return load_subject(options, InputOptions(image_size=(64, 64)))


def now() -> Setting:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark


def observed_settings(subject: PolicySubject, run: Any) -> set[Setting]:
    """Return the settings under which the layers of ``subject`` ran."""
    seen: set[Setting] = set()
    layers = [m for m in subject.module.modules() if isinstance(m, nn.Linear)]
    hooks = [m.register_forward_hook(lambda *_: seen.add(now())) for m in layers]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def test_lerobot_train_still_sets_what_a_step_is_measured_with() -> None:
    source = inspect.getsource(lerobot_train)
    assert "torch.backends.cudnn.benchmark = True" in source
    assert "torch.backends.cuda.matmul.allow_tf32 = True" in source


@pytest.mark.parametrize(
    ("levers", "wanted"),
    [
        ("", AS_LEROBOT_TRAIN),
        ("tf32=false", ("highest", True)),
        ("cudnn=default", ("high", False)),
        ("tf32=false+cudnn=default", AS_TORCH),
    ],
)
def test_a_step_on_a_card_is_as_lerobot_train_sets_it(levers: str, wanted: Setting) -> None:
    with EmulatedDevice() as device, device.holding(tiny()) as subject:
        undo = parse_levers(levers)[0].apply(subject) if levers else lambda: None
        step, forward = subject.call("training step", 2), subject.call("training forward", 2)
        assert observed_settings(subject, lambda: step(0)) == {wanted}
        assert observed_settings(subject, lambda: forward(0)) == {wanted}
        assert observed_settings(subject, lambda: subject.gradient(subject.inputs.batch(2))) == {wanted}
        undo()
        assert now() == AS_TORCH
        assert observed_settings(subject, lambda: step(0)) == {AS_LEROBOT_TRAIN}
        assert observed_settings(subject, lambda: subject.chunk(0)) == {AS_TORCH}, "a rollout sets neither"


def test_the_settings_are_put_back_after_a_step_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no memory")

    with EmulatedDevice() as device, device.holding(tiny()) as subject:
        monkeypatch.setattr(subject.policy, "forward", fails)
        with pytest.raises(RuntimeError, match="no memory"):
            subject.call("training step", 2)(0)
    assert now() == AS_TORCH


def test_a_step_on_a_cpu_sets_nothing() -> None:
    subject = tiny()
    step = subject.call("training step", 2)
    assert observed_settings(subject, lambda: step(0)) == {AS_TORCH}
    for name, value in (("tf32", "false"), ("cudnn", "benchmark")):
        with pytest.raises(UserError, match="CUDA"):
            lever(name, value).apply(subject)


class Anywhere(TensorFloat32):
    """tf32=false where there is none: what it makes of a training step, without the mode."""

    def apply(self, subject: Any) -> Undo:
        subject.training.tensor_float = self.on
        return lambda: setattr(subject.training, "tensor_float", True)


def test_the_answer_says_so_and_does_not_hold_tf32_against_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ceiling of float32 is that of products without TF32: a step in TF32 has no share of it."""
    monkeypatch.setattr(Training, "sets_process", True)
    ceiling = Ceiling(gflops={"float32": 1e6}, memory_gbps=1e6)
    variants, subject = [Variant("baseline"), Variant("wide", (Anywhere(on=False),))], tiny()
    options = Options(SamplingBudget(iterations=2), batch_size=2)
    plain, wide = measure(subject, "training step", variants, options, ceiling).measurements
    [inference] = measure(subject, "inference", variants[:1], options, ceiling).measurements
    assert any("TF32 for products of float32 is on and cudnn.benchmark on" in note for note in plain.notes)
    assert any("TF32 for products of float32 is off and cudnn.benchmark on" in note for note in wide.notes)
    assert not any("cudnn.benchmark" in note for note in inference.notes)
    assert not any(part.ceiling_share for part in plain.components)
    assert any(part.ceiling_share for part in wide.components)
    assert plain.traits.drop_treatments("tf32") == wide.traits.drop_treatments("tf32"), (
        "else no finding judges the lever"
    )


@pytest.mark.parametrize("kind", matrix(["diffusion", "fastwam", "pi05", "pi0"], keep=2))
def test_activations_that_are_computed_again_give_the_same_gradient(kind: str) -> None:
    flag = {"fastwam": "--use_gradient_checkpointing=true"}.get(kind, "--gradient_checkpointing=true")
    subject, own = tiny(kind), tiny(kind, flag)
    batch = subject.inputs.batch(2)

    def measure_gradient(of: PolicySubject) -> tuple[int, list[torch.Tensor]]:
        passes: list[int] = []
        leaves = [module for module in of.module.modules() if not list(module.children())]
        hooks = [module.register_forward_hook(lambda *_: passes.append(1)) for module in leaves]
        of.gradient(batch)
        for hook in hooks:
            hook.remove()
        made = [p.grad.clone() for p in of.policy.parameters() if p.grad is not None]
        of.policy.zero_grad()
        return len(passes), made

    own.policy.load_state_dict(subject.policy.state_dict())
    treatment, again = lever("checkpointing"), (0, list[torch.Tensor]())
    for _ in range(2):
        undo = treatment.apply(subject)
        again = measure_gradient(subject)
        undo()
    plain, lerobots = measure_gradient(subject), measure_gradient(own)
    assert again[0] == lerobots[0] > plain[0], "layers run once more, as with LeRobot's own flag"
    assert treatment.traits().lerobot_flag == flag.replace("--", "--policy.")
    assert all(torch.equal(a, b) for a, b in zip(lerobots[1], again[1], strict=True))
    # Gradients of a weight that several places use are summed in another order.
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(plain[1], again[1], strict=True))
    with pytest.raises(UserError, match="has it on in every variant already"):
        lever("checkpointing").apply(own)
    with pytest.raises(UserError, match=r"act has no --policy\.gradient_checkpointing"):
        lever("checkpointing").apply(tiny("act"))


def test_a_policy_that_turns_checkpoints_on_by_itself_is_refused_with_its_field() -> None:
    with pytest.raises(UserError, match=r"evo1 has it on by itself .*--policy\.enable_gradient_checkpointing=false"):
        lever("checkpointing").apply(tiny("evo1"))
