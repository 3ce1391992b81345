"""Engines for a part: the same results in the same classes and dtypes, built once, and gone without a trace."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_short_subject, load_tiny_subject
from support.checks.treatment_block import treat
from support.suite.matrix import matrix
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from strobe.core.errors import UserError
from strobe.core.families.family import Family
from strobe.core.measure.agreement import agree
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.sameness.check import Sameness, make_guidance
from strobe.core.sameness.visits import plan
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.measuring import Options
from strobe.core.subjects.subject import Abilities
from strobe.core.timeline.probe import Hook
from strobe.core.treatments import catalogue, room
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.treatments.engines import engine
from strobe.treatments.engines.backends import OpenVINO, engines_folder
from strobe.treatments.engines.engine import PartInEngine
from strobe.treatments.engines.offered import ENTRY
from strobe.treatments.numbers.precision import Precision
from strobe.treatments.numbers.quantise import Quantised

JOINT = "model.paligemma_with_expert"
VISION = f"{JOINT}.paligemma.model.vision_tower"
LANGUAGE, EXPERT = f"{JOINT}.paligemma.model.language_model", f"{JOINT}.gemma_expert.model"
SMOL = "model.vlm_with_expert"
INSIDE = "engine=openvino, engine.precision=fp32, engine.part="
KEEPING = [
    ("pi05", f"timesteps=precomputed, {INSIDE}{EXPERT}"),
    ("smolvla", f"prefix_cache=static, {INSIDE}{SMOL}"),
    ("smolvla", f"prefix_cache=static, timesteps=precomputed, masks=once, {INSIDE}model, engine.steps=all"),
]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = os.environ.get("STROBE_CACHE")
    os.environ["STROBE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield engines_folder()
    os.environ.pop("STROBE_CACHE")
    if before is not None:
        os.environ["STROBE_CACHE"] = before


class Tower(nn.Module):
    """Like a vision tower of transformers: a mask that may be missing, an output of several fields."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(8, 16), nn.LayerNorm(16)

    def forward(self, pixels: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> BaseModelOutput:
        first = self.project(pixels)
        hidden = self.norm(first) * scale
        if mask is not None:
            hidden = torch.where(mask, hidden, torch.zeros_like(hidden))
        made: Any = {"last_hidden_state": hidden, "hidden_states": (first, hidden)}
        return BaseModelOutput(**made)


class Seeing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vision, self.projector, self.unused = Tower(), nn.Linear(16, 4), nn.Linear(2, 2)

    def forward(self, pixels: Tensor) -> Tensor:
        seen = self.vision(pixels, mask=pixels.sum(-1, keepdim=True) > 0, scale=2.0)
        assert isinstance(seen, BaseModelOutput)
        assert seen.attentions is None
        return self.projector(seen.last_hidden_state) + seen.hidden_states[0].mean()


@dataclass
class Small(Abilities):
    """The least that is a subject: a module, its device, and a call."""

    module: nn.Module = field(default_factory=Seeing)
    rows: int = 5
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    info: Any = field(default_factory=lambda: SimpleNamespace(name="small", kind="small"))
    family: Family = field(default_factory=lambda: Family("modules", ()))

    def call(self, phase: Any, batch_size: int = 1) -> Any:
        def run(index: int) -> Tensor:
            generator = torch.Generator().manual_seed(index)
            dtype = next(self.module.parameters()).dtype
            with torch.no_grad():
                return self.module(torch.randn(self.rows, 8, generator=generator).to(dtype))

        return run

    def hooks(self, phase: Any, depth: int) -> list[Hook]:
        vision: Any = self.module.get_submodule("vision")
        return [Hook(vision, "forward", "vision tower"), Hook(vision.norm, "forward", "norm of the tower")]


@functools.cache
def load_few_steps(kind: str) -> Any:
    return load_short_subject(kind, *(["--dtype=bfloat16"] if kind == "pi05" else []), cameras=1)


def run(subject: Any, *treatments: Any, index: int = 0) -> Any:
    with treat(subject, Variant("v", treatments)):
        return subject.call("inference")(index)


def state(module: nn.Module) -> list[Any]:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [
        *((name, id(t), t.data_ptr(), t.dtype, t._version) for name, t in tensors),
        *(sorted(vars(one)) for one in module.modules()),
    ]


@pytest.mark.parametrize(("part", "parts"), [("vision", 1), ("vision.*", 2)])
def test_results_have_the_classes_and_the_numbers_of_torchs(part: str, parts: int) -> None:
    torch.manual_seed(0)
    subject, treatment = Small(), PartInEngine("openvino", part)
    before = state(subject.module)
    for index in range(3):
        plain = subject.call("inference")(index)
        got = run(subject, treatment, index=index)
        assert torch.allclose(got, plain, atol=1e-5)
        assert state(subject.module) == before
    undo = treatment.apply(subject)  # type: ignore[arg-type]
    traits = treatment.traits()
    replaced = sum("forward" in vars(one) for one in subject.module.modules())
    undo()
    assert (traits.precision, traits.from_cache, replaced) == ("fp32", False, parts)
    assert isinstance(traits.build_s, float)


def test_other_shapes_are_built_for_when_they_come() -> None:
    subject, treatment = Small(), PartInEngine("openvino", "vision")
    run(subject, treatment)
    for rows in range(6, 6 + engine.SHAPES - 1):
        subject.rows = rows
        assert torch.allclose(run(subject, treatment), subject.call("inference")(0), atol=1e-5)
    many = treatment.traits().build_s
    subject.rows = 20
    assert torch.equal(run(subject, treatment), subject.call("inference")(0)), "torch computes it"
    assert treatment.traits().build_s == many
    assert "forward" not in vars(subject.module.get_submodule("vision"))


@pytest.mark.parametrize(("kind", "text"), KEEPING)
def test_an_engine_holds_nothing_of_the_step_and_the_observation_that_it_was_built_from(kind: str, text: str) -> None:
    subject = load_short_subject(kind, cameras=1)
    for name, weight in subject.module.named_parameters():
        if "dense" in name:
            nn.init.normal_(weight, std=0.3)  # LeRobot begins with zeros, which hide the timestep
    plain = [subject.chunk(index) for index in range(3)]
    made = [run(subject, *map(catalogue.make, catalogue.parse(text)), index=index) for index in range(3)]
    for ours, theirs in zip(made, plain, strict=True):
        assert (ours - theirs).square().mean().sqrt() < 5e-3 * theirs.std()  # LeRobot computes partly in bfloat16


def test_torch_computes_a_later_shape_whose_engine_does_not_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, treatment = Small(), PartInEngine("openvino", "vision")
    run(subject, treatment)
    seconds = treatment.traits().build_s
    subject.rows = 6
    monkeypatch.setattr(room, "available_bytes", lambda: 0)
    assert torch.equal(run(subject, treatment), subject.call("inference")(0))
    monkeypatch.undo()
    assert torch.equal(run(subject, treatment), subject.call("inference")(0)), "not built in the middle of an episode"
    assert treatment.traits().build_s == seconds


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts files in /proc")
def test_building_leaves_no_files_open() -> None:
    run(Small(), PartInEngine("openvino", "vision"))
    before = open_files()
    run(Small(), PartInEngine("openvino", "vision"))
    assert len(open_files() - before) <= 4, open_files() - before


def open_files() -> set[str]:
    """Numbers and paths of open files; no sockets and pipes, which threads of other tests open meanwhile."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed since
            path = os.readlink(f"/proc/self/fd/{number}")
            found |= {f"{number} {path}"} if path.startswith("/") else set()
    return found


IMPORTED_FIRST = """
import os
import openvino
import torch
from strobe.treatments.engines.backends import OpenVINO, convert_to_openvino
OpenVINO().require(torch.device("cpu"))
x = torch.randn(2, 8)
program = torch.export.export(torch.nn.Linear(8, 4), (x,))
convert_to_openvino(program, (x,))
before = len(os.listdir("/proc/self/fd"))
for _ in range(3):
    convert_to_openvino(program, (x,))
assert len(os.listdir("/proc/self/fd")) == before
"""


@pytest.mark.slow("OpenVINO in a process of its own")
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_conversions_leave_no_pipes_open_where_openvino_was_imported_first() -> None:
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    subprocess.run([sys.executable, "-c", IMPORTED_FIRST], check=True)


def test_half_against_bfloat16_is_converted_at_the_border() -> None:
    """An engine in one precision in a policy of another, as in the pi0.5 that failed with Half against BFloat16."""
    torch.manual_seed(0)
    subject = Small(Seeing().bfloat16())
    plain = subject.call("inference")(0)
    here = OpenVINO().precisions(torch.device("cpu"))
    for precision in ("fp32", *(["bf16"] if "bf16" in here else [])):  # not every CPU multiplies bfloat16
        got = run(subject, PartInEngine("openvino", "vision", precision))
        assert got.dtype == torch.bfloat16
        assert torch.allclose(got, plain, atol=0.1)
    # What comes in another dtype than was recorded is converted too.
    treatment = PartInEngine("openvino", "vision", "fp32")
    undo = treatment.apply(subject)  # type: ignore[arg-type]
    vision: Any = subject.module.get_submodule("vision")
    x = torch.randn(5, 8)
    mask = x.sum(-1, keepdim=True) > 0
    with torch.no_grad():  # where gradients are wanted, torch computes
        results = [vision(x.to(dtype), mask=mask, scale=2.0) for dtype in (torch.bfloat16, torch.half)]
    undo()
    assert {result.last_hidden_state.dtype for result in results} == {torch.bfloat16}
    assert torch.allclose(*(result.last_hidden_state for result in results), atol=0.05)


def test_a_built_engine_is_taken_from_the_cache_unless_the_weights_are_others(own_cache: Path) -> None:
    torch.manual_seed(1)
    subject = Small()
    first = PartInEngine("openvino", "vision")
    wanted = run(subject, first)
    second = PartInEngine("openvino", "vision")
    assert torch.equal(run(subject, second), wanted)
    assert (first.traits().from_cache, second.traits().from_cache) == (False, True)
    with torch.no_grad():
        subject.module.get_parameter("vision.project.weight").mul_(-1)
    for treatment in (second, third := PartInEngine("openvino", "vision")):
        assert torch.allclose(run(subject, treatment), subject.call("inference")(0), atol=1e-5)
    assert third.traits().from_cache is True  # what the second one built
    assert not torch.allclose(run(subject, second), wanted, atol=1e-2)
    for kept in own_cache.iterdir():
        kept.write_bytes(b"not an engine")
    fourth = PartInEngine("openvino", "vision")
    assert torch.allclose(run(subject, fourth), subject.call("inference")(0), atol=1e-5)
    assert fourth.traits().from_cache is False


WRONG = {
    "other numbers": torch.randn_like,
    "one NaN": lambda value: torch.where(torch.arange(value.numel()).reshape(value.shape) == 3, torch.nan, value),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_engine_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    build = engine.ENGINES["openvino"]().__class__.build

    def build_wrong_engine(self: Any, *args: Any) -> Any:
        right = build(self, *args)
        return lambda inputs: [WRONG[wrong](v) if v.is_floating_point() else v for v in right(inputs)]

    monkeypatch.setattr("strobe.treatments.engines.backends.OpenVINO.build", build_wrong_engine)
    torch.manual_seed(2)
    subject = Small()
    before = state(subject.module)
    with pytest.raises(UserError, match="differs from torch"):
        run(subject, PartInEngine("openvino", "vision"))
    assert state(subject.module) == before


@pytest.mark.parametrize(("kind", "part", "below"), matrix([("act", "model.encoder", ("bf16",)), ("pi05", VISION, ())]))
def test_real_architectures(kind: str, part: str, below: tuple[str, ...]) -> None:
    subject = load_few_steps(kind)
    before, plain = state(subject.module), subject.call("inference")(0)
    treatments = [*map(Precision, below), PartInEngine("openvino", part)]
    got = run(subject, *treatments)
    assert agree([plain], [got]).cosine > 0.999
    assert got.dtype == plain.dtype
    assert torch.equal(run(subject, *treatments), got)
    assert state(subject.module) == before
    assert torch.equal(subject.call("inference")(0), plain)


@pytest.mark.slow("an engine in a whole comparison")
def test_the_part_is_timed_as_a_whole_and_its_inside_is_told_to_be_unseen() -> None:
    subject = load_few_steps("act")
    able = engine.ENGINES["openvino"]().precisions(torch.device("cpu"))
    precision = "bf16" if "bf16" in able else "fp32"
    variants = [Variant("baseline"), Variant("engine", (PartInEngine("openvino", "model.encoder", precision),))]
    result, _ = compare(subject, variants, "inference", Options(SamplingBudget(iterations=3), depth=2))
    measurement = result.measurement("engine")
    names = [part.name for part in measurement.components]
    assert "encoder" in names
    assert "layer 0" not in [p.name for p in measurement.components if "encoder" in p.path]
    assert measurement.traits.treatments[0].value == "openvino"
    # Its products are those of the part that it stands for, in its own dtype.
    [before], [after] = ([p for p in m.components if p.name == "encoder"] for m in result.measurements)
    assert after.gflop_by_dtype == {{"bf16": "bfloat16", "fp32": "float32"}[precision]: pytest.approx(before.gflop)}
    assert {part.part for part in measurement.limit.parts} >= {"encoder", "other"}
    assert after.peak_bytes is None  # its memory is not
    assert result.comparisons[0].agreement is not None
    assert result.comparisons[0].agreement.cosine > 0.999


REFUSED = {
    "engine=openvno, engine.part=vision": "engine=openvno: did you mean 'openvino'",
    "engine=openvino": "the part is missing",
    "engine=openvino, engine.part=visoin": "no part 'visoin'",
    "engine=openvino, engine.part=vision.*.norm": r"no part 'vision\.\*\.norm'",
    "engine=openvino, engine.part=unused": "'unused' is not called as a module",
    "engine=openvino, engine.part=vision, engine.precision=int8": "unknown precision 'int8'",
    "engine=openvino, engine.part=vision, engine.steps=two": "use each .* or all",
    "engine=openvino, engine.part=vision, engine.steps=all": "leave engine.steps out",
    "engine=tensorrt, engine.part=vision, engine.steps=all": "only openvino supports it",
    "engine=tensorrt, engine.part=vision": "engine=tensorrt needs CUDA",
    "int8=dynamic, engine=openvino, engine.part=wide": "has quantised weights",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_done_is_refused_in_one_line(text: str) -> None:
    subject = Small()
    subject.module.wide = nn.Linear(32, 32)
    before = state(subject.module)
    with pytest.raises(UserError, match=REFUSED[text]) as refused:
        run(subject, *catalogue.compose(catalogue.parse(text)))
    assert "\n" not in str(refused.value)
    assert state(subject.module) == before


@pytest.mark.parametrize(
    ("kind", "part"),
    matrix([("pi05", LANGUAGE), ("pi05", EXPERT), ("pi05", "model"), ("smolvla", "model"), ("smolvla", SMOL)]),
)
def test_parts_with_a_cache_give_the_same_actions(kind: str, part: str) -> None:
    """Two builds of real architectures each, which take most of the 10 s."""
    subject = load_few_steps(kind)
    plain = [run(subject, index=index) for index in range(2)]
    engines = [PartInEngine("openvino", part, "fp32", all_steps=part == "model")]
    spread = torch.stack(plain).std()
    for more in ([], [catalogue.make({"prefix_cache": "static"})]):
        for index in range(2):
            got = run(subject, *more, *engines, index=index)
            assert (got - plain[index]).abs().max() < 0.02 * spread  # the policy computes in bfloat16
    rtc = make_guidance(subject)
    guided = run(subject, rtc)
    assert (run(subject, rtc, *engines) - guided).abs().max() < 0.02 * spread
    assert not torch.equal(guided, plain[0]), "the guidance derives through the step"
    # Prompts of other lengths, of which no engine was built.
    same, built_s = Sameness(subject, count=4), engines[0].traits().build_s
    trimmed = Variant("trimmed", (catalogue.make({"padding": "trimmed"}), *engines))
    agreement = same.check(trimmed, plan(same.count, rtc=same.rtc))
    assert agreement.rms is not None
    assert agreement.rms < 0.02
    assert part == "model" or engines[0].traits().build_s == built_s  # a program is for one config: RTC changed it


def test_parts_with_a_cache_are_candidates_where_they_are_called() -> None:
    entry = catalogue.find_entry("engine")
    found = {
        spec["engine.part"]: entry.parts(load_few_steps("pi05"), spec)
        for spec in entry.candidates(load_few_steps("pi05"))
    }
    assert found == {
        "model": ("prefix KV cache", "vision tower", "denoise step", "action expert"),
        VISION: ("vision tower",),
        LANGUAGE: ("prefix KV cache",),
        EXPERT: ("denoise step", "action expert"),
    }
    first, *others = entry.candidates(load_few_steps("smolvla"))
    assert (first["engine.part"], first["engine.steps"]) == ("model", "all")
    assert {spec["engine.part"] for spec in others} == {f"{SMOL}.vlm.model.vision_model", SMOL}
    parts = {spec["engine.part"] for spec in entry.candidates(load_few_steps("act"))}
    assert parts >= {"model.backbone", "model.encoder"}


@pytest.mark.slow("a whole ACT in OpenVINO")
def test_a_network_that_is_called_as_one_module_is_a_candidate_and_takes_what_it_has_twice_once() -> None:
    """ACT's images are in its batch under two names: as two inputs, one of them would be no input of the engine."""
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    paths = {}
    for kind in ("act", "diffusion"):
        subject = load_tiny_subject(kind)
        paths[kind] = [spec["engine.part"] for spec in ENTRY.candidates(subject)]
    assert paths["act"][0] == "model"
    assert "diffusion" not in paths["diffusion"], "its forward pass is training's"
    subject = load_tiny_subject("act")
    baseline = [subject.chunk(index) for index in range(3)]
    with treat(subject, PartInEngine("openvino", "model", "fp32")):
        for index, wanted in enumerate(baseline):
            torch.testing.assert_close(subject.chunk(index), wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))


