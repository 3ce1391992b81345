"""Load a backbone by its options: config, weights, clips."""

from __future__ import annotations

from strobe.lerobot.policies.options import InputOptions, ModelOptions
from strobe.vision import backbones, clips
from strobe.vision.model_subject import ModelSubject


def load_model(
    options: ModelOptions, source: InputOptions | None = None, *, device: str | None = None, seed: int = 0
) -> ModelSubject:
    """Load a backbone's checkpoint, or build its type with random weights, with clips.

    Args:
        source: where the clips come from; synthetic ones by default.
        device: cpu, cuda, cuda:1, mps; None for the CPU.
        seed: seed of weights and clips.

    Raises:
        UserError: a part cannot be loaded, or parts do not fit together.
    """
    source = source or InputOptions()
    size, shape = options.size, {"img_size": options.img_size, "num_frames": options.num_frames}
    config = backbones.build_config(
        path=options.path, kind=options.type, size=size, overrides=options.overrides, **shape
    )
    model = backbones.load(config, path=options.path, size=size, dtype=options.dtype, device=device, seed=seed, **shape)
    if source.video is not None:
        made = clips.from_video(source.video, model.frames)
    elif source.dataset is not None:
        dataset = source.dataset
        made = clips.from_dataset(dataset.root, dataset.repo_id, model.frames, episodes=dataset.episodes)
    else:
        frame = source.image_size or (clips.TINY_FRAME if size == "tiny" else clips.FRAME)
        made = clips.synthetic(model.frames, frame, seed=seed)
    return ModelSubject(model, made, options.predictor)
