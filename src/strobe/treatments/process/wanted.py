"""A setting of the whole process that treatments of several policies may each want at another value.

The last one that wants it decides. They are taken off in any order, and with the last one the setting is what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from strobe.treatments.treatment import Undo


@dataclass
class Wanted:
    """``read`` gives the setting's value, ``put`` sets it."""

    read: Callable[[], Any]
    put: Callable[[Any], None]
    _values: dict[object, Any] = field(default_factory=dict, init=False, repr=False)
    _before: Any = field(default=None, init=False, repr=False)

    def want(self, value: Any) -> Undo:
        """Set ``value`` until the result is called."""
        if not self._values:
            self._before = self.read()
        mine = object()
        self._values[mine] = value
        self.put(value)

        def undo() -> None:
            if mine in self._values:
                del self._values[mine]
                self.put(next(reversed(self._values.values()), self._before))

        return undo