def test_a_part_is_read_once_for_all_precisions_and_again_with_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    monkeypatch.setattr(OpenVINO, "precisions", lambda *_: ("fp32", "bf16"))
    read: list[str] = []
    export = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *args, **kwargs: read.append("") or export(*args, **kwargs))
    torch.manual_seed(3)
    subject = Small()
    weight, vision = subject.module.get_parameter("vision.norm.weight"), subject.module.get_submodule("vision")
    for precision, least in (("fp32", 0.999), ("bf16", 0.99)):
        assert agree([run(subject)], [run(subject, PartInEngine("openvino", "vision", precision))]).cosine > least
    assert len(read) == 1
    with torch.no_grad():
        weight.mul_(-1.0)
    assert agree([run(subject)], [run(subject, PartInEngine("openvino", "vision", "fp32"))]).cosine > 0.999
    assert len(read) == 2
    monkeypatch.setattr(vision, "extra_repr", lambda: "treated")  # as what makes its engines faster says
    assert agree([run(subject)], [run(subject, PartInEngine("openvino", "vision", "fp32"))]).cosine > 0.999
    assert len(read) == 3


def test_an_engine_can_be_built_around_another_one() -> None:
    """As a recipe of an earlier version has it, on a machine whose cache is empty."""
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    torch.manual_seed(4)
    subject = Small()
    plain = run(subject)
    both = [PartInEngine("openvino", part, "fp32") for part in ("vision.project", "vision")]
    assert agree([plain], [run(subject, *both)]).cosine > 0.9999


