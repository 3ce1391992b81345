"""torch.compile of one part: what is compiled, what it sees, and what is said of it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat
from support.devices.graph_matrix import exact, rounding

from strobe.core.errors import UserError
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.studies.shared.measuring import Options, measure
from strobe.core.treatments import catalogue
from strobe.core.treatments.patch import Patches, find_replacements, identity
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.engines import compile
from strobe.treatments.engines.compile import Compile
from strobe.treatments.layers.attention import FusedAttention
from strobe.treatments.layers.projections import FusedProjections

STEP = "model.denoise_step"
VISION = "model.paligemma_with_expert.paligemma.model.vision_tower"


@functools.cache
def tiny(kind: str) -> PolicySubject:
    flags = {"pi05": "--num_inference_steps=2", "diffusion": "--num_inference_steps=2", "smolvla": "--num_steps=1"}
    steps = [flags[kind]] if kind in flags else []
    return load_tiny_subject(kind, *steps)  # type: ignore[return-value]


@pytest.fixture
def compiled_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is compiled, by a compiler that leaves it unchanged."""
    seen: list[Any] = []

    def record(call: Any, mode: str) -> Any:
        seen.append(call)
        return lambda *args, **kwargs: call(*args, **kwargs)

    monkeypatch.setattr(torch, "compile", record)
    return seen


def run_treated(subject: PolicySubject, *treatments: Any) -> torch.Tensor:
    with treat(subject, Variant("v", treatments)):
        return subject.model_chunk(0)


@pytest.mark.parametrize("part", [STEP, VISION, f"{VISION}.vision_model.encoder.layers.0"])
def test_one_part_is_compiled_once_and_nothing_is_left_behind(compiled_calls: list[Any], part: str) -> None:
    subject = tiny("pi05")
    plain = subject.model_chunk(0)
    before = find_replacements(subject.module)[1]
    treatment = Compile("default", part)
    for _ in range(3):
        assert torch.equal(run_treated(subject, treatment), plain)
    assert len(compiled_calls) == 1
    assert find_replacements(subject.module)[1] == before
    owner, name = compile.target(subject.module, part)
    assert compiled_calls[0].__func__ is getattr(type(owner), name)


@pytest.mark.parametrize("kind", ["pi0", "pi05", "smolvla"])
def test_what_is_put_on_again_is_known_again_so_that_nothing_is_built_twice(kind: str) -> None:
    subject = tiny(kind)
    for name in (*exact(kind), *rounding(kind)):
        treatment = catalogue.compose(catalogue.parse(name))
        seen = []
        for _ in range(2):
            undo = Variant(name, treatment).apply(subject)
            seen.append(find_replacements(subject.module))  # its calls live as long as the key is compared
            undo()
        assert seen[0][1] == seen[1][1], name


def test_it_is_compiled_anew_for_another_function_and_not_for_its_like(compiled_calls: list[Any]) -> None:
    subject = tiny("pi05")
    treatment = Compile("default", STEP)
    model: Any = subject.policy.model

    def run_wrapped(factor: float) -> torch.Tensor:
        def wrap_call(inner: Any) -> Any:
            return lambda *args, **kwargs: inner(*args, **kwargs) * factor

        patches = Patches()
        patches.wrap(model, "denoise_step", wrap_call)  # a closure made again for every call
        try:
            return run_treated(subject, treatment)
        finally:
            patches.undo()

    half = 0.5
    plain = run_treated(subject, treatment)
    first = run_wrapped(half)
    assert not torch.equal(first, plain)
    assert torch.equal(run_wrapped(half), first)
    assert len(compiled_calls) == 2
    assert torch.equal(run_wrapped(2 * half), plain)
    assert len(compiled_calls) == 3


def test_the_part_is_timed_around_the_compiled_region(compiled_calls: list[Any]) -> None:
    subject = tiny("pi05")
    variants = [Variant("baseline"), Variant("compiled", (FusedAttention(), Compile("default", STEP)))]
    measured = measure(subject, "inference", variants, Options(SamplingBudget(iterations=2), counted=False))
    plain, built = measured.measurements
    assert {"denoise step", "action expert"} <= {part.name for part in built.components}
    assert built.traits.is_compiled
    assert built.traits.treatments[-1].part == STEP
    assert isinstance(built.traits.build_s, float)
    assert plain.traits.build_s is None


def test_traced_for_real_it_sees_the_other_treatments(monkeypatch: pytest.MonkeyPatch) -> None:
    # Traced by torch.compile, and run as traced: building kernels is torch's own affair, and takes long.
    monkeypatch.setattr(torch, "compile", functools.partial(_compile_eagerly, torch.compile))
    subject = tiny("pi05")
    plain = subject.model_chunk(0)
    treatment = Compile("default", STEP)
    torch._dynamo.utils.counters.clear()
    assert torch.allclose(run_treated(subject, treatment), plain, atol=1e-5)
    assert torch.allclose(run_treated(subject, FusedProjections(), FusedAttention(), treatment), plain, atol=1e-4)
    assert not torch._dynamo.utils.counters["graph_break"]
    head: Any = subject.module.get_submodule("model.action_out_proj")
    patches = Patches()
    patches.wrap(head, "forward", lambda inner: lambda x: inner(x) * 0.5)
    try:
        changed = subject.model_chunk(0)
        assert not torch.allclose(changed, plain, atol=1e-3)
        assert torch.allclose(run_treated(subject, treatment), changed, atol=1e-5)
    finally:
        patches.undo()
    assert torch.allclose(run_treated(subject, treatment), plain, atol=1e-5)


