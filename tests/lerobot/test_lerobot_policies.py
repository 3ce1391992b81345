"""Policies load at tiny size from a type and from a checkpoint, and run on their inputs."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from support.builders.tiny_policies import KINDS, build

from strobe.core.demo import CHECKPOINT
from strobe.core.errors import UserError
from strobe.core.families import registry
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.build import shrink


def chunk(loaded, observation):
    torch.manual_seed(0)
    with torch.no_grad():
        return loaded.policy.predict_action_chunk(loaded.preprocessor(dict(observation)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tiny_policy_acts_and_learns(kind: str) -> None:
    config, made, loaded = build(kind)
    assert not loaded.policy.training
    actions = chunk(loaded, made.observations[0])
    steps = config.n_action_steps if kind == "diffusion" else config.chunk_size
    assert actions.shape == (1, steps, 6)
    assert torch.isfinite(loaded.postprocessor(actions)).all()
    loaded.policy.train()
    loss, _ = loaded.policy.forward(loaded.preprocessor(made.batch(2)))
    loss.backward()
    assert torch.isfinite(loss)
    info = loaded.info
    assert info.parameters == sum(info.dtypes.values()) > 0
    assert (info.kind, info.size, info.source) == (kind, "tiny", "random weights")
    assert bool(info.stand_ins) == (kind in ("smolvla", "pi0", "pi05"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_policy_acts_the_same(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, made, first = build(kind)
    save(first, tmp_path)
    config = lerobot_policies.config_from_path(tmp_path, ["--device=cpu"])
    again = lerobot_policies.load(config, made, size="tiny", seed=7)
    assert again.info.source == str(tmp_path)
    for observation in made.observations[:2]:
        assert torch.equal(chunk(first, observation), chunk(again, observation))
    assert capfd.readouterr() == ("", "")


def test_reading_a_config_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config: Any = lerobot_policies.config_from_path(CHECKPOINT, ["--device=cpu", "--n_action_steps=5"])
    assert (config.n_action_steps, config.chunk_size) == (5, 20)
    with pytest.raises(UserError, match="many"):
        lerobot_policies.config_from_path(CHECKPOINT, ["--chunk_size=many"])
    assert not list(tmp_path.iterdir())


def save(loaded, folder: Path) -> None:
    loaded.policy.save_pretrained(folder)
    loaded.preprocessor.save_pretrained(folder)
    loaded.postprocessor.save_pretrained(folder)


@pytest.mark.parametrize(("kind", "compilable"), [("act", False), ("smolvla", True)])
def test_the_facts_that_advice_asks_for_are_written(kind: str, compilable: bool) -> None:
    found = lerobot_policies.facts_of_type(lerobot_policies.config_from_type(kind))
    assert found["compilable"] == compilable


def test_the_seed_decides_the_weights() -> None:
    first, again, other = (build("act", seed=s)[2].policy.state_dict() for s in (1, 1, 2))
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not all(torch.equal(first[k], other[k]) for k in first)


def test_overrides_reach_the_config() -> None:
    config, _, loaded = build("pi05", "--num_inference_steps=3", "--rtc_config.enabled=true")
    assert config.num_inference_steps == 3  # pyright: ignore[reportAttributeAccessIssue]
    assert loaded.policy._rtc_enabled()  # pyright: ignore[reportCallIssue]


def test_any_other_registered_policy_loads(tmp_path: Path) -> None:
    config = lerobot_policies.config_from_type("vqbet", ["--device=cpu", "--crop_shape=null"])
    config.input_features = {
        "observation.image": PolicyFeature(FeatureType.VISUAL, (3, 96, 96)),
        "observation.state": PolicyFeature(FeatureType.STATE, (2,)),
    }
    config.output_features = {"action": PolicyFeature(FeatureType.ACTION, (2,))}
    loaded = lerobot_policies.load(config, inputs.synthetic(config))
    assert loaded.info.kind == "vqbet"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lerobot_policies.config_from_type("difusion"), "did you mean 'diffusion'"),
        (lambda: lerobot_policies.config_from_type("act", ["--chunksize=3"]), "did you mean 'chunk_size'"),
        (lambda: lerobot_policies.config_from_type("act", ["--chunk_size=many"]), "chunk_size|many"),
        (lambda: lerobot_policies.config_from_type("act", ["--chunk_size"]), "--name=value"),
        (lambda: lerobot_policies.config_from_type("act", ["--n_action_steps=1000"]), "chunk"),
        (lambda: lerobot_policies.config_from_type("act", ["--device=cuda:77"]), "cuda"),
        (lambda: lerobot_policies.config_from_type("act", ["--device=gpu"]), "no device 'gpu'"),
        (lambda: lerobot_policies.config_from_path("/nowhere/at/all"), "no folder /nowhere/at/all"),
        (lambda: lerobot_policies.config_from_path("some/policy"), "Hub cannot be reached"),
        (lambda: build("strange"), "no policy type 'strange'"),
    ],
)
def test_a_mistake_is_one_clear_line(call, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_type_without_a_tiny_size_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert registry.find_family("vqbet") is not None
    monkeypatch.delitem(registry.records(), "vqbet")  # as a type that has no record
    with pytest.raises(UserError, match=r"policy\.size=tiny is not available for 'vqbet', only for act, "):
        build("vqbet")


@pytest.fixture(scope="module", params=["act", "pi05"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    _, made, loaded = build(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    save(loaded, folder)
    return folder, made


def spoil(checkpoint, tmp_path: Path, change) -> tuple[Path, inputs.Inputs]:
    folder, made = checkpoint
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    change(tmp_path)
    return tmp_path, made


def drop_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights[sorted(weights)[0]]
    save_file(weights, folder / "model.safetensors")


def reshape_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    name = sorted(weights)[0]
    weights[name] = torch.zeros(3)
    save_file(weights, folder / "model.safetensors")


def unknown_type(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"type": "p105"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda f: (f / "config.json").write_text("{not json"), "config.json cannot be read"),
        (lambda f: (f / "model.safetensors").write_bytes(b"junk"), "do not fit"),
        (lambda f: (f / "policy_preprocessor.json").unlink(), "policy_preprocessor.json"),
        (unknown_type, "unknown type 'p105'"),
        (drop_weight, "1 weight is missing"),
        (reshape_weight, "size mismatch"),
    ],
)
def test_a_broken_checkpoint_is_named(checkpoint, tmp_path: Path, change, message: str) -> None:
    folder, made = spoil(checkpoint, tmp_path, change)
    with pytest.raises(UserError, match=message) as caught:
        lerobot_policies.load(lerobot_policies.config_from_path(folder, ["--device=cpu"]), made, size="tiny")
    assert "\n" not in str(caught.value)


def remove_tokenizer(checkpoint: Path) -> None:
    """Take away what LeRobot after 0.6.1 saves beside the weights, so that the tokenizer must come from the Hub."""
    shutil.rmtree(checkpoint / "tokenizer", ignore_errors=True)
    file = checkpoint / "policy_preprocessor.json"
    content = json.loads(file.read_text())
    for step in content["steps"]:
        if step["registry_name"] == "tokenizer_processor":
            step.pop("artifacts", None)
            step["config"]["tokenizer_name"] = "google/paligemma-3b-pt-224"
    file.write_text(json.dumps(content))


def test_real_weights_do_not_get_a_stand_in_tokenizer(tmp_path: Path) -> None:
    from strobe.lerobot.policies.standins import stand_ins

    _, made, loaded = build("pi05")
    save(loaded, tmp_path)
    remove_tokenizer(tmp_path)
    config = lerobot_policies.config_from_path(tmp_path, ["--device=cpu"])
    wanted = pytest.raises(UserError, match="the tokenizer 'google/paligemma")
    with wanted as caught, stand_ins("pi05", random_weights=False), lerobot_policies.convert_errors("pi05"):
        lerobot_policies._processors(config, made)
    assert "\n" not in str(caught.value)


def change_features(made: inputs.Inputs, **features: PolicyFeature | None) -> inputs.Inputs:
    merged = made.features | {k.replace("__", "."): v for k, v in features.items()}
    return inputs.Inputs(
        made.description,
        made.observations,
        {k: v for k, v in merged.items() if v is not None},
        made.stats,
        made.meta,
        made.make_batch,
        made.make_checks,
    )


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"observation__images__wrist": None}, "the policy needs 'observation.images.wrist', which"),
        ({"observation__state": PolicyFeature(FeatureType.STATE, (9,))}, "'observation.state': .* 6 .* 9"),
        ({"action": PolicyFeature(FeatureType.ACTION, (7,))}, "'action': .* 6 .* 7"),
        ({"observation__images__front": PolicyFeature(FeatureType.VISUAL, (1, 64, 64))}, "channels"),
    ],
)
def test_inputs_that_do_not_match_are_named(tmp_path: Path, features, message: str) -> None:
    _, made, loaded = build("act")
    save(loaded, tmp_path)
    remove_tokenizer(tmp_path)
    config = lerobot_policies.config_from_path(tmp_path, ["--device=cpu"])
    with pytest.raises(UserError, match=message):
        lerobot_policies.load(config, change_features(made, **features), size="tiny")


def test_rename_maps_the_inputs_names(tmp_path: Path) -> None:
    _, made, loaded = build("act")
    save(loaded, tmp_path)
    remove_tokenizer(tmp_path)
    config = lerobot_policies.config_from_path(tmp_path, ["--device=cpu"])
    top = change_features(
        made, observation__images__front=None, observation__images__top=made.features["observation.images.front"]
    )
    name = {"observation.images.top": "observation.images.front"}
    again = lerobot_policies.load(config, top, size="tiny", rename=name)
    observation = dict(made.observations[0])
    observation["observation.images.top"] = observation.pop("observation.images.front")
    assert torch.equal(chunk(again, observation), chunk(loaded, made.observations[0]))


def test_a_type_that_nobody_knows_is_shrunk_as_the_one_whose_config_it_extends(monkeypatch) -> None:
    @dataclass
    class Extended(ACTConfig):
        @property
        def type(self) -> str:
            return "extended"

    config = Extended(device="cpu")
    shrink(config)
    assert config.dim_model == 64

    strange: Any = SimpleNamespace(type="strange")
    with pytest.raises(UserError, match=r"policy\.size=tiny is not available for 'strange'"):
        shrink(strange)


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
@pytest.mark.parametrize(("size", "width"), [("full", 2048), ("tiny", 64)])
def test_only_a_tiny_policy_is_built_around_a_tiny_backbone(monkeypatch, kind, size, width):
    import importlib

    modeling = importlib.import_module(f"lerobot.policies.{kind}.modeling_{kind}")
    seen = []

    class Enough(BaseException):
        """Passes where errors become lines."""

    def build(*_, **__):
        seen.append(modeling.get_gemma_config("gemma_2b").width)
        raise Enough

    monkeypatch.setattr(lerobot_policies, "build_fast", build)
    config = lerobot_policies.config_from_type(kind, ["--device=cpu"])
    with pytest.raises(Enough):
        lerobot_policies.load(config, inputs.synthetic(config), size=size)
    assert seen == [width]
