"""Load a policy by its options: config, inputs, weights, processors."""

from __future__ import annotations

from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject


def load_subject(policy: PolicyOptions, source: InputOptions | None = None, *, seed: int = 0) -> PolicySubject:
    """Load a policy's checkpoint, or build its type with random weights, with inputs.

    Args:
        source: where the inputs come from; synthetic ones by default.
        seed: seed of weights, inputs and noise.

    Raises:
        UserError: a part cannot be loaded, or parts do not fit together.
    """
    options = source or InputOptions()
    dataset, env, rename = options.dataset, options.env, options.rename or None
    if policy.path is not None:
        config = lerobot_policies.config_from_path(policy.path, policy.overrides)
    else:
        config = lerobot_policies.config_from_type(policy.type or "", policy.overrides)
    if dataset is not None:
        made = inputs.from_dataset(
            config,
            dataset.root,
            dataset.repo_id,
            episodes=dataset.episodes,
            video_backend=dataset.video_backend,
            seed=seed,
        )
    elif env is not None:
        made = inputs.from_env(config, env, seed=seed)
    else:
        made = inputs.synthetic(
            config,
            tiny=policy.size == "tiny",
            image_size=options.image_size,
            cameras=options.cameras,
            vectors=options.vectors,
            seed=seed,
        )
    loaded = lerobot_policies.load(config, made, size=policy.size, seed=seed, rename=rename)
    if dataset is not None and env is not None:
        loaded.notes += lerobot_policies.check_features(config, inputs.from_env(config, env, seed=seed), rename)
    return PolicySubject(loaded, made, seed)
