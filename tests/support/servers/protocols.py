"""The three protocols of policy servers over one list of behaviours: stand-ins for their servers, and calls to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from strobe.core.kinds import advise
from strobe.core.studies.shared.progress import Silent
from strobe.servers.protocols.observations import ObservationOptions, Source, read
from strobe.servers.results import ServerAnswer
from strobe.servers.run import ServerOptions, server


@dataclass
class Protocol:
    """One of the protocols, with what its server gives and takes.

    Args:
        source: the observations that its client sends.
        shape: of its chunk of actions.
        trips: there and back, that a call takes.
        needs: the package that it cannot do without.
    """

    name: str
    source: Source
    shape: list[int]
    trips: int = 1
    needs: str = "msgpack"
    folder: Path | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def stand_in_module(self) -> Any:
        """The module of its stand-in: `Policy`, `Break`, `actions` and `serving`."""
        pytest.importorskip(self.needs, reason="Strobe's extra 'remote' is missing")
        return import_module(f"support.servers.{self.name.lower().replace('0', 'o')}_server")

    def serving(self, policy: Any) -> AbstractContextManager[str]:
        return self.stand_in_module.serving(policy, *([self.folder] if self.folder else []))

    def call_server(self, url: str, calls: int = 6, reporter: Any = None, **more: Any) -> ServerAnswer:
        """So many calls; ``more`` are other options, or another ``source``."""
        given: dict[str, Any] = {"timeout_s": 5.0, "source": None} | self.more | more
        source = given.pop("source") or self.source
        return server(ServerOptions(url, iterations=calls, **given), source, reporter or Silent())

    def ask_policy(self, policy: Any = None, calls: int = 6, **more: Any) -> ServerAnswer:
        """Calls to a server of ``policy``, else of a sound one."""
        with self.serving(policy or self.stand_in_module.Policy()) as url:
            return self.call_server(url, calls, **more)

    def fail_from_third(self, bad: Callable[[Any, int], Any]) -> Any:
        """A server whose answers are sound twice; ``bad`` is of its module and the call's number."""
        module = self.stand_in_module
        return module.Policy(answer=lambda seen, number: module.actions() if number <= 2 else bad(module, number))


def protocols(folder: Path) -> dict[str, Protocol]:
    """Each protocol by its name; LeRobot's server and the policy's config lie in ``folder``."""
    from strobe.servers.protocols.lerobot_messages import ServedPolicy

    features = {"observation.state": {"shape": [6]}, "observation.images.top": {"shape": [3, 24, 32]}}
    (folder / "config.json").write_text(json.dumps({"type": "act", "input_features": features}))
    more, plain = {"policy": ServedPolicy(str(folder))}, read(ObservationOptions())
    small, wide = (read(ObservationOptions(image_size=size)) for size in ((16, 16), (16, 24)))
    made = [
        Protocol("openpi", small, [10, 7], needs="websockets"),
        Protocol("GR00T", wide, [10, 7], needs="zmq"),
        Protocol("LeRobot", plain, [10, 6], trips=2, needs="grpc", folder=folder, more=more),
    ]
    return {protocol.name: protocol for protocol in made}


def rules(answer: ServerAnswer) -> set[str]:
    return {finding.rule for finding in advise(answer) if finding.level == "warning"}
