"""Precision: the same policy in another format, put on and reverted without leaving a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks.treatment_block import treat
from support.suite.matrix import matrix
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from strobe.core.errors import UserError
from strobe.core.measure.agreement import agree
from strobe.core.treatments.treatment import Variant
from strobe.core.treatments.words import precision_name, sensible
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.treatments.numbers.precision import Precision

KINDS = ("pi05", "act", "diffusion", "smolvla", "pi0")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass
class Small:
    """The least that is a subject: a module and its device."""

    module: Any
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    info: Any = field(default_factory=lambda: SimpleNamespace(name="small", kind="small"))

    def run(self, *given: Tensor) -> Tensor:
        with torch.no_grad():
            return self.module(*given)


def apply_precision(precision: Precision, module: nn.Module) -> None:
    """Put a precision on a module."""
    subject: Any = Small(module)
    precision.apply(subject)


def run_treated(subject: Any, call: Callable[[], Any], *treatments: Any) -> Any:
    with treat(subject, Variant("v", treatments)):
        return call()


def trace(module: nn.Module) -> list[Any]:
    """What must be the same after every undo: objects, storages, dtypes, bits, and no wrapper left."""
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    bits = [(name, id(t), t.data_ptr(), t.dtype, t.detach().float().sum().item()) for name, t in tensors]
    return [
        *bits,
        *[(id(m), sorted(vars(m))) for m in module.modules()],
        torch.randn,
        torch.get_float32_matmul_precision(),
    ]


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_real_architectures_in_every_precision_stay_close_and_come_back(kind):
    overrides = ["--dtype=bfloat16"] if kind == "pi05" else []
    subject = load_subject(PolicyOptions(type=kind, size="tiny", overrides=overrides))
    before, chunk = trace(subject.module), subject.call("inference")(0)
    for dtype, least in (("fp32", 0.9999), ("bf16", 0.999), ("fp16", 0.9999)):
        got = run_treated(subject, lambda: subject.call("inference")(0), Precision(dtype))
        assert got.dtype == chunk.dtype
        assert agree([chunk], [got]).cosine > least, dtype
        assert trace(subject.module) == before
    assert torch.equal(subject.call("inference")(0), chunk)


def test_the_weights_really_are_in_the_dtype_and_the_arithmetic_with_them():
    from strobe.core.measure.accounting import Accounting

    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    accounting = Accounting()
    run_treated(subject, lambda: accounting.run(lambda: subject.call("inference")(0)), Precision("bf16"))
    assert accounting.flop["bfloat16"] > 0.99 * sum(accounting.flop.values())


PARTS = {
    "act": ("model.backbone", "model.encoder"),
    "smolvla": ("model.vlm_with_expert.vlm.model.vision_model", "model.vlm_with_expert.vlm.model.text_model"),
    "pi05": (
        "model.paligemma_with_expert.paligemma.model.vision_tower",
        "model.paligemma_with_expert.paligemma.model.language_model",
        "model.paligemma_with_expert.gemma_expert",
    ),
}


@pytest.mark.parametrize("kind", matrix(("pi05", "act", "smolvla")))
def test_parts_with_neighbours_in_other_dtypes(kind):
    # pi0.5 in bf16 with a part in fp16 is where 'Half against BFloat16' was met.
    overrides = ["--dtype=bfloat16"] if kind == "pi05" else []
    subject = load_subject(PolicyOptions(type=kind, size="tiny", overrides=overrides))
    before, chunk = trace(subject.module), subject.call("inference")(0)
    for part in PARTS[kind]:
        for dtype in ("bf16", "fp16"):
            got = run_treated(subject, lambda: subject.call("inference")(0), Precision(dtype, part))
            assert agree([chunk], [got]).cosine > 0.999, (part, dtype)
            assert trace(subject.module) == before


class Projected(nn.Module):
    """A vision tower and the projector behind it, as in pi0.5; ``loose`` calls a part's inside around its border."""

    def __init__(self, loose: bool = False) -> None:
        super().__init__()
        self.loose = loose
        self.vision = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
        self.projector = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.vision[1](self.vision[0](x)) if self.loose else self.vision(x)
        return self.projector(seen)


@pytest.mark.parametrize("loose", [False, True])
def test_half_against_bfloat16_is_converted_at_the_border(loose):
    subject = Small(Projected(loose).bfloat16())
    x = torch.randn(3, 8, dtype=torch.bfloat16)
    plain = subject.run(x)
    subject.module.vision.half()
    with pytest.raises(RuntimeError, match="dtype"):
        subject.run(x.half())  # the fault itself
    subject.module.vision.bfloat16()
    got = run_treated(subject, lambda: subject.run(x), Precision("fp16", "vision"))
    assert got.dtype == plain.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(got.float().flatten(), plain.float().flatten(), dim=0) > 0.999


