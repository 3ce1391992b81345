"""Every family's record, on a tiny policy of it: its parts are the whole, its steps are counted, nothing stays on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
import torch
from support.checks.family_checks import part_names, require_parts, require_the_same_actions_under_probes, section_paths
from support.suite.matrix import matrix

from strobe.core.families.capabilities import LiveFields
from strobe.core.subjects.subject import Phase
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject


@dataclass
class Kind:
    """The parts that a family's record must show at the default depth.

    Args:
        inference: parts of it, with a comma between two.
        training: parts of the training forward pass, or none where it cannot be trained here.
        steps: denoising steps of a chunk.
        shape: of a chunk.
        learns: the phase in which ``training`` is looked at.
        flags: of the policy.
        reads: whether other words give other actions; None where it reads none.
    """

    inference: str
    training: str = ""
    steps: int = 0
    shape: tuple[int, int, int] | None = None
    learns: Phase = "training step"
    flags: Iterable[str] = ()
    reads: bool | None = None


ACT = "backbone, image projection, encoder, decoder, action head"
FLOW, JOINT = "vision tower, language embedding", "suffix embedding, joint transformer, action head"
QWEN = "language model, vision tower, language head, action encoder, denoise step, action decoder"
FLORENCE = "image resize, vision tower, projector, language encoder, denoise step"
KINDS = {
    # The first are those that `make test` runs.
    "act": Kind(ACT, f"{ACT}, VAE encoder"),
    "diffusion": Kind("image encoder, denoise step, scheduler step", "image encoder, denoise step", 10),
    "tdmpc": Kind(
        "observation encoder, actor, latent dynamics, value estimate",
        "observation encoder, dynamics and reward, Q ensemble, value head, target encoder", shape=(1, 5, 6)),
    "groot": Kind(
        f"{QWEN}, context self-attention, state encoder", f"{QWEN}, context self-attention", 4,
        learns="training forward", reads=True),
    "eo1": Kind(
        "prefix embedding, vision tower, prefix KV cache, denoise step, action expert, action head",
        "prefix embedding, suffix embedding, vision tower, joint transformer, action head", 10,
        learns="training forward", reads=False),
    "fastwam": Kind(
        "text encoder, VAE encoder, video embedding, prefix KV cache, denoise step",
        "VAE encoder, text encoder, joint transformer", 3,
        learns="training forward", flags=["--num_inference_steps=3"], reads=True),
    "xvla": Kind(FLORENCE, FLORENCE, 10, (1, 32, 6), learns="training forward"),
    "pi0_fast": Kind(
        f"image resize, {FLOW}, detokenise, prefix KV cache, token, token head",
        f"{FLOW}, language model, token head", shape=(1, 50, 6), flags=["--max_decoding_steps=6"]),
    "smolvla": Kind(f"image resize, {FLOW}, prefix KV cache, denoise step, action expert", f"{FLOW}, {JOINT}", 10),
    "pi0": Kind(f"image resize, {FLOW}, prefix KV cache, denoise step, KV cache clone", f"{FLOW}, {JOINT}", 10),
    "pi05": Kind(f"image resize, {FLOW}, prefix KV cache, denoise step, action expert", f"{FLOW}, {JOINT}", 10),
    "vqbet": Kind(
        "image encoder, image projection, state projection, GPT, action head", "VQ-VAE", shape=(1, 5, 6)),
    "multi_task_dit": Kind(
        "vision encoder, text encoder, denoise step, scheduler step", "vision encoder, text encoder, denoise step", 10,
        (1, 24, 6)),
    "gaussian_actor": Kind(
        "image features, encoder, network, mean head, deviation head, distribution, sampling", shape=(1, 1, 6)),
    # VLA-JEPA's default of bfloat16 cannot be trained on a CPU: LeRobot asks there for an autocast to float32.
    "vla_jepa": Kind(
        f"{QWEN}, image and word processor", f"{QWEN}, video encoder, video predictor", 4,
        learns="training forward", flags=["--torch_dtype=float32"], reads=True),
    "evo1": Kind(
        "vision tower, language model, denoise step, cross-attention blocks, action head",
        "vision tower, language model, action encoder, cross-attention blocks, action head", 32,
        learns="training forward", reads=False),
    "molmoact2": Kind(
        "vision backbone, prefix KV cache, context keys and values, timesteps, denoise step",
        "vision backbone, language model, context keys and values, action expert, action head", 10,
        learns="training forward", reads=False),
    "wall_x": Kind(
        "prompt and pixels, vision tower, denoise step, language model, action head",
        "prompt and pixels, vision tower, suffix embedding, language model, words head, action head", 10,
        learns="training forward", reads=False),
    "lingbot_va": Kind(
        "text encoder, VAE encoder, video denoise step, denoise step", steps=3 + 1,  # the last writes the cache
        flags=["--num_inference_steps=2", "--action_num_inference_steps=3"], reads=True),
}  # fmt: skip


@pytest.fixture(scope="module", params=matrix(KINDS, keep=8))
def subject(request: pytest.FixtureRequest) -> PolicySubject:
    flags = ["--device=cpu", *KINDS[request.param].flags]
    return load_subject(PolicyOptions(type=request.param, size="tiny", overrides=flags))


def find_kind(subject: PolicySubject) -> Kind:
    return KINDS[subject.info.kind]


def test_the_parts_of_inference_hold_all_of_its_work(subject: PolicySubject) -> None:
    require_parts(subject, "inference", set(find_kind(subject).inference.split(", ")))


def test_the_parts_of_training_hold_all_of_its_work(subject: PolicySubject) -> None:
    kind = find_kind(subject)
    if kind.training:
        require_parts(subject, kind.learns, set(kind.training.split(", ")))


TOP = {
    "inference": {"preprocessing", "policy", "postprocessing"},
    "training forward": {"preprocessing", "forward"},
    "training step": {"preprocessing", "forward", "backward", "gradient clipping", "optimizer"},
}


@pytest.mark.parametrize("phase", TOP)
def test_the_steps_around_the_policy(subject: PolicySubject, phase: Phase) -> None:
    if phase in ("inference", find_kind(subject).learns) and (phase == "inference" or find_kind(subject).training):
        assert {path[1] for path in section_paths(subject, phase) if len(path) == 2} == TOP[phase]


def test_denoising_steps_are_counted(subject: PolicySubject) -> None:
    steps = find_kind(subject).steps
    assert part_names(subject, "inference").count("denoise step") == steps
    if LiveFields.from_family(subject.family).steps and subject.info.kind != "lingbot_va":
        assert subject.traits("inference", 1).denoising_steps == steps


def test_probes_change_no_action_and_leave_nothing_behind(subject: PolicySubject) -> None:
    before = [(module, set(vars(module))) for module in subject.policy.modules()]
    require_the_same_actions_under_probes(subject)
    assert all(set(vars(module)) == names for module, names in before)
    shape = find_kind(subject).shape
    assert shape is None or subject.chunk(0).shape == shape


def test_deeper_cuts_have_more_parts_and_hold_the_shallower_ones(subject: PolicySubject) -> None:
    names = [{path[-1] for path in section_paths(subject, "inference", depth)} for depth in (1, 2, 3)]
    assert names[0] <= names[1] <= names[2]
    assert names[0] < names[2]


def test_the_words_of_a_task_count_and_are_varied_where_actions_are_compared(subject: PolicySubject) -> None:
    reads = find_kind(subject).reads
    if reads is None:
        return
    assert len({str(observation["task"]) for observation in subject.checks(8).observations}) > 1
    if reads:
        seen = subject.observation(0)
        said = [subject.act(seen | {"task": task}, seed=0) for task in (seen["task"], "wave")]
        assert not torch.equal(*said)
