"""A wrapper around all that treatments do to a policy's call, which can take itself and them off while it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from strobe.treatments.treatment import Undo

METHOD = "predict_action_chunk"


class Outermost:
    """``around(inner)`` in the place of ``policy.predict_action_chunk``, outside of everything that is there now.

    A program may put something of its own on top later (``torch.compile``); that stays when this is taken off.
    """

    def __init__(self, policy: Any, around: Callable[..., Any]) -> None:
        self.policy = policy
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

    def off(self, undo: Undo | None = None) -> None:
        """Take the wrapper off, and with ``undo`` the treatments inside it; once is enough.

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
        if undo is not None:
            undo()
        self.inner = held.get(METHOD) or getattr(type(self.policy), METHOD).__get__(self.policy)
        if top is not self._made and top is not None:
            held[METHOD] = top
        self._around = None
