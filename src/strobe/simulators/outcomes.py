"""Whether an episode succeeded, where a simulator says it in other words than lerobot-eval reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from strobe.errors import UserError

READ = "is_success"
OTHERS = ("success", "succeed")  # seen in simulators of plug-ins


@contextlib.contextmanager
def outcomes_told(vector: Any) -> Iterator[None]:
    """While open, the last info of an episode of ``vector`` has the key that lerobot-eval's rollout reads.

    Where it is missing, LeRobot 0.6.1 takes every episode that ends for a success: its default, ``[False]``, is a list
    that is not empty, and so true. Simulators that name it otherwise are read by their own name.

    Raises:
        UserError: within, at the end of an episode of which a simulator does not say whether it succeeded.
    """
    step = vector.step

    def told(*args: Any, **kwargs: Any) -> Any:
        *rest, info = step(*args, **kwargs)
        last = info.get("final_info")
        if isinstance(last, dict) and READ not in last:
            name = next((name for name in OTHERS if name in last), None)
            if name is None:
                raise UserError(
                    f"the simulator does not say whether an episode succeeded: no '{READ}' in its last info "
                    f"({', '.join(last) or 'empty'})"
                )
            last[READ] = last[name]
        return (*rest, info)

    with mock.patch.object(vector, "step", told):
        yield
