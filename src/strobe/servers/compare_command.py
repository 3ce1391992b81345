"""strobe compare --policy.server=A --against.server=B: is B faster than A, and does it return the same actions?

Calls both policy servers in alternation (A B, B A, …) with the same observations. It compares the round trips by their
paired ratio, and the distance of the actions. --against.path=FOLDER compares the server with a LeRobot policy on this
machine instead, with its processors: that shows the cost of the way to the server.

Two servers of different protocols, or a server and a policy on this machine, need the same frames: --dataset.root. It
takes about 20 s (--seconds).

Examples:
  strobe compare --policy.server=ws://gpu1:8000 --against.server=ws://gpu2:8000 --dataset.root=DATASET
  strobe compare --policy.server=grpc://gpu1:8080 --policy.path=FOLDER --against.path=FOLDER --dataset.root=DATASET

More:
If a policy draws noise, the distance of the actions includes it. Other flags: strobe breakdown --policy.server --help.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from strobe.core.cli.bounds import exclusive_minimum_bound
from strobe.core.cli.live import Live, importing
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.servers import command as server


@dataclass
class AgainstFlags:
    """The other side."""

    server: str = ""
    path: str = ""


@dataclass
class CompareServersConfig(server.ServerCallFlags):
    """Flags of `strobe compare --policy.server`."""

    # The other side: --against.server=ws://HOST:PORT, or --against.path=FOLDER for a policy on this machine. With
    # --against.server=grpc://HOST:PORT, --against.path is the policy that it loads, in place of --policy.path.
    against: AgainstFlags = field(default_factory=AgainstFlags)
    # Equivalence margin: "as fast" means that the interval lies within ± this share.
    as_fast_within: float = field(default=0.02, metadata=exclusive_minimum_bound(0))


def read(argv: Sequence[str]) -> CompareServersConfig:
    """Return the flags, checked. Raises UserError."""
    from strobe.servers.protocols.connect import check_url, require_packages

    config = server.parse_flags(CompareServersConfig, argv)
    if not (config.against.server or config.against.path):
        raise UserError("name the second server or policy: --against.server=ws://HOST:PORT, or --against.path=FOLDER")
    if config.against.server:
        scheme = check_url(config.against.server, "--against.server")
        require_packages(config.against.server)
        if scheme == "grpc" and not (config.against.path or config.policy.path):
            raise UserError("LeRobot's server loads the policy that its client names: add --against.path=FOLDER")
    elif config.dataset.root is None:
        raise UserError("a policy on this machine needs the frames of a data set: add --dataset.root=FOLDER")
    return config


def study(config: CompareServersConfig, live: Live) -> Studied:
    """Call both sides. Raises UserError; KeyboardInterrupt before the first round."""
    with importing(announced=True):
        from strobe.core.measure.sampling import SamplingBudget
        from strobe.servers.compare import LocalSide, ServerSide, compare_servers
        from strobe.servers.protocols.connect import connect
        from strobe.servers.protocols.observations import read as read_observations

    live.stage("reading observations")
    source = read_observations(server.observation_options(config))
    url, other = config.policy.server, config.against.server or f"{config.against.path}, on this machine"
    if url == other:
        other = f"{other} (2)"
    with ExitStack() as connections:

        def side(url: str, path: str) -> ServerSide:
            live.stage(f"connecting to {url}")
            wire = connections.enter_context(connect(url, config.timeout, server.make_served_policy(config, path)))
            return ServerSide(wire, source)

        first = side(url, config.policy.path)
        if config.against.server:
            second = side(config.against.server, config.against.path or config.policy.path)
            if not source.frames and first.wire.protocol != second.wire.protocol:
                raise UserError("servers of two protocols need the frames of a data set: add --dataset.root=FOLDER")
        else:
            second = LocalSide(_load_policy(config, live), source.frames)
        budget = SamplingBudget.make_requested(config.iterations, config.seconds, usual_s=20.0)
        sides = {url: first, other: second}
        result = compare_servers(sides, first.observations, budget, config.as_fast_within, live)
    return Studied(result, vars(config), config.output_dir, config.thresholds)


def _load_policy(config: CompareServersConfig, live: Live):  # its type would import torch
    from strobe.lerobot.policies.loading import load_subject
    from strobe.lerobot.policies.options import InputOptions, PolicyOptions

    live.stage(f"loading {config.against.path}")
    of_lerobot = config.policy.server.startswith("grpc://")
    rename = config.rename_map if of_lerobot else {}  # the names of other servers are not the policy's
    return load_subject(PolicyOptions(path=config.against.path), InputOptions(rename=rename), seed=config.seed)


COMPARE = Command("compare", __doc__, CompareServersConfig, read, study, heavy="timed", gives_way=True)
