"""A wrapper around all that treatments do to a policy's call, which can take itself and them off while it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from strobe.treatments.treated import CALLED as METHOD
from strobe.treatments.treated import Treated


class Outermost:
    """``around(inner)`` in the place of ``policy.predict_action_chunk``, outside of everything that is there now.

    A program may put something of its own on top later (``torch.compile``); that stays when this is taken off.

    Args:
        wait: returns once nothing is under way that needs the policy's weights as they are.
    """

    def __init__(self, treated: Treated, around: Callable[..., Any], wait: Callable[[], Any] | None = None) -> None:
        self.policy: Any = treated.subject.module
        self._treated, self._wait = treated, wait
        policy = self.policy
        treated.on_top = self
        self.inner: Callable[..., Any] = getattr(policy, METHOD)
        self._before = vars(policy).get(METHOD)
        self._around: Callable[..., Any] | None = around

        def predict_action_chunk(*args: Any, **kwargs: Any) -> Any:
            now = self._around
            return self.inner(*args, **kwargs) if now is None else now(*args, **kwargs)

        # LeRobot asks the signature whether the policy takes what Real-Time Chunking hands over.
        predict_action_chunk.__signature__ = inspect.signature(getattr(type(policy), METHOD).__get__(policy))  # type: ignore[attr-defined]
        self._made = predict_action_chunk
        vars(policy)[METHOD] = predict_action_chunk

    def wait(self) -> None:
        """Wait for what needs the weights as they are."""
        if self._wait is not None:
            self._wait()

    def below_again(self) -> None:
        """The treatments inside were put on anew."""
        self._before, self.inner = vars(self.policy).get(METHOD), getattr(self.policy, METHOD)

    def off(self, *, treatments: bool = False) -> None:
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
            self._treated.off()
        self.inner = held.get(METHOD) or getattr(type(self.policy), METHOD).__get__(self.policy)
        if top is not self._made and top is not None:
            held[METHOD] = top
        self._around = None
