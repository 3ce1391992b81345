"""Parts in TensorRT engines: what stayed with torch, and products in float8. Neither has run on a card.

torch-tensorrt and ModelOpt are played. The played compiler cuts a program with torch's own splitter, under the names
that torch-tensorrt gives (``_run_on_acc_N``, ``_run_on_gpu_N``), and saves it as torch-tensorrt does: one exported
program in which an engine is a call of ``tensorrt::execute_engine``. The played operator of ModelOpt rounds as
ModelOpt does where there is no CUDA.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from support.checks.treatment_block import treat
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.passes.operator_support import create_op_support
from torch.fx.passes.splitter_base import _SplitterBase, _SplitterSettingBase

from strobe.core.errors import UserError
from strobe.core.measure.agreement import agree
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.ladder.candidates import Choice, candidates
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.treatments.engines import backends, calibrated
from strobe.treatments.engines.backends import TensorRT

VISION = "model.paligemma_with_expert.paligemma.model.vision_tower"
CARD = torch.device("cuda:0")
ENGINES: list[PlayedEngine] = []  # that were built, by the number that stands for one in a program


@pytest.fixture(scope="module")
def subject() -> Any:
    overrides = ["--device=cpu", "--dtype=bfloat16", "--num_inference_steps=1"]
    return load_subject(PolicyOptions(type="pi05", size="tiny", overrides=overrides), InputOptions(cameras=1))


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    library = torch.library.Library("tensorrt", "FRAGMENT")
    library.define("execute_engine(Tensor[] inputs, int engine) -> Tensor[]")
    library.define("quantize_op(Tensor x, Tensor amax, int bits, int exponent, bool unsigned, bool narrow) -> Tensor")

    def emulate_rounding(x: Tensor, amax: Tensor, bits: int, exponent: int, unsigned: bool, narrow: bool) -> Tensor:
        assert (bits, exponent, unsigned, narrow, amax.numel()) == (8, 4, False, False, 1)
        return ((x.float() * (448 / amax)).to(torch.float8_e4m3fn).float() * (amax / 448)).to(x.dtype)

    library.impl("execute_engine", lambda inputs, engine: ENGINES[engine].outputs(inputs), "CPU")
    library.impl("quantize_op", emulate_rounding, "CPU")
    torch.library.register_fake("tensorrt::quantize_op", lambda x, *_: torch.empty_like(x), lib=library)
    torch.library.register_fake("tensorrt::execute_engine", lambda _, engine: ENGINES[engine].empty(), lib=library)
    yield
    library._destroy()


class PlayedEngine(nn.Module):
    def __init__(self, graph: GraphModule) -> None:
        super().__init__()
        ENGINES.append(self)
        self.number, self.run = len(ENGINES) - 1, [copy.deepcopy(graph)]
        self.shapes: list[tuple[torch.Size, torch.dtype]] = []
        self.single = not isinstance(graph.graph.output_node().args[0], tuple | list)

    def forward(self, *inputs: Tensor) -> Any:
        outputs = torch.ops.tensorrt.execute_engine(list(inputs), self.number)
        return outputs[0] if self.single else tuple(outputs)

    def outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        made = self.run[0](*inputs)
        outputs = [made.clone()] if self.single else [output.clone() for output in made]
        self.shapes = [(output.shape, output.dtype) for output in outputs]
        return outputs

    def empty(self) -> list[Tensor]:
        return [torch.empty(shape, dtype=dtype) for shape, dtype in self.shapes]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> SimpleNamespace:
    """A card of compute capability 9.0 and the two packages; ``torchs``: operators that TensorRT does not take."""
    played = SimpleNamespace(torchs={"aten.layer_norm.default"}, capability=(9, 0), program=None)

    def compile(program: Any, arg_inputs: Any, **_: Any) -> GraphModule:
        played.program = program
        graph = program.module()
        for node in [node for node in graph.graph.nodes if node.op == "call_module"]:
            graph.graph.erase_node(node)  # the guards of torch.export, as torch-tensorrt does
        support = create_op_support(lambda _, node: str(node.target) not in played.torchs)
        settings = _SplitterSettingBase(min_acc_module_size=1, allow_non_tensor=True)
        split: Any = _SplitterBase(graph, arg_inputs, support, settings, non_acc_submodule_name="_run_on_gpu_")()
        for name, inner in list(split.named_children()):
            if "_run_on_acc" in name:
                setattr(split, name, PlayedEngine(inner))
        split(*arg_inputs)
        return split

    package: Any = ModuleType("torch_tensorrt")
    package.dynamo = SimpleNamespace(compile=compile)
    package.save = lambda built, file, arg_inputs, **_: torch.export.save(
        torch.export.export(built, tuple(arg_inputs)), file
    )
    package.load = torch.export.load
    monkeypatch.setitem(sys.modules, "torch_tensorrt", package)
    for name in ("modelopt", "modelopt.torch", "modelopt.torch.quantization"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(backends, "find_spec", lambda name: name == "modelopt")
    monkeypatch.setattr(backends, "version", lambda _: "2.11.0")
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "played")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: played.capability)
    monkeypatch.setenv("STROBE_CACHE", str(tmp_path))
    return played


@pytest.fixture
def cpu_card(card: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The same, where the CPU counts as the card."""
    monkeypatch.setattr(TensorRT, "require", lambda *_: None)
    monkeypatch.setattr(calibrated, "require_fp8", lambda _: None)
    return card


