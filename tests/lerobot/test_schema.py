"""LeRobot's configs as their source shows them, compared with LeRobot itself: this guards the next version of it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from lerobot.configs import PreTrainedConfig
from lerobot.envs.configs import EnvConfig
from support.suite.places import TESTS

from strobe.core.cli.placeholders import option_names
from strobe.lerobot.policies import lerobot_policies
from strobe.lerobot.schema import registries, shapes, source
from strobe.lerobot.schema.source import UnreadableSourceError
from strobe.simulators import metaworld_state  # which registers its type

FOREIGN = TESTS / "support" / "foreign"
CONFIGS = (
    "lerobot.configs.default:DatasetConfig",
    "lerobot.policies.rtc.configuration_rtc:RTCConfig",
    "lerobot.configs.train:TrainPipelineConfig",
    "lerobot.rollout:RolloutConfig",
)
REGISTRIES: dict[str, Any] = {registries.POLICY: PreTrainedConfig, registries.ENVIRONMENT: EnvConfig}


def lerobots(known: dict[str, Any]) -> dict[str, Any]:
    """Those of LeRobot, of Strobe and of installed plug-ins; tests register others by themselves."""
    packages = ("lerobot", metaworld_state.__name__.partition(".")[0], *registries.plugins())
    return {kind: config for kind, config in known.items() if config.__module__.split(".")[0] in packages}


def names(config: type) -> list[str]:
    return [item.name for item in dataclasses.fields(config)]


@pytest.mark.parametrize("registry", REGISTRIES)
def test_every_type_and_all_its_fields_are_read(registry: str) -> None:
    lerobot_policies.known_types()
    known = lerobots(REGISTRIES[registry].get_known_choices())
    found = registries.choices(registry)
    assert found.keys() == known.keys()
    assert len(found) > 10
    for kind, config in known.items():
        assert list(source.fields(found[kind])) == names(config), kind


@pytest.mark.parametrize("registry", REGISTRIES)
def test_flags_are_those_that_draccus_makes(registry: str) -> None:
    lerobot_policies.known_types()
    for kind, cls in registries.choices(registry).items():
        config = REGISTRIES[registry].get_choice_class(kind)
        said = shapes.options(cls)
        begins = tuple(f"--{name[:-1]}" for name in said if name.endswith(".*"))
        made = {name for name in option_names(config) if not (begins and name.startswith(begins))}
        own = set(names(config))
        # draccus makes of each inner config a flag without the outer one's prefix, too, which does nothing.
        made = {name for name in made if name[2:].partition(".")[0] in own}
        assert {f"--{name}" for name in said if not name.endswith(".*")} >= made, kind


@pytest.mark.parametrize("where", CONFIGS)
def test_other_configs_are_read(where: str) -> None:
    module, _, name = where.partition(":")
    assert list(source.fields(source.find(where))) == names(getattr(importlib.import_module(module), name))


def test_written_defaults_are_lerobot_s() -> None:
    for kind, cls in registries.choices(registries.POLICY).items():
        shape = shapes.shape(cls)
        for item in dataclasses.fields(PreTrainedConfig.get_choice_class(kind)):
            if item.default is dataclasses.MISSING or not item.init:
                continue
            read = shape.__dataclass_fields__[item.name].default_factory()
            if read is shapes.UNREAD:
                continue
            value = getattr(item.default, "value", item.default)
            assert getattr(read, "value", read) == value, f"{kind}.{item.name}"


@pytest.mark.parametrize(
    ("where", "given"),
    [
        (CONFIGS[0], {}),
        (CONFIGS[0], {"repo_id": "a/b", "eval_split": "half"}),
        (CONFIGS[0], {"repo_id": "a/b", "episodes": "[a]"}),
        (CONFIGS[0], {"repo_id": "a/b", "image_transforms.enable": "3"}),
        (CONFIGS[1], {"execution_horizon": "many"}),
        (CONFIGS[1], {"prefix_attention_schedule": "NONE"}),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_in_the_same_words(where: str, given: dict[str, str]) -> None:
    plain = shapes.nest_fields(where, given)
    with pytest.raises(Exception) as real:  # noqa: PT011  # draccus has many
        shapes.build_real(shapes.Request(where, plain, ("x",)))
    with pytest.raises(type(real.value)) as read:
        shapes.build(where, plain, ("x",))
    assert str(read.value) == str(real.value)


def test_what_was_asked_for_becomes_lerobot_s_own() -> None:
    given = shapes.nest_fields(registries.ENVIRONMENT, {"type": "pusht", "fps": "5", "observation_height": "96"})
    shape = shapes.build(registries.ENVIRONMENT, given)
    assert (shape.type, shape.fps, shape.observation_height, shape.task) == ("pusht", 5, 96, "PushT-v0")
    asked = shapes.read_request(shape)
    assert asked is not None
    env = shapes.build_real(asked)
    assert isinstance(env, EnvConfig)
    assert (env.type, env.fps) == ("pusht", 5)


def test_a_plug_in_is_read_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = "lerobot_policy_small_flow" in sys.modules
    monkeypatch.syspath_prepend(str(FOREIGN))
    fields = source.fields(registries.choices(registries.POLICY)["small_flow"])
    assert {"euler_steps", "chunk_size", "device"} <= fields.keys()
    assert ("lerobot_policy_small_flow" in sys.modules) == loaded


@pytest.mark.parametrize(
    "text",
    [
        "PreTrainedConfig.register_subclass(NAME, Config)",
        "@PreTrainedConfig.register_subclass(NAME)\n@dataclass\nclass Other(PreTrainedConfig): ...",
    ],
)
def test_a_registration_that_is_not_written_out_is_not_guessed(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lerobot_policy_odd").mkdir()
    (tmp_path / "lerobot_policy_odd" / "__init__.py").write_text(text)
    info = tmp_path / "lerobot_policy_odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lerobot_policy_odd\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnreadableSourceError):
        registries.choices(registries.POLICY)


def test_a_base_of_which_nothing_is_known_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_config.py").write_text("from somewhere import Base\nclass Config(Base):\n    a: int = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnreadableSourceError, match="Base"):
        source.fields(source.find("odd_config:Config"))


def test_a_module_is_read_again_once_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "changing_config.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, name in enumerate(("first", "second")):
        file.write_text(f"from dataclasses import dataclass\n@dataclass\nclass Config:\n    {name}: int = 1\n")
        os.utime(file, ns=(number, number))
        assert list(source.fields(source.find("changing_config:Config"))) == [name]


@pytest.mark.slow("all of transformers' configurations")
def test_the_types_of_backbones_are_transformers_own() -> None:
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    from strobe.vision import backbones as vision_backbones

    assert registries.all_types() == set(CONFIG_MAPPING_NAMES)
    assert registries.all_types() <= set(CONFIG_MAPPING)
    assert list(registries.vision_types()) == vision_backbones.known_kinds()
    read = 0
    for kind in registries.vision_types():
        with contextlib.suppress(UnreadableSourceError):
            assert registries.config_fields(kind) == set(names(CONFIG_MAPPING[kind])), kind
            read += 1
    assert read >= 0.9 * len(registries.vision_types())


def test_an_import_that_goes_in_a_circle_ends() -> None:
    found = source.Module("odd", Path("odd.py"), {}, {"a": ("odd", "b"), "b": ("odd", "a")})
    with pytest.raises(UnreadableSourceError):
        source.resolve(found, "a")
    assert source.resolve(found, "c") is None
