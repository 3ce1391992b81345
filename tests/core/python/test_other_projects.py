"""Policies of openpi and Isaac-GR00T, known by the names of their classes, have the parts that LeRobot's ports have.

What runs here are stand-ins: small classes of our own with the names of theirs, and a clock of the test's own. The last
test runs openpi's own models, where OPENPI_PYTHON names an interpreter that has them (docs/coming-from/openpi.md).
"""

from __future__ import annotations

import json
import os
import subprocess
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.fakes.sleeper import Clock
from support.suite.places import ROOT
from torch import Tensor, nn

import strobe

OBSERVATION = {"state": torch.ones(1, 3)}
PARTS = {  # level 1, below the call of the model
    "image resize": 1.0,
    "vision tower": 8.0,
    "language embedding": 3.0,
    "prefix KV cache": 20.0,
    "denoise step": 2 * 8.0,
    "denoise step > suffix embedding": 2 * 1.0,
    "denoise step > action expert": 2 * 5.0,
    "denoise step > action head": 2 * 2.0,
}


class Slow(nn.Module):
    """A layer that takes its time by the test's clock."""

    def __init__(self, clock: Clock, ms: float) -> None:
        super().__init__()
        self.clock, self.ms, self.inside = clock, ms, nn.Linear(3, 3)

    def forward(self, x: Any = None, *_: Any, **__: Any) -> Any:
        self.clock.sleep(self.ms / 1e3)
        return x


def holder(**children: nn.Module) -> nn.Module:
    """Return a module with these children that does nothing by itself."""
    module = nn.Module()
    for name, child in children.items():
        module.add_module(name, child)
    return module


class Layer(nn.Module):
    """A block of a transformer: attention and MLP."""

    def __init__(self, clock: Clock, ms: float) -> None:
        super().__init__()
        self.self_attn, self.mlp = Slow(clock, ms), Slow(clock, ms)

    def forward(self, x: Any) -> Any:
        return self.mlp(self.self_attn(x))


class Stack(nn.Module):
    """A transformer: ``layers`` in a row."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class PaliGemmaWithExpertModel(nn.Module):
    """A stand-in with the names of openpi's module of both transformers."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        vision = holder(embeddings=Slow(clock, 2), encoder=Stack(Layer(clock, 1.5), Layer(clock, 1)))
        model = holder(
            vision_tower=holder(vision_model=vision),
            multi_modal_projector=Slow(clock, 1),
            language_model=Stack(Layer(clock, 6), Layer(clock, 4)),
        )
        model.get_submodule("language_model").embed_tokens = Slow(clock, 3)
        self.paligemma = holder(model=model)
        self.gemma_expert = holder(model=Stack(Layer(clock, 1.5), Layer(clock, 1)))

    def embed_image(self, image: Tensor) -> Tensor:
        model: Any = self.paligemma.model
        vision = model.vision_tower.vision_model
        return model.multi_modal_projector(vision.encoder(vision.embeddings(image)))

    def embed_language_tokens(self, tokens: Tensor) -> Tensor:
        model: Any = self.paligemma.model
        return model.language_model.embed_tokens(tokens)

    def forward(self, inputs_embeds: list[Any]) -> Any:
        models: tuple[Any, Any] = (self.paligemma.get_submodule("model.language_model"), self.gemma_expert.model)
        return [model(x) if x is not None else None for model, x in zip(models, inputs_embeds, strict=True)]


class PI0Pytorch(nn.Module):
    """A stand-in with the names of openpi's pi0 and pi0.5."""

    __module__ = "openpi.models_pytorch.pi0_pytorch"

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.paligemma_with_expert = clock, PaliGemmaWithExpertModel(clock)
        self.action_in_proj, self.action_out_proj = Slow(clock, 1), Slow(clock, 2)

    def _preprocess_observation(self, observation: Any, *, train: bool = True) -> Tensor:
        assert not train
        self.clock.sleep(0.001)
        return observation["state"]

    def embed_prefix(self, x: Tensor) -> Tensor:
        return self.paligemma_with_expert.embed_image(x) + self.paligemma_with_expert.embed_language_tokens(x)

    def embed_suffix(self, x: Tensor) -> Tensor:
        return self.action_in_proj(x)

    @torch.no_grad()
    def sample_actions(self, device: str, observation: Any) -> Tensor:
        x = self.embed_prefix(self._preprocess_observation(observation, train=False))
        self.paligemma_with_expert.forward(inputs_embeds=[x, None])
        return self.denoise_step(self.denoise_step(x))

    def denoise_step(self, x: Tensor) -> Tensor:
        _, x = self.paligemma_with_expert.forward(inputs_embeds=[None, self.embed_suffix(x)])
        return self.action_out_proj(x)