@pytest.mark.slow("traces ACT in three pieces", each_change=True)
def test_a_planted_branch_and_a_planted_item_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(_compile_eagerly, torch.compile))
    subject = tiny("act")
    head: Any = subject.module.get_submodule("model.action_head")

    def wrap_call(inner: Any) -> Any:
        def call(x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:
                x = x + 0
            return inner(x) * float(x.new_ones(()).item())

        return call

    patches = Patches()
    patches.wrap(head, "forward", wrap_call)
    try:
        variants = [Variant("baseline"), Variant("compiled", (Compile(),))]
        measured = measure(subject, "inference", variants, Options(SamplingBudget(iterations=2), counted=False))
    finally:
        patches.undo()
    plain, built = (measurement.compilation for measurement in measured.measurements)
    assert plain is None
    assert built is not None
    first = wrap_call.__code__.co_firstlineno
    why = {place.where.rpartition("/")[2]: place.reasons[0] for place in built.select_places("graph break")}
    assert why.keys() == {f"test_compile_parts.py:{first + 2}", f"test_compile_parts.py:{first + 4}"}
    assert "branching" in why[f"test_compile_parts.py:{first + 2}"]
    assert ".item()" in why[f"test_compile_parts.py:{first + 4}"]
    assert built.compile_s
    assert built.warmup_s > 0


@pytest.mark.slow("traces SmolVLA's denoising step five times")
def test_five_prompt_lengths_are_four_recompilations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(_compile_eagerly, torch.compile, dynamic=False))
    subject = tiny("smolvla")
    first = subject.observation(0)
    subject.inputs.observations[:] = [{**first, "task": "push " * words} for words in (1, 3, 5, 7, 9)]
    variants = [Variant("compiled", (Compile("default", STEP),))]
    (built,) = measure(
        subject, "inference", variants, Options(SamplingBudget(iterations=5), counted=False)
    ).measurements
    assert built.compilation is not None
    (again,) = [place for place in built.compilation.select_places("recompiled") if place.function == "denoise_step"]
    assert again.times == 4
    assert again.where.startswith("lerobot/policies/smolvla/modeling_smolvla.py:")
    assert all("size mismatch" in guard for guard in again.reasons)
    assert len(again.reasons) == 4


def _compile_eagerly(compile: Any, call: Any, mode: str, dynamic: bool | None = None) -> Any:
    return compile(call, backend="eager", dynamic=dynamic)


def test_what_it_says() -> None:
    made: Any = catalogue.make({"compile": "max-autotune", "compile.part": STEP})
    assert made.traits().labelled_values() == {"compiled": True, "compile mode": "max-autotune", "compile.part": STEP}
    assert catalogue.parse(f"compile=default, compile.part={STEP}") == [{"compile": "default", "compile.part": STEP}]
    with pytest.raises(UserError, match="did you mean 'denoise_step'"):
        Compile("default", "model.denoise_stop").apply(tiny("pi05"))
    with pytest.raises(UserError, match="cannot be called"):
        Compile("default", "model.config").apply(tiny("pi05"))
    candidates = compile.ENTRY.candidates(tiny("pi05"))
    assert [compile.ENTRY.parts(tiny("pi05"), spec) for spec in candidates] == [
        ("vision tower",), ("prefix KV cache",), ("denoise step",),
    ]  # fmt: skip
    (whole,) = compile.ENTRY.candidates(tiny("diffusion"))
    assert whole == {"compile": "default"}
    assert compile.ENTRY.parts(tiny("diffusion"), {"compile": "default", "compile.part": "diffusion.unet"}) == (
        "denoise step",
    )


def test_identity_of_closures() -> None:
    def wrap_call(inner: Any, more: Any = None) -> Any:
        def call() -> Any:
            return inner() if more is None else more

        return call

    one, other = object(), object()
    assert identity(wrap_call(one)) == identity(wrap_call(one))
    assert identity(wrap_call(one)) != identity(wrap_call(other))
    assert identity(wrap_call(wrap_call(one))) == identity(wrap_call(wrap_call(one)))
    assert identity(wrap_call(one, other)) != identity(wrap_call(one))
    assert identity(functools.partial(wrap_call, one)) == identity(functools.partial(wrap_call, one))

    def recursive() -> Any:
        return recursive

    assert identity(recursive) == identity(recursive)


def test_two_parts_are_both_shown() -> None:
    variant = Variant("both", (Compile("default", STEP), Compile("default", VISION)))
    assert [one.part for one in variant.traits().treatments] == [STEP, VISION]
    assert variant.traits().labelled_values()["compile.part"] == f"{STEP}, {VISION}"
    assert variant.traits().labelled_values()["compile mode"] == "default"