def test_an_untouched_part_gives_the_same_bits():
    subject = Small(Projected())
    before = subject.module.projector(torch.ones(1, 8))
    assert torch.equal(
        run_treated(subject, lambda: subject.module.projector(torch.ones(1, 8)), Precision("bf16", "vision")), before
    )


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        nn.init.uniform_(self.embed.weight, -1, 1)  # outputs of 20 would round by more than 0.05 in bfloat16
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight
        self.twin = nn.Linear(4, 6, bias=False)
        self.twin.weight.data = self.embed.weight.data  # another parameter on the same storage
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("table", torch.linspace(0, 1, 6), persistent=False)
        self.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        return self.norm(self.head(x) + self.twin(x)) + self.table


def test_tied_weights_have_one_copy_and_computed_tables_stay():
    subject = Small(Tied())
    tokens = torch.arange(6)
    plain, before = subject.run(tokens), trace(subject.module)

    def check_and_run() -> Tensor:
        module: Any = subject.module
        assert module.head.weight is module.embed.weight
        assert module.head.weight.data_ptr() == module.twin.weight.data_ptr()
        assert module.head.weight.dtype == module.norm.running_mean.dtype == torch.bfloat16
        assert module.table.dtype == torch.float32
        return subject.run(tokens)

    got = run_treated(subject, check_and_run, Precision("bf16"))
    assert got.dtype == torch.float32
    assert torch.allclose(got, plain, atol=0.05)
    assert trace(subject.module) == before


def test_weights_that_changed_are_converted_again():
    subject, treatment = Small(nn.Linear(4, 2)), Precision("bf16")
    x = torch.ones(1, 4)
    run_treated(subject, lambda: subject.run(x), treatment)
    with torch.no_grad():
        subject.module.weight.add_(1.0)
    assert torch.allclose(run_treated(subject, lambda: subject.run(x), treatment), subject.run(x), atol=0.1)