class Policy:
    """A stand-in with the names of openpi's policy, around either model."""

    __module__ = "openpi.policies.policy"

    def __init__(self, model: Any, clock: Clock) -> None:
        self._model, self._sample_actions = model, model.sample_actions
        self._input_transform = lambda observation: (clock.sleep(0.004), observation)[1]
        self._output_transform = lambda outputs: (clock.sleep(0.002), outputs)[1]

    def infer(self, obs: dict[str, Any]) -> dict[str, Any]:
        observation = self._input_transform(dict(obs))
        return self._output_transform({"actions": np.asarray(self._sample_actions("cpu", observation))})


def parts(target: Any, given: Any, depth: int = 1) -> dict[str, float]:
    answer = strobe.breakdown(target, given, seconds=0.5, count=False, depth=depth)
    (measurement,) = answer.measurements
    return {" > ".join(part.path): part.summary.median for part in measurement.components if not part.other}


def test_openpis_module_has_the_parts_of_lerobots(clock: Clock):
    times = parts(PI0Pytorch(clock).eval(), ("cpu", OBSERVATION))
    assert times == pytest.approx(PARTS, rel=0.02, abs=0.05)


def test_its_blocks_are_parts_of_the_next_levels(clock: Clock):
    times = parts(PI0Pytorch(clock).eval(), ("cpu", OBSERVATION), depth=3)
    assert times["vision tower > patch embedding"] == pytest.approx(2.0, rel=0.02)
    assert times["vision tower > projector"] == pytest.approx(1.0, rel=0.02)
    assert times["vision tower > block 0 > attention"] == pytest.approx(1.5, rel=0.02)
    assert times["prefix KV cache > layer 1 > MLP"] == pytest.approx(4.0, rel=0.02)
    assert times["denoise step > action expert > layer 0 > attention"] == pytest.approx(2 * 1.5, rel=0.02)


def test_openpis_policy_has_processors_around_them(clock: Clock):
    policy = Policy(PI0Pytorch(clock).eval(), clock)
    times = parts(policy, OBSERVATION)
    inside = {f"policy > {name}": ms for name, ms in PARTS.items()}
    whole = {"preprocessing": 4.0, "policy": 48.0, "postprocessing": 2.0}
    assert times == pytest.approx(inside | whole, rel=0.02, abs=0.05)
    assert "sample_actions" not in vars(policy._model)


def test_a_class_derived_from_it_has_them_too(clock: Clock):
    class MyPi0(PI0Pytorch):
        pass

    assert "vision tower" in parts(MyPi0(clock).eval(), ("cpu", OBSERVATION))


def test_a_class_of_that_name_in_another_module_is_cut_along_its_modules(clock: Clock):
    class PI0Pytorch(globals()["PI0Pytorch"].__base__):
        def __init__(self) -> None:
            super().__init__()
            self.eyes, self.head = Slow(clock, 3), Slow(clock, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.eyes(x))

    assert parts(PI0Pytorch().eval(), torch.ones(3)) == pytest.approx({"eyes": 3.0, "head": 4.0}, rel=0.02)


def test_a_model_without_one_of_the_names_shows_the_others(clock: Clock):
    class Fork(PI0Pytorch):
        def denoise_step(self, x: Tensor) -> Tensor:
            return self.embed_suffix(x)

    model = Fork(clock).eval()
    del model.action_out_proj
    times = parts(model, ("cpu", OBSERVATION))
    assert times["vision tower"] == pytest.approx(8.0, rel=0.02)
    assert "denoise step > action head" not in times


def test_sampling_that_openpi_compiles_is_one_part_with_its_reason(clock: Clock):
    model = PI0Pytorch(clock).eval()
    model.sample_actions = torch.compile(model.sample_actions, backend="eager")
    policy = Policy(model, clock)
    policy._sample_actions = PI0Pytorch.sample_actions.__get__(model)  # the test does not wait for a compiler
    answer = strobe.breakdown(policy, OBSERVATION, seconds=0.2)
    assert "Policy is one part: its _model.sample_actions is compiled by torch.compile" in answer.notes
    assert not answer.measurements[0].components


class Nnx:
    """A stand-in for the base of flax's modules."""

    __module__ = "flax.nnx.module"


class Pi0(Nnx):
    """A stand-in for openpi's pi0 in JAX: it holds no torch module."""

    def sample_actions(self, rng: Any, observation: Any) -> Any:
        return np.ones((1, 50, 7), np.float32)