def engine(precision: str, path: str = VISION) -> Any:
    return catalogue.make({"engine": "tensorrt", "engine.part": path, "engine.precision": precision})


def run(subject: Any, *treatments: Any) -> Tensor:
    with treat(subject, Variant("v", treatments)):
        return subject.call("inference")(0)


def test_what_stayed_with_torch_is_in_the_traits_also_of_an_engine_from_the_cache(
    subject: Any, cpu_card: SimpleNamespace
) -> None:
    norms = sum(isinstance(module, nn.LayerNorm) for module in subject.module.get_submodule(VISION).modules())
    plain = run(subject)
    for cached in (False, True):
        treatment = engine("bf16")
        assert agree([plain], [run(subject, treatment)]).cosine > 0.999
        traits = treatment.traits()
        assert traits.from_cache is cached
        assert (traits.torch_partitions, traits.torch_operators) == (norms, ["aten.layer_norm"])
        assert traits.engines == norms + 1, "one before each norm and one behind the last"
        shown = f"{norms + 1} engines, {norms} partitions in torch (aten.layer_norm)"
        assert traits.labelled_values()["engine partitions"] == shown


def test_a_part_that_tensorrt_takes_whole_says_so(subject: Any, cpu_card: SimpleNamespace) -> None:
    cpu_card.torchs.clear()
    run(subject, treatment := engine("bf16"))
    assert treatment.traits().labelled_values()["engine partitions"] == "1 engine, nothing in torch"


class Everything(set[str]):
    def __contains__(self, _: object) -> bool:
        return True


def test_an_engine_without_an_operator_in_it_is_refused(subject: Any, cpu_card: SimpleNamespace) -> None:
    cpu_card.torchs = Everything()
    with pytest.raises(
        UserError, match=r"cannot be built in tensorrt: TensorRT supports none of its operators, such as aten\."
    ):
        run(subject, engine("bf16"))


def test_products_in_float8_are_lossy_and_scaled_by_the_observations(subject: Any, cpu_card: SimpleNamespace) -> None:
    vision = subject.module.get_submodule(VISION)
    before = {name: (id(weight), weight._version) for name, weight in vision.named_parameters()}
    plain, treatment = run(subject), engine("fp8")
    got, program = run(subject, treatment), cpu_card.program
    assert agree([plain], [got]).cosine > 0.99
    assert not torch.equal(got, run(subject, engine("bf16")))
    assert (treatment.effect, treatment.dtypes) == ("lossy", ("float8_e4m3fn",))
    traits = treatment.traits()
    rounds: list[Node] = [n for n in program.graph.nodes if str(n.target).startswith("tensorrt.quantize_op")]
    assert traits.precision == "fp8"
    assert traits.layers == sum(isinstance(module, nn.Linear) for module in vision.modules()) - len(traits.left_out)
    assert len(rounds) == 2 * traits.layers, "inputs and weights"
    assert {name: (id(weight), weight._version) for name, weight in vision.named_parameters()} == before
    assert torch.equal(run(subject), plain)
    run(subject, again := engine("fp8"))
    assert again.traits().from_cache is True


def test_fp8_is_a_candidate_where_lossy_ones_are_allowed(
    subject: Any, card: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(subject), "device", CARD)
    fp8 = [f"engine=tensorrt, engine.part={VISION}, engine.precision=fp8"]

    def fp8_candidates(*effects: Any) -> list[str]:
        found = candidates(subject, Choice(effects=effects, only=("engine",)))
        return [candidate.text for candidate in found if "fp8" in candidate.text]

    assert fp8_candidates("exact", "rounding") == []
    assert fp8_candidates("exact", "rounding", "lossy") == fp8
    card.capability = (8, 6)
    assert fp8_candidates("exact", "rounding", "lossy") == []


@pytest.mark.parametrize(
    ("spec", "device", "lacking", "why"),
    [
        ("engine=openvino", "cuda:0", "", "only tensorrt supports it"),
        ("engine=tensorrt", "cpu", "", "needs CUDA"),
        ("engine=tensorrt", "cuda:0", "torch_tensorrt", r"needs a package: .*tensorrt"),
        ("engine=tensorrt", "cuda:0", "modelopt.torch.quantization", "needs ModelOpt: pip install nvidia-modelopt"),
        ("engine=tensorrt", "cuda:0", "8.6", "needs compute capability 8.9 or later, this device has 8.6"),
    ],
)
def test_what_fp8_lacks_is_one_line(
    spec: str, device: str, lacking: str, why: str, card: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking == "8.6":
        card.capability = (8, 6)
    elif lacking:
        monkeypatch.setitem(sys.modules, lacking, None)
    text, subject = f"{spec}, engine.part={VISION}, engine.precision=fp8", SimpleNamespace(device=torch.device(device))
    with pytest.raises(UserError, match=why) as refused:
        Variant("v", tuple(catalogue.compose(catalogue.parse(text)))).apply(subject)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
