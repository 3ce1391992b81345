"""Read a policy that was never published: one with random weights, or a tiny one, saved in a folder by `parcel`.

Its config does not hold a tiny policy's sizes, and what LeRobot would fetch from the Hub for it has a placeholder here.
This file runs in the other environment too, on Strobe's source, which travels there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from strobe.core.families.capabilities import Construction
from strobe.core.families.registry import building, find_family, unregistered_modules
from strobe.lerobot.policies.standins import stand_ins

_UNREGISTERED = "unregistered_{}.safetensors"  # weights of modules that the policy's own checkpoint leaves out

Settle = Callable[[Any, Any], None]  # of the policy and its preprocessor


def save_unregistered(policy: Any, folder: Path) -> None:
    """Save the weights of the modules that ``policy`` hides from its checkpoint."""
    for place, module in enumerate(unregistered_modules(policy)):
        state = {name: tensor.contiguous().clone() for name, tensor in module.state_dict().items()}
        save_file(state, folder / _UNREGISTERED.format(place))


@contextmanager
def built_as(config: Any, folder: Path, *, tiny: bool) -> Iterator[Settle]:
    """Inside, LeRobot reads the policy in ``folder``. Yields what completes it."""
    construction = Construction.from_family(find_family(config.type))

    def settle(policy: Any, preprocessor: object) -> None:
        construction.settle(policy, preprocessor)
        for place, module in enumerate(unregistered_modules(policy)):
            module.load_state_dict(load_file(folder / _UNREGISTERED.format(place)))
            module.eval()

    with stand_ins(config.type, random_weights=True, tiny=tiny), building(config, tiny):
        yield settle
