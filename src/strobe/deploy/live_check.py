"""A treated policy that is watched while it runs: a share of its chunks is computed again by the baseline.

That happens on a thread of its own, once the call has returned and the robot executes its actions. The program's thread
never waits for it: where the baseline is still at work on one chunk, the next one is not looked at.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import logging
import os
import random
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from torch import Tensor

from strobe.core.errors import UserError, error_line
from strobe.core.measure.agreement import describe_agreement
from strobe.core.results.agreement import Agreement
from strobe.core.timeline.layers import Call
from strobe.core.treatments.treated import CALLED as METHOD
from strobe.core.treatments.treated import Treated
from strobe.deploy.checking import Applied, policy_device
from strobe.deploy.twin import PolicyCall

logger = logging.getLogger("strobe")

LOWER = 10  # reduction of the thread's priority, if the system has one for threads: robots come first
_LAST = 10.0  # seconds that the end of the program waits for a chunk that is being computed


def require_share(share: float) -> None:
    """Raise UserError unless ``share`` is one of the chunks that can be watched."""
    if not 0 < share <= 1:
        raise UserError(f"watch={share:g}: must be a share of the chunks above 0 and up to 1, such as 0.01")


class Watch:
    """The record of a policy that is watched, and what ends it.

    Attributes:
        share: of the chunks that are computed again.
        seen: number of the policy's chunks since it is watched.
        checked: number of chunks compared with the baseline's; ``skipped``: chosen while the baseline was busy.
        worst: the agreement of the chunk with the largest change; None before the first.
        broken: the limit of the guard that a chunk exceeded; None if none has.
        fallen_back: the line that was logged about it; None while the treated policy runs.
        failed: why watching ended without an answer; None if it has not.
    """

    def __init__(self, applied: Applied, share: float) -> None:
        require_share(share)
        assert applied.twin is not None
        self.share = share
        self.seen = self.checked = self.skipped = 0
        self.worst: Agreement | None = None
        self.broken: str | None = None
        self.fallen_back: str | None = None
        self.failed: str | None = None
        self._applied, self._twin = applied, applied.twin
        self._policy: Any = applied.subject.policy
        self._chance = random.Random()  # not torch's generator, which draws the policy's noise
        self._jobs: SimpleQueue[tuple[int, PolicyCall, Tensor] | None] = SimpleQueue()
        self._busy = self._closed = False
        self._wrapper = Outermost(applied.treated, self._call, self.wait)
        self._thread = threading.Thread(target=self._work, name="strobe watch", daemon=True)
        self._thread.start()
        ending = weakref.WeakMethod(self.close)
        atexit.register(_close, ending)

    def __repr__(self) -> str:
        return (
            f"Watch({self.seen} chunks, {self.checked} checked, {self.skipped} skipped; {self.fallen_back or 'same'})"
        )

    def wait(self, timeout: float = 60.0) -> bool:
        """Wait until no chunk is being compared; false where that takes longer than ``timeout`` seconds."""
        until = time.monotonic() + timeout
        while self._busy and self._thread.is_alive():
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
        return True

    def close(self) -> None:
        """End watching. The policy goes on unchanged, and the original weights are let go.

        It waits some seconds for a chunk that is being compared.
        """
        if not self._closed:
            self._closed = True
            self._wrapper.revert()
            self._jobs.put(None)
            if not self.broken:
                self._applied.settle()
        if threading.current_thread() is not self._thread:
            self._thread.join(_LAST)

    def _call(self, *args: object, **kwargs: object) -> Any:
        """Run on the program's thread. Nothing here waits for the other one."""
        if self.broken:
            self._closed = True
            self._wrapper.revert(treatments=True)
            self._jobs.put(None)
            return self._wrapper.inner(*args, **kwargs)
        self.seen += 1
        if self.failed or self._chance.random() >= self.share:
            return self._wrapper.inner(*args, **kwargs)
        if self._busy:
            self.skipped += 1
            return self._wrapper.inner(*args, **kwargs)
        call = PolicyCall.record_call(self._policy, policy_device(self._policy), args, kwargs)
        chunk = self._wrapper.inner(*args, **kwargs)
        self._busy = True
        self._jobs.put((self.seen, call, chunk.detach().clone()))
        return chunk

    def _work(self) -> None:
        if sys.platform == "linux":  # elsewhere a priority is the whole process's
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWER)
        while (job := self._jobs.get()) is not None:
            try:
                self._compare(*job)
            except Exception as error:
                why = error_line(error, 200)
                self.failed = f"{self._applied.name} is no longer watched: the baseline fails: {why}"
                _tell(self.failed)
            del job
            self._busy = False

    def _compare(self, number: int, call: PolicyCall, chunk: Tensor) -> None:
        twin = self._twin
        if policy_device(twin.policy) != call.device:
            twin.policy.to(call.device)
        baseline = twin.predict(call)
        with call.modes():
            agreement, judged = self._applied.compare(baseline, chunk, f"chunk {number}")
        self.checked += 1
        if self.worst is None or _largest_change(agreement) > _largest_change(self.worst):
            self.worst = agreement
        applied = self._applied
        if judged.missing_figures and not self.failed:
            self.failed = (
                f"{applied.name} is no longer watched: chunk {number} was not judged: {judged.missing_figures}"
            )
            _tell(self.failed)
        if judged.broken_limit and not self.broken:
            self.fallen_back = (
                f"{applied.name} on {applied.subject.info.kind} is reverted: chunk {number} exceeds its limit: "
                f"{judged.broken_limit} ({describe_agreement(agreement)}); the baseline runs from the next chunk on"
            )
            self.broken = judged.broken_limit  # what the program's thread looks at: last
            _tell(self.fallen_back)