def test_a_part_that_cannot_be_exported_is_a_line_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    part = catalogue.make({"engine": "openvino", "engine.part": "model.qwen.model.model.visual"})
    with pytest.raises(UserError, match=r"cannot be built in openvino: its shapes depend on values of its inputs"):
        run(load_few_steps("vla_jepa"), part)
    assert "def forward" not in capfd.readouterr().err, "torch's graph"


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(UserError, match=r"pip install 'strobe-lab\[openvino\]'"):
        run(Small(), PartInEngine("openvino", "vision"))
    monkeypatch.setitem(__import__("sys").modules, "torchao", None)
    with pytest.raises(UserError, match=r"pip install 'strobe-lab\[quantise\]'"):
        run(Small(), Quantised("int8"))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_tensorrt(precision: str) -> None:
    pytest.importorskip("torch_tensorrt")
    subject = load_subject(PolicyOptions(type="pi05", size="tiny", overrides=["--device=cuda", "--dtype=bfloat16"]))
    plain = subject.call("inference")(0)
    for cached in (False, True):
        treatment = PartInEngine("tensorrt", VISION, precision)
        assert agree([plain], [run(subject, treatment)]).cosine > 0.999
        assert treatment.traits().from_cache is cached
    assert torch.equal(subject.call("inference")(0), plain)


LET_GO = """
import gc, signal, subprocess, threading
from pathlib import Path
import torch
from strobe.treatments.engines.backends import OpenVINO

signal.signal(signal.SIGCHLD, lambda *_: None)  # as torch's loader has one
program = torch.export.export(torch.nn.Linear(64, 64).eval(), (torch.zeros(4, 64),))
calls = [[torch.zeros(4, 64)]]
kept = [OpenVINO().build(OpenVINO().read(program, calls[0]), calls, "fp32", Path("part.blob"))]

def let_go():
    kept.clear()
    gc.collect()

thread = threading.Thread(target=let_go)
thread.start()
thread.join()
held = [bytearray(20_000) for _ in range(2000)]  # whatever was freed is somebody else's now
for _ in range(3):
    subprocess.run(["sleep", "0.02"], check=True)
print("alive")
"""


@pytest.mark.slow("OpenVINO in a process of its own")
def test_an_engine_let_go_on_another_thread_does_not_end_the_process(tmp_path):
    """A process of its own, since it would be killed: on CPUs with AMX by the first child that ends."""
    pytest.importorskip("openvino")
    done = subprocess.run([sys.executable, "-c", LET_GO], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.strip() == "alive"