def test_an_exception_inside_leaves_nothing_behind():
    class Failing(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            raise KeyError("in the model")

    subject = Small(nn.Sequential(nn.Linear(4, 4), Failing(4, 4)))
    before = trace(subject.module)
    with pytest.raises(KeyError):
        run_treated(subject, lambda: subject.run(torch.ones(1, 4)), Precision("bf16"), Precision("fp16", "0"))
    assert trace(subject.module) == before


steps = st.lists(
    st.tuples(st.sampled_from(["fp32", "bf16", "fp16"]), st.sampled_from(["", "vision", "vision.0", "projector"])),
    min_size=1,
    max_size=4,
)


@given(st.lists(st.tuples(steps, st.booleans()), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_any_sequence_of_precisions_leaves_the_same_bits_in_the_same_objects(sequence):
    subject = Small(Projected())
    x = torch.randn(2, 8)
    before, plain = trace(subject.module), subject.run(x)
    treatments: dict[Any, Precision] = {}  # the same objects again and again, as in a comparison, in any nesting
    for wanted, fails in sequence:
        stacked = [treatments.setdefault(key, Precision(*key)) for key in dict.fromkeys(wanted)]

        def call(fails: bool = fails) -> Tensor:
            if fails:
                raise RuntimeError("stop")
            return subject.run(x)

        if fails:
            with pytest.raises(RuntimeError, match="stop"):
                run_treated(subject, call, *stacked)
        else:
            assert torch.allclose(run_treated(subject, call, *stacked).float(), plain, atol=0.1)
        assert trace(subject.module) == before
    for (dtype, part), treatment in treatments.items():  # and alone each does what a fresh one does
        fresh = run_treated(subject, lambda: subject.run(x), Precision(dtype, part))
        assert torch.equal(run_treated(subject, lambda: subject.run(x), treatment), fresh)
    assert torch.equal(subject.run(x), plain)


def test_noise_is_the_same_in_every_precision():
    class Drawing(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return torch.randn(64, dtype=self.weight.dtype)

    subject = Small(Drawing(2, 2))
    torch.manual_seed(0)
    plain = subject.run(torch.ones(1, 2))
    torch.manual_seed(0)
    got = run_treated(subject, lambda: subject.run(torch.ones(1, 2)), Precision("bf16"))
    assert torch.equal(got, plain.bfloat16().float())


def test_noise_of_others_is_torchs_own_while_a_precision_is_on():
    class Drawing(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return torch.randn(64, dtype=torch.bfloat16)

    subject, other = Small(Drawing(2, 2)), Drawing(2, 2)

    def draw() -> Tensor:
        torch.manual_seed(0)
        return other(torch.ones(1, 2))

    before, expected = torch.randn, draw()
    assert torch.equal(run_treated(subject, draw, Precision("bf16")), expected)
    assert run_treated(subject, lambda: torch.randn, Precision("bf16")) is before


def test_a_cache_that_crosses_the_border_is_converted():
    class Writes(nn.Linear):
        def forward(self, x: Tensor, cache: Any) -> Any:  # type: ignore[override]
            cache.layers[0].keys = super().forward(x)
            return cache

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.writer, self.query = Writes(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            cache = self.writer(x, SimpleNamespace(layers=[SimpleNamespace(keys=None)]))
            return self.query(x) @ cache.layers[0].keys.T

    subject = Small(Reads())
    x = torch.randn(3, 4)
    plain = subject.run(x)
    assert torch.allclose(run_treated(subject, lambda: subject.run(x), Precision("bf16", "writer")), plain, atol=0.1)


def test_what_is_already_so_is_exact_and_untouched():
    subject, treatment = Small(nn.Linear(4, 2)), Precision("float32")
    inside = run_treated(subject, lambda: vars(subject.module).keys(), treatment)
    assert treatment.effect == "exact"
    assert "forward" not in inside
    run_treated(subject, lambda: None, lower := Precision("bf16"))
    assert lower.effect == "rounding"


def test_names_and_what_makes_sense_where():
    assert [precision_name(name) for name in ("float32", "BF16", "float16", "tf32")] == ["fp32", "bf16", "fp16", "tf32"]
    assert sensible("cpu") == ("fp32", "bf16")
    assert sensible("cuda:1") == ("fp32", "tf32", "bf16", "fp16")
    traits = Precision("bfloat16", "model.x").traits()
    assert (traits.key, traits.value, traits.part) == ("precision", "bf16", "model.x")


class Complaining(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        if self.weight.dtype == torch.float16:
            raise NotImplementedError("\"fft\" not implemented for 'Half'")
        return super().forward(input)


REFUSED = {
    "unknown precision": (lambda: Precision("bf61"), r"unknown precision 'bf61': did you mean 'bf16'\?"),
    "part that does not exist": (
        lambda: apply_precision(Precision("bf16", "visoin"), Projected()),
        r"no part 'visoin' in Projected: did you mean 'vision'\?",
    ),
    "tf32 on the CPU": (lambda: apply_precision(Precision("tf32"), nn.Linear(1, 1)), "tf32 is a mode of CUDA"),
    "nothing floating": (lambda: apply_precision(Precision("bf16"), nn.ReLU()), "small has no floating-point weights"),
    "quantised": (
        lambda: apply_precision(
            Precision("bf16"), torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)), {nn.Linear})
        ),
        "small has quantised weights",
    ),
    "float8": (
        lambda: apply_precision(Precision("bf16"), nn.Linear(2, 2).to(torch.float8_e4m3fn)),
        "small has quantised weights .Linear, float8_e4m3fn",
    ),
    "an operator that is missing": (
        lambda: run_treated(small := Small(Complaining(2, 2)), lambda: small.run(torch.ones(1, 2)), Precision("fp16")),
        "small does not run in fp16 on cpu: .fft. not implemented for 'Half'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_done_is_refused_in_one_line(name):
    call, words = REFUSED[name]
    with pytest.raises(UserError, match=words) as refused:
        call()
    assert "\n" not in str(refused.value)


class Casts(TorchDispatchMode):
    """Counts conversions of a tensor from one dtype to another."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


def test_the_weights_are_converted_once_however_often_it_is_applied():
    subject, treatment = load_subject(PolicyOptions(type="act", size="tiny")), Precision("bf16")
    with Casts() as first:
        treatment.apply(subject)()
    assert first.count > 10
    with Casts() as again:
        for _ in range(3):
            treatment.apply(subject)()
    assert again.count == 0


@pytest.mark.gpu
def test_tensor_cores_are_switched_on_for_the_call_only():
    subject = Small(nn.Linear(256, 256).cuda(), torch.device("cuda"))
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    inside = run_treated(
        subject, lambda: (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32), Precision("tf32")
    )
    assert inside == ("high", True)
    inside = run_treated(
        subject, lambda: (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32), Precision("fp32")
    )
    assert inside == ("highest", False)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
