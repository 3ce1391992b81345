"""Strobe: a performance lab for robot policies.

    from strobe import Timeline, section

    with Timeline() as timeline:
        with section("inference"):
            policy.predict_action_chunk(batch)
    for part in timeline.sections():
        print(part.path, part.ms)

    strobe.compare({"eager": model, "compiled": torch.compile(model)}, inputs)
    strobe.breakdown(policy, observation)
    strobe.verify(before, after, inputs, guard="largest_error<=1e-3")
    strobe.apply_recipe(strobe.optimize(policy, observations, target_ms=50).recipe, policy)

    policy, preprocessor, postprocessor = strobe.load_policy("FOLDER_OR_HUB_ID", "recipe.yaml")

The command line is ``strobe --help``; profiling by hand is ``strobe.profiling``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from strobe.core.errors import UserError, install
from strobe.version import __version__

__all__ = [
    "Probe", "Timeline", "__version__", "apply_recipe", "attach", "breakdown", "compare", "load_policy", "optimize",
    "revert_recipe", "section", "timed", "verify",
]  # fmt: skip

if TYPE_CHECKING:
    from strobe.core.python import breakdown, compare, verify
    from strobe.core.timeline import Probe, Timeline, attach, section, timed
    from strobe.deploy import apply_recipe, load_policy, revert_recipe
    from strobe.ladder.verb import optimize


# Loaded on first use: reading a result or printing help needs no torch, whose import takes seconds.
def __getattr__(name: str) -> Any:
    if name in ("load_policy", "apply_recipe", "revert_recipe", "optimize"):
        if find_spec("lerobot") is None:
            raise UserError(f"strobe.{name} needs LeRobot: {install('lerobot')}")
        if name == "optimize":
            from strobe.ladder.verb import optimize

            return optimize
        import strobe.deploy

        return getattr(strobe.deploy, name)
    if name in ("breakdown", "compare", "verify"):
        import strobe.core.python

        return getattr(strobe.core.python, name)
    if name in __all__:
        import strobe.core.timeline

        return getattr(strobe.core.timeline, name)
    raise AttributeError(f"module 'strobe' has no attribute '{name}'")
