"""From flags to what is measured and how: the policy or model with its inputs, its recipe, the options."""

from __future__ import annotations

import atexit
import gc
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.cli.flags import RunConfig, SubjectFlags, size_of
from strobe.cli.late import realise
from strobe.cli.live import Live, importing
from strobe.cli.parse import ModelFlags
from strobe.policies.folders import check_dataset

if TYPE_CHECKING:
    from strobe.policies.subject import Subject
    from strobe.studies.measuring import Options

NO_LIMIT_S = 1e9


def begin(flags: SubjectFlags, config: RunConfig, live: Live) -> None:
    """Say what will be loaded, before the seconds that its imports take; then make LeRobot's configs of the flags.

    Raises:
        UserError: no dataset where one is named, or a value that LeRobot refuses.
    """
    if config.dataset is not None and config.dataset.root is not None:
        check_dataset(config.dataset.root)
    # At its end Python would look at all objects once more, which takes a second or two. Commands that run loops of
    # LeRobot's need that: servers and threads are taken down by it.
    atexit.register(gc.freeze)
    live.stage(f"importing what {flags.path or flags.type} needs")
    with importing(told=True):
        from strobe.policies import loading  # noqa: F401
        from strobe.studies import measuring  # noqa: F401
    realise(config)


def load_subject(flags: SubjectFlags, config: RunConfig, live: Live) -> Subject:
    """Build or load the policy or the model, with inputs. Raises UserError."""
    import torch

    from strobe.policies import loading

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    live.stage(f"loading {flags.path or flags.type}")
    image_size = size_of(config.image_size) if config.image_size else None
    if isinstance(flags, ModelFlags):
        return loading.load_model(
            path=flags.path,
            kind=flags.type,
            size=flags.size,
            img_size=flags.img_size,
            num_frames=flags.num_frames,
            dtype=flags.dtype,
            predictor=flags.predictor,
            overrides=flags.overrides,
            device=config.device,
            video=config.input.video,
            dataset=config.dataset,
            image_size=image_size,
            seed=config.seed,
        )
    return loading.load_subject(
        path=flags.path,
        policy_type=flags.type,
        size=flags.size,
        overrides=flags.overrides,
        dataset=config.dataset,
        env=config.env,
        image_size=image_size,
        cameras=config.cameras,
        seed=config.seed,
        rename=config.rename_map or None,
    )


def options_of(config: RunConfig) -> Options:
    """The options of measuring, from the flags."""
    from strobe.measure.sampling import SamplingBudget
    from strobe.measure.verdicts import WITHIN
    from strobe.studies.measuring import Options

    seconds = config.seconds or (30.0 if config.iterations is None else NO_LIMIT_S)
    budget = SamplingBudget(iterations=config.iterations, seconds=seconds, precision=config.interval)
    return Options(
        budget=budget,
        depth=config.depth,
        batch_size=config.batch_size or 8,
        serialised=config.serialised,
        counted=not config.skip_counting,
        pace_hz=getattr(config, "pace", None),
        within=getattr(config, "as_fast_within", WITHIN),
    )


def recipe_notes(path: Path | None) -> list[str]:
    """Notes on the recipe at ``path``: its treatments, and versions that differ from those it was made with."""
    if path is None:
        return []
    from strobe.treatments.catalogue import written
    from strobe.treatments.recipe import differences, load

    recipe = load(path)
    return [f"recipe {path.name}: {'; '.join(map(written, recipe.treatments))}", *differences(recipe, path.name)]
