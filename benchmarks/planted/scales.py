"""Faults that a wrong ruler hides: each passes where σ is not that of the actions as the policy gives them.

The policies are tiny, with random weights. Each stands on statistics that data sets and checkpoints have had: a
dimension in far larger units than the others, a number that is infinite, one outlier, or keys that LeRobot does not
look under. Each fault is one that the default guard refuses where σ is right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from lerobot.configs import FeatureType, NormalizationMode, PolicyFeature
from lerobot.utils.constants import ACTION
from planted.faults import Planted, plant_in_output
from torch import Tensor

from strobe.core.measure.agreement import agree
from strobe.core.measure.guard import Guards
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.action_scale import measure_action_scale
from strobe.lerobot.policies.policy_subject import PolicySubject

WIDTH = 7
INF = float("inf")
PREFIX = "so100.buffer."  # of the statistics' names in a checkpoint that was trained on several data sets


def cases() -> list[tuple[str, Callable[[], PolicySubject], Planted]]:
    """What hides the fault and which it is, how the subject is made, and the fault as a treatment."""
    return [
        ("one dimension of σ 10⁵: six joints inverted", one_huge,
         _plant_rounding(lambda chunk: chunk * _signs(range(6)))),
        ("a gripper in metres beside degrees: 40 mm off", metres,
         _plant_rounding(lambda chunk: chunk + _dimension_offset(6, 0.04))),
        ("one infinite number: a dimension inverted", infinite, _plant_rounding(lambda chunk: chunk * _signs([0]))),
        ("an outlier in min and max: a joint inverted", outlier, _plant_rounding(_inverted_about_its_mean)),
        ("statistics under another name: int8's error", inert, _plant_rounding(_round_like_int8)),
        ("trained on a range with an outlier: a joint inverted", narrow, _plant_rounding(_inverted_about_its_mean)),
    ]  # fmt: skip


def resting(tries: int) -> list[dict[str, float]]:
    """What the guard says of a dimension that moves by ``rests`` of its σ in the observations, in shares of ``tries``.

    ``rounding`` is the RMS error, in σ, of a treatment that does nothing else wrong (``sound``), of one that holds the
    dimension at its mean (``held``), and of one that inverts it (``inverted``).
    """
    guard, random = Guards().strictest_guard(["rounding"]), torch.Generator().manual_seed(0)
    step = SimpleNamespace(stats={ACTION: {"mean": [0.0], "std": [1.0], "min": [-3.0], "max": [3.0]}})
    found = []
    for rests, rounding in itertools.product((1.0, 0.1, 0.02, 0.01), (0.002, 0.005)):
        refused = {"sound": 0, "held": 0, "inverted": 0}
        for _ in range(tries):
            before = [rests * torch.randn(50, 1, generator=random) for _ in range(16)]
            scale = measure_action_scale(SimpleNamespace(steps=[step]), {}, None, "", before)
            for name, sign in zip(refused, (1.0, 0.0, -1.0), strict=True):
                after = [sign * chunk + rounding * torch.randn(50, 1, generator=random) for chunk in before]
                refused[name] += guard.judge(agree(before, after, scale)).outcome != "held"
        shares = {name: count / tries for name, count in refused.items()}
        found.append({"rests": rests, "rounding": rounding, **shares})
    return found


def one_huge() -> PolicySubject:
    """Joints in radians beside a dimension that counts to some hundred thousand."""
    return _subject("pi05", [_spread_over(1.0)] * 6 + [_spread_over(2e5)])


def metres() -> PolicySubject:
    """Joints in degrees beside fingers in metres."""
    return _subject("pi05", [_spread_over(100.0)] * 6 + [_spread_over(0.008)])


def infinite() -> PolicySubject:
    """Steps in metres, and one standard deviation that is infinite."""
    return _subject("pi05", [_spread_over(0.005)] * 6 + [{**_spread_over(0.005), "std": INF}])


def outlier() -> PolicySubject:
    """Joints in degrees whose statistics lack a standard deviation, and one that was read wrong once."""
    plain = {key: value for key, value in _spread_over(100.0).items() if key != "std"}
    return _subject("pi05", [{**plain, "max": 1e6}] + [plain] * 6)


def narrow() -> PolicySubject:
    """A policy that was trained on a range with an outlier in it: it moves its first joint in a small part of that."""
    plain = {key: value for key, value in _spread_over(100.0).items() if key in ("min", "max")}
    subject = _subject("act", [{**plain, "max": 1e6}] + [plain] * 6, NormalizationMode.MIN_MAX)
    policy: Any = subject.policy
    head = policy.model.action_head
    with torch.no_grad():
        head.weight[0] *= 1e-3
        head.bias[0] = -1 + 2e-4
    return subject


def inert() -> PolicySubject:
    """A checkpoint that has its statistics under another name, so that LeRobot leaves the actions normalised."""
    subject = _subject("act", [_spread_over(100.0)] * WIDTH)
    for step in (*subject.loaded.preprocessor.steps, *subject.loaded.postprocessor.steps):
        if getattr(step, "stats", None):
            step.stats = {f"{PREFIX}{key}": value for key, value in step.stats.items()}
            step.to()
    return subject


def _subject(kind: str, action: Sequence[Mapping[str, float]], mode: NormalizationMode | None = None) -> PolicySubject:
    """A tiny policy of random weights, whose action has these statistics, dimension by dimension."""
    config: Any = lerobot_policies.config_from_type(kind, ["--device=cpu"])
    if kind == "pi05":
        config.num_inference_steps = 3
    if mode is not None:
        config.normalization_mapping["ACTION"] = mode
    config.output_features = {ACTION: PolicyFeature(FeatureType.ACTION, (WIDTH,))}
    fed = inputs.synthetic(config, tiny=True)
    fed.stats[ACTION] = {key: torch.tensor([one[key] for one in action]) for key in action[0]}
    return PolicySubject(lerobot_policies.load(config, fed, size="tiny"), fed)


def _spread_over(most: float) -> dict[str, float]:
    """Statistics of values that lie evenly between −``most`` and ``most``."""
    return {"min": -most, "max": most, "mean": 0.0, "std": most / 3**0.5, "q01": -0.98 * most, "q99": 0.98 * most}


def _plant_rounding(change: Callable[[Tensor], Tensor]) -> Planted:
    return Planted("", "rounding", plant_in_output(lambda chunk, _: change(chunk)))


def _signs(dimensions: Sequence[int]) -> Tensor:
    signs = torch.ones(WIDTH)
    signs[list(dimensions)] = -1
    return signs


def _dimension_offset(dimension: int, by: float) -> Tensor:
    moved = torch.zeros(WIDTH)
    moved[dimension] = by
    return moved


def _inverted_about_its_mean(chunk: Tensor) -> Tensor:
    first = chunk[..., :1]
    return torch.cat([2 * first.mean(dim=-2, keepdim=True) - first, chunk[..., 1:]], dim=-1)


def _round_like_int8(chunk: Tensor) -> Tensor:
    """Errors as int8 makes them in a policy's own, normalised numbers: 0.05 of their spread."""
    return chunk + 0.05 * torch.randn(chunk.shape, generator=torch.Generator().manual_seed(0))