def _largest_change(agreement: Agreement) -> float:
    if agreement.not_finite:
        return float("inf")
    return agreement.worst if agreement.worst is not None else 1 - agreement.cosine


def _tell(line: str) -> None:
    logger.warning("strobe: %s", line)
    with contextlib.suppress(Warning):  # where warnings are errors
        warnings.warn(line, stacklevel=2)


def _close(ending: weakref.WeakMethod[Any]) -> None:
    close = ending()
    if close is not None:
        close()


class Outermost:
    """``around(inner)`` in the place of ``policy.predict_action_chunk``, outside of everything that is there now.

    A program may put something of its own on top later (``torch.compile``); that stays when this is reverted.

    Args:
        wait: returns once nothing is under way that needs the policy's weights as they are.
    """

    def __init__(self, treated: Treated, around: Call, wait: Callable[[], object] | None = None) -> None:
        self.policy: Any = treated.subject.module
        self._treated, self._wait = treated, wait
        policy = self.policy
        treated.on_top = self
        self.inner: Call = getattr(policy, METHOD)
        self._before = vars(policy).get(METHOD)
        self._around: Call | None = around

        def predict_action_chunk(*args: object, **kwargs: object) -> object:
            now = self._around
            return self.inner(*args, **kwargs) if now is None else now(*args, **kwargs)

        # LeRobot reads in the signature whether the policy takes what Real-Time Chunking hands over.
        predict_action_chunk.__signature__ = inspect.signature(getattr(type(policy), METHOD).__get__(policy))  # type: ignore[attr-defined]
        self._made = predict_action_chunk
        vars(policy)[METHOD] = predict_action_chunk

    def wait(self) -> None:
        """Wait for what needs the weights as they are."""
        if self._wait is not None:
            self._wait()

    def note_reapplication(self) -> None:
        """Take note that the treatments inside were applied again."""
        self._before, self.inner = vars(self.policy).get(METHOD), getattr(self.policy, METHOD)

    def revert(self, *, treatments: bool = False) -> None:
        """Take the wrapper off, and with ``treatments`` what is inside it too; once is enough.

        Whoever kept hold of the wrapper calls what is then there.
        """
        held = vars(self.policy)
        top = held.get(METHOD)
        if self._around is None:
            return
        if self._before is not None:
            held[METHOD] = self._before
        else:
            held.pop(METHOD, None)
        self._treated.on_top = None
        if treatments:
            self._treated.revert()
        self.inner = held.get(METHOD) or getattr(type(self.policy), METHOD).__get__(self.policy)
        if top is not self._made and top is not None:
            held[METHOD] = top
        self._around = None
