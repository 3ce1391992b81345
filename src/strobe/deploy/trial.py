"""A recipe on trial: compared with the baseline on the first observation that the program really gives.

For programs that load a policy themselves and do not use Strobe, such as LeRobot's commands with our plug-in. Nothing
that is wrong with a recipe may stop the robot: the policy then runs unchanged, and one line of the log says why.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from strobe.core.devices.accelerators import generator_states, set_generators
from strobe.core.errors import UserError, error_line
from strobe.core.measure.agreement import describe_agreement
from strobe.core.results.agreement import Agreement
from strobe.core.results.recipe import NOT_USED
from strobe.deploy.checking import Applied, policy_device
from strobe.deploy.live_check import Outermost, Watch
from strobe.deploy.loading import carry, read
from strobe.deploy.twin import PolicyCall, copy_containers

logger = logging.getLogger("strobe")

SECONDS = 3.0  # approximate time of the check on synthetic observations: the one that counts is still to come


def log_unused_recipe(name: str, why: object) -> None:
    """Log the one line about a recipe that is not used. Whoever watches the run finds it in the record."""
    words = error_line(why).removeprefix(f"{name}: ")
    line = "strobe: %s is not used: %s; the policy runs unchanged"
    logger.warning(line, name, words, extra={NOT_USED: f"{name} is not used: {words}"})


def apply_on_trial(policy: object, path: object, recipe: str | PathLike[str], watch: float = 0.0) -> RecipeTrial | None:
    """Put the recipe in the file ``recipe`` on a policy that LeRobot has loaded from ``path``.

    It never raises: where the recipe cannot be used, the policy is as it was, and the log says so.

    Args:
        watch: share of the chunks to compare later on, as of `strobe.load_policy`; 0 for none.
    """
    name = Path(recipe).name
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)
            made, name = read(recipe)
            again = partial(carry, policy, path, made, name, twin=True)
            applied = again(seconds=SECONDS)
        notes = [str(warning.message) for warning in warned if str(warning.message).startswith(f"{name} ")]
        return RecipeTrial(applied, again, watch, notes)
    except Exception as error:
        log_unused_recipe(name, error if isinstance(error, UserError) else f"{type(error).__name__}: {error}")
        return None


class RecipeTrial:
    """The treated policy until its first observation has been seen, and its first call with Real-Time Chunking.

    On these the baseline runs as well, with the same noise: the program waits for both. The generators are
    left as if the baseline alone had been called.

    Args:
        again: applies the recipe again, if the program has moved the policy to another device.
        watch: share of the chunks to compare after that.
        notes: for the line in the log.
    """

    def __init__(
        self, applied: Applied, again: Callable[..., Applied], watch: float = 0.0, notes: Sequence[str] = ()
    ) -> None:
        self.applied = applied
        self._again = again
        self.agreement: Agreement | None = None
        self.watch: Watch | None = None
        self._share, self._notes = watch, notes
        self._policy: Any = applied.subject.policy
        self._device = policy_device(self._policy)
        self._seen = self._guided = False
        self._wrapper = Outermost(applied.treated, self._call)

    def _call(self, *args: object, **kwargs: object) -> Tensor:
        guided = kwargs.get("prev_chunk_left_over") is not None
        if self._seen and (self._guided or not guided):
            return self._wrapper.inner(*args, **kwargs)
        call = PolicyCall.record_call(self._policy, policy_device(self._policy), args, kwargs)
        try:
            chunk, why = self._both(call, args, kwargs)
        except Exception as error:
            chunk, why = None, f"{type(error).__name__}: {error_line(error, 200)}"
        if chunk is None or why:
            return self._fall_back(call, why)
        if not self._seen:
            self._tell()
        self._seen, self._guided = True, self._guided or guided
        config = getattr(self._policy.config, "rtc_config", None)
        if self._guided or not getattr(config, "enabled", False):
            self._accept_recipe()
        return chunk

    def _both(self, call: PolicyCall, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[Tensor, str | None]:
        """Return the treated policy's chunk, and why it is not to be used."""
        if call.device != self._device:
            self._move(call)
        twin = self.applied.twin
        assert twin is not None
        chunk = self._wrapper.inner(*args, **kwargs)
        set_generators(dict(call.noise))
        baseline = twin.predict(call, own_noise=False)
        after = generator_states(call.device)
        with call.modes():
            agreement, judged = self.applied.compare(baseline, chunk, "first observation" if not self._seen else "RTC")
        set_generators(after)
        self.agreement = agreement
        if judged.outcome == "held":
            return chunk, None
        where = "the first observation" if not self._seen else "the first call with Real-Time Chunking"
        words = judged.broken_limit or f"its guard was not judged: {judged.missing_figures}"
        return chunk, f"on {where} {words} ({describe_agreement(agreement)}); limits: {self.applied.guard}"

    def _move(self, call: PolicyCall) -> None:
        policy = self._policy
        self._wrapper.revert(treatments=True)
        policy.to(call.device)
        policy.config.device = str(call.device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.applied = self._again(check=False)
        self._device = call.device
        self._wrapper = Outermost(self.applied.treated, self._call)

    def _fall_back(self, call: PolicyCall, why: str | None) -> Tensor:
        """Run the call as if the recipe had never been there."""
        self._wrapper.revert(treatments=True)
        log_unused_recipe(self.applied.name, why)
        vars(self._policy).update(call.state)
        set_generators(dict(call.noise))
        self.applied.twin = None
        return self._wrapper.inner(*copy_containers(call.args), **copy_containers(call.kwargs))

    def _accept_recipe(self) -> None:
        self._wrapper.revert()
        if self._share:
            self.watch = Watch(self.applied, self._share)
        else:
            self.applied.settle()

    def _tell(self) -> None:
        applied, agreement = self.applied, self.agreement
        assert agreement is not None
        count = len(applied.treatments)
        line = f"{applied.name} on {applied.subject.info.kind}: {count} treatment{'' if count == 1 else 's'}"
        notes = "".join(f"; {note}" for note in self._notes)
        logger.info("strobe: %s, on the first observation %s%s", line, describe_agreement(agreement), notes)
