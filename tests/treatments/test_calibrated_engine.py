"""A part in an int8 engine: close to torch's, calibrated on the observations, and kept under their name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.measure.agreement import agree
from strobe.core.results.recipe import Recipe
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.ladder.candidates import together, treatment_slot
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.treatments.engines import backends
from strobe.treatments.engines.backends import engines_folder

pytestmark = pytest.mark.slow("NNCF calibrates for real")

BACKBONE = "model.backbone"
ENCODER = "model.encoder"  # its calibration takes a second, the backbone's ten


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STROBE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield engines_folder()


def load_fed_act(fed: Any = "made up") -> Any:
    subject: Any = load_tiny_subject("act", cameras=1)
    subject.inputs = replace(subject.inputs, kind=fed)
    return subject


def part(path: str = BACKBONE) -> Any:
    return catalogue.make({"int8_engine": "openvino", "int8_engine.part": path})


def run(subject: Any, *treatments: Any, index: int = 0) -> Tensor:
    with treat(subject, Variant("v", treatments)):
        return subject.call("inference")(index)


def test_it_is_close_to_torchs_and_comes_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROBE_CACHE", str(tmp_path))
    subject = load_fed_act()
    plain = [run(subject, index=index) for index in range(3)]
    first = part()
    got = [run(subject, first, index=index) for index in range(3)]
    moved = [agree([a], [b]).cosine for a, b in zip(plain, got, strict=True)]
    assert all(cosine > 0.99 for cosine in moved)
    assert not torch.equal(plain[0], got[0]), "its products are in 8 bits"
    assert torch.equal(run(subject), plain[0])
    assert (first.effect, first.dtypes, first.traits().from_cache) == ("lossy", ("int8",), False)
    again = part()
    assert torch.equal(run(subject, again), got[0])
    assert again.traits().from_cache is True


def test_its_scales_are_of_all_recorded_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Any]] = []

    def watching(model: Any, calls: Any) -> Any:
        seen.append(calls)
        raise UserError("it was seen what it is calibrated on")

    monkeypatch.setattr("strobe.treatments.engines.backends.quantize_calibrated", watching)
    subject = load_subject(
        PolicyOptions(type="diffusion", size="tiny", overrides=["--num_inference_steps=2"]), InputOptions(cameras=1)
    )
    with pytest.raises(UserError, match="it was seen"):
        run(subject, part("diffusion.unet"))
    [calls] = seen
    assert len(calls) == 8, "2 denoising steps of 4 observations"
    assert len({float(call[0].sum()) for call in calls}) == 8


def test_each_data_set_has_an_engine_of_its_own_and_a_robot_takes_none_of_made_up_pictures(own_cache: Path) -> None:
    made_up, recorded, robot = (load_fed_act(), load_fed_act("data"), load_fed_act("pending"))
    for one in (recorded, robot):
        one.policy.load_state_dict(made_up.policy.state_dict())
    run(made_up, part(ENCODER))
    with pytest.raises(
        UserError, match=r"calibrated on observations, and this machine has no such engine.*--dataset.root"
    ):
        run(robot, part(ENCODER))
    for name in recorded.observation(0):
        if name.startswith("observation.images"):
            recorded.inputs.observations = [
                one | {name: 0.2 * one[name]} for one in recorded.inputs.observations
            ]  # a dark room
    of_data = part(ENCODER)
    expected = run(recorded, of_data)
    kept = {one.name.split(".", 1)[1] for one in own_cache.iterdir()}
    assert kept >= {"made-up.blob", f"{recorded.input_source.digest}.blob"}
    taken = part(ENCODER)
    run(robot, taken)
    assert taken.traits().from_cache is True
    robot.inputs = replace(robot.inputs, observations=recorded.inputs.observations)
    assert torch.equal(run(robot, taken), expected), "the very engine that was measured"


def test_a_recipe_is_refused_in_a_line_where_nothing_was_calibrated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STROBE_CACHE", str(tmp_path))
    from strobe.deploy.checking import apply_checked_recipe

    subject = load_fed_act("pending")
    before = run(subject)
    recipe = Recipe(policy="act", treatments=[{"int8_engine": "openvino", "int8_engine.part": BACKBONE}])
    with pytest.raises(UserError, match=r"step 1 \(int8_engine=openvino.*calibrated on observations"):
        apply_checked_recipe(subject, recipe, "r", seconds=0.1)
    assert torch.equal(run(subject), before)


def test_shapes_that_no_observation_had_are_torchs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROBE_CACHE", str(tmp_path))
    monkeypatch.setattr(backends, "quantize_calibrated", lambda model, calls: model)  # seconds, and no part of this
    subject = load_fed_act()
    treatment = part()
    with treat(subject, treatment):
        backbone = subject.module.get_submodule(BACKBONE)
        image = torch.rand(1, 3, 96, 64)
        with torch.no_grad():
            got = backbone(image)["feature_map"]
    with torch.no_grad():
        assert torch.equal(got, backbone(image)["feature_map"])


def test_it_takes_the_place_of_an_engine_of_the_same_part() -> None:
    specs = catalogue.parse("channels_last=true, engine=openvino, engine.part=model.backbone, engine.precision=bf16")
    [added] = catalogue.parse("int8_engine=openvino, int8_engine.part=model.backbone")
    assert treatment_slot(added) == ("engine", BACKBONE)
    assert together(specs, (added,)) == (specs[0], added)
    entry = catalogue.find_entry("int8_engine")
    specs = entry.candidates(load_fed_act())
    assert {spec["int8_engine.part"] for spec in specs} >= {BACKBONE, "model.encoder"}
    assert all(entry.parts(load_fed_act(), spec) for spec in specs)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("int8_engine=tensorrt, int8_engine.part=model.backbone", "only openvino supports it"),
        ("int8_engine=openvino", "the part is missing, such as int8_engine.part="),
    ],
)
def test_wrong_words_are_a_line(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        catalogue.compose(catalogue.parse(text))


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "find_spec", lambda _: None)
    subject = load_fed_act()
    assert catalogue.find_entry("int8_engine").candidates(subject) == []
    with pytest.raises(UserError, match=r"int8_engine needs a package: .*openvino"):
        run(subject, part())


@pytest.mark.parametrize(("faster", "rest"), [(True, "bf16"), (False, "f32")])
def test_what_stays_floating_is_in_the_dtype_that_this_machine_is_faster_in(
    faster: bool, rest: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STROBE_CACHE", str(tmp_path))
    monkeypatch.setattr(backends, "quantize_calibrated", lambda model, calls: model)  # its scales are no part of this
    monkeypatch.setattr(backends, "faster_in_bfloat16", lambda: faster)
    monkeypatch.setattr(backends.OpenVINO, "precisions", lambda self, device: ("fp32", "bf16", "int8"))
    asked, core = list[str](), backends._core()

    class Core:
        def compile_model(self, model: Any, device: str, options: dict[str, Any]) -> Any:
            asked.append(options["INFERENCE_PRECISION_HINT"])
            return core.compile_model(model, device, options)

    monkeypatch.setattr(backends, "_core", Core)
    subject = load_fed_act()
    run(subject, part(ENCODER))
    assert asked == [rest]
    (file,) = engines_folder().iterdir()
    monkeypatch.setattr(backends, "faster_in_bfloat16", lambda: not faster)
    run(subject, part(ENCODER))
    assert len(list(engines_folder().iterdir())) == 2, f"{file.name} is of another machine"
    monkeypatch.setattr(backends, "faster_in_bfloat16", lambda: pytest.fail("a robot's start need not wait for this"))
    backends.OpenVINO().versions(torch.device("cpu"), "bf16")