def test_a_policy_of_jax_is_one_part_with_its_reason(clock: Clock):
    answer = strobe.breakdown(Policy(Pi0(), clock), OBSERVATION, seconds=0.2)
    assert "Policy is one part: its _model is a model of JAX, whose parts are compiled into one program" in answer.notes
    assert not answer.measurements[0].components


class Gr00tN1d7(nn.Module):
    """A stand-in with the names of Isaac-GR00T's N1.7."""

    __module__ = "gr00t.model.gr00t_n1d7.gr00t_n1d7"

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        qwen = holder(visual=Slow(clock, 6), language_model=Slow(clock, 9))
        self.backbone = holder(model=holder(model=qwen, lm_head=Slow(clock, 1)))
        parts = {name: Slow(clock, 1) for name in ("state_encoder", "action_encoder", "action_decoder")}
        self.action_head = holder(model=Slow(clock, 5), vl_self_attention=Slow(clock, 2), **parts)

    def get_action(self, inputs: Any) -> dict[str, Tensor]:
        head: Any = self.action_head
        qwen: Any = self.backbone.model
        x = qwen.lm_head(qwen.model.language_model(qwen.model.visual(inputs["state"])))
        head.state_encoder(head.vl_self_attention(x))
        for _ in range(4):
            x = head.action_decoder(head.model(head.action_encoder(x)))
        return {"action_pred": x}


class Processor:
    """A stand-in for the processor of Isaac-GR00T: called as a function, and it decodes actions."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __call__(self, observation: dict[str, Any]) -> dict[str, Any]:
        self.clock.sleep(0.003)
        return observation

    def decode_action(self, action: Tensor) -> dict[str, Tensor]:
        self.clock.sleep(0.002)
        return {"arm": action}


class Gr00tPolicy:
    """A stand-in with the names of Isaac-GR00T's policy."""

    __module__ = "gr00t.policy.gr00t_policy"

    def __init__(self, clock: Clock) -> None:
        self.model, self.processor = Gr00tN1d7(clock).eval(), Processor(clock)
        self.collate_fn = lambda listed: (clock.sleep(0.001), SimpleNamespace(inputs=listed[0]))[1]

    def get_action(self, observation: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        inputs = self.collate_fn([self.processor(observation)]).inputs
        return self.processor.decode_action(self.model.get_action(inputs)["action_pred"]), {}


def test_gr00ts_policy_has_the_parts_of_lerobots(clock: Clock):
    times = parts(Gr00tPolicy(clock), OBSERVATION)
    assert times == pytest.approx(
        {
            "preprocessing": 3.0, "collation": 1.0, "policy": 47.0, "policy > vision tower": 6.0,
            "policy > language model": 9.0, "policy > language head": 1.0, "policy > context self-attention": 2.0,
            "policy > state encoder": 1.0, "policy > action encoder": 4.0, "policy > denoise step": 20.0,
            "policy > action decoder": 4.0, "postprocessing": 2.0,
        },
        rel=0.02,
        abs=0.05,
    )  # fmt: skip
    assert "__call__" in vars(Processor)
    assert not hasattr(Processor.__call__, "__wrapped__")


# Runs in openpi's environment, with the folder of the benchmarks and the version → the parts, as a line of JSON.
REAL = """
import json, sys
import numpy as np
sys.path.append(sys.argv[1])
from with_openpi.worker import Worker, fit_lerobot
fit_lerobot()
gemma = {"depth": 1, "num_heads": 8, "num_kv_heads": 1, "head_dim": 8}
vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
sizes = {
    "vocabulary": 64,
    "vision": {**vision, "image_size": 28, "projection_dim": 64},
    "gemma_2b": {**gemma, "width": 64, "mlp_dim": 64},
    "gemma_300m": {**gemma, "width": 32, "mlp_dim": 64},
}
worker = Worker()
worker.build(sizes, "float32", 28, "", sys.argv[2] == "pi05")
image, tokens, mask = np.zeros((1, 3, 28, 28), np.float32), np.zeros((1, 8), np.int64), np.ones((1, 8), bool)
worker.observe([image] * 3, tokens, mask, np.zeros((1, 50, 32), np.float32))
print(json.dumps(list(worker.parts(0.3))))
"""


@pytest.mark.skipif("OPENPI_PYTHON" not in os.environ, reason="OPENPI_PYTHON names no interpreter with openpi")
@pytest.mark.parametrize("version", ["pi0", "pi05"])
def test_openpis_own_models_have_these_parts(version: str):
    root = ROOT
    command = [os.environ["OPENPI_PYTHON"], "-c", REAL, str(root / "benchmarks"), version]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert set(PARTS) <= set(json.loads(ended.stdout.splitlines()[-1]))
