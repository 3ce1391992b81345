"""One call from what the user named to a subject: config, inputs, weights, processors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from strobe.subjects import inputs, policies
from strobe.subjects.policy_subject import PolicySubject


def load_subject(
    *,
    path: str | None = None,
    policy_type: str | None = None,
    size: Literal["full", "tiny"] = "full",
    overrides: Sequence[str] = (),
    dataset: Any = None,
    env: Any = None,
    image_size: tuple[int, int] | None = None,
    cameras: int | None = None,
    seed: int = 0,
    rename: dict[str, str] | None = None,
) -> PolicySubject:
    """A checkpoint (``path``, a folder or a Hub id) or a type with random weights, fed from where the user said.

    Args:
        overrides: settings of the policy's config, ``--name=value`` as on LeRobot's command line.
        dataset: LeRobot's ``DatasetConfig`` (its ``root`` and ``repo_id`` count), or None.
        env: LeRobot's ``EnvConfig``, or None; without either the inputs are synthetic.
        image_size, cameras: height and width, and number, of synthetic cameras; None for the usual.
        rename: names in the inputs → names that the policy knows.

    Raises:
        UserError: whatever of it cannot be had or does not fit together.
    """
    if path is not None:
        config = policies.config_from_path(path, overrides)
    else:
        config = policies.config_from_type(policy_type or "", overrides)
    if dataset is not None:
        fed = inputs.from_dataset(config, dataset.root, dataset.repo_id, seed=seed)
    elif env is not None:
        fed = inputs.from_env(config, env, seed=seed)
    else:
        fed = inputs.synthetic(config, tiny=size == "tiny", image_size=image_size, cameras=cameras, seed=seed)
    return PolicySubject(policies.load(config, fed, size=size, seed=seed, rename=rename), fed, seed)
