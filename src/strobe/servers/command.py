"""strobe breakdown --policy.server=ws://HOST:PORT: where does the time of a call to a policy server go?

Sends observations to a policy server and waits for chunks, one call at a time, as a robot does. The address chooses the
protocol: ws:// is openpi's websocket, tcp:// is GR00T's ZeroMQ, grpc:// is LeRobot's. The report divides a round trip
into encoding, the server's own time, decoding, and the rest. With --control_hz it shows the age of each action.

Without --dataset.root or --policy.observation the observations are synthetic. LeRobot's server loads the policy that
its client names: --policy.path is then a folder or a Hub id on the server. It takes about 20 s (--seconds).

Examples:
  strobe breakdown --policy.server=ws://192.168.1.20:8000 --control_hz=50
  strobe breakdown --policy.server=grpc://HOST:8080 --policy.type=act --policy.path=FOLDER --dataset.root=DATASET

More:
No figure contains the first call, because a server may compile at it. An observation has the names that the server
expects. --rename_map sets others: '{"observation.images.top": "observation/image"}'; a dot in a new name begins a map.
docs/guides/policy-server.md lists the names of each protocol, and what each part of a round trip is.

Further examples:
  strobe breakdown --policy.server=ws://localhost:8000 --dataset.root=DATASET --prompt='fold the towel'
  strobe breakdown --policy.server=ws://localhost:8000 --policy.observation=observation.json --timeout=2
  strobe breakdown --policy.server=tcp://192.168.1.20:5555 --dataset.root=DATASET
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from strobe.core.cli.bounds import exclusive_minimum_bound, minimum_bound
from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.live import Live
from strobe.core.cli.parse import pairs, parse
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.policy_cli.run_flags import parse_image_size

if TYPE_CHECKING:
    from strobe.servers.protocols.lerobot_messages import ServedPolicy
    from strobe.servers.protocols.observations import ObservationOptions

C = TypeVar("C", bound="ServerCallFlags")

FLAG = "--policy.server"
_OWN = ("--policy.server", "--policy.observation")
_LEROBOT = tuple(f"--policy.{name}" for name in ("path", "type", "device", "actions_per_chunk"))  # of its server


@dataclass
class ServerPolicyFlags:
    """The server, and a file of what it is sent."""

    server: str = ""
    observation: Path | None = None
    path: str = ""
    type: str = ""
    device: str = "cpu"
    actions_per_chunk: int = field(default=50, metadata=minimum_bound(1))


@dataclass
class DatasetFolderFlags:
    """A LeRobotDataset on this machine."""

    root: Path | None = None


@dataclass
class ServerCallFlags(OutputFlags):
    """The server, its observations, and how often it is called."""

    # The server, and the observation to send: --policy.server=ws://HOST:PORT, --policy.observation=FILE. A .npz holds
    # arrays by name. A .json holds values, or {"shape": [224, 224, 3], "dtype": "uint8"} for random numbers. The policy
    # that LeRobot's server is to load: --policy.path, as on the server's machine, with --policy.type=act,
    # --policy.device=cuda and --policy.actions_per_chunk=50.
    policy: ServerPolicyFlags = field(default_factory=ServerPolicyFlags)
    # Frames of a LeRobotDataset as observations: --dataset.root=FOLDER. Images go out as (height, width, 3) uint8.
    dataset: DatasetFolderFlags = field(default_factory=DatasetFolderFlags)
    # Names in the data set → names that the server expects.
    rename_map: dict[str, str] = field(default_factory=dict)
    # The task in words, in place of the data set's.
    prompt: str | None = None
    # Height and width of synthetic images (default: 224x224).
    image_size: str | None = None
    # Calls after the first one. By default as many as fit into --seconds.
    iterations: int | None = field(default=None, metadata=minimum_bound(1))
    # Time for the calls, in seconds (default: 20, or longer for six calls).
    seconds: float | None = field(default=None, metadata=exclusive_minimum_bound(0, finite=True))
    # Time limit of one call in seconds, also of the first one. A server that compiles may need more.
    timeout: float = field(default=60.0, metadata=exclusive_minimum_bound(0, finite=True))
    # Seed of synthetic observations.
    seed: int = field(default=0, metadata=minimum_bound(0))


@dataclass
class ServerConfig(ServerCallFlags):
    """Flags of `strobe breakdown --policy.server`."""

    # The robot's control rate in Hz. The answer then shows how old each action is when the robot executes it.
    control_hz: float | None = field(default=None, metadata=exclusive_minimum_bound(0, finite=True))


def read(argv: Sequence[str]) -> ServerConfig:
    """Return the flags, checked. Raises UserError."""
    return parse_flags(ServerConfig, argv)


def parse_flags(kind: type[C], argv: Sequence[str]) -> C:
    """Return the flags of ``kind``, checked. Raises UserError."""
    from strobe.servers.protocols.connect import check_url, require_packages

    given = [name for name, _ in pairs(argv) if name.startswith(("--policy.", "--model."))]
    if unknown := [name for name in given if name not in _OWN + _LEROBOT]:
        raise UserError(f"{unknown[0]} is for a policy on this machine, and {FLAG} for one on a server: remove one")
    config = parse(kind, argv)
    if not config.policy.server:
        raise UserError(f"name the policy server: {FLAG}=ws://HOST:PORT")
    if check_url(config.policy.server) == "grpc":
        if not config.policy.path:
            raise UserError("LeRobot's server loads the policy that its client names: add --policy.path=FOLDER")
    elif others := [name for name in given if name in _LEROBOT]:
        raise UserError(
            f"{others[0]} is for LeRobot's server (grpc://), and this server has its own policy: remove that flag"
        )
    if config.dataset.root is not None and config.policy.observation is not None:
        raise UserError("--dataset.root and --policy.observation both give observations: remove one of the two")
    given = config.dataset.root or config.policy.observation
    if config.image_size is not None:
        parse_image_size(config.image_size)
        if given is not None:
            raise UserError("--image_size is for synthetic images: remove it, or remove the data set or file")
    if config.rename_map and config.dataset.root is None:
        raise UserError("--rename_map renames the features of a data set: add --dataset.root=FOLDER")
    require_packages(config.policy.server)
    return config


def observation_options(config: ServerCallFlags) -> ObservationOptions:
    """Return where the flags have observations come from."""
    from strobe.servers.protocols.observations import ObservationOptions

    return ObservationOptions(
        dataset=config.dataset.root,
        file=config.policy.observation,
        rename=config.rename_map,
        image_size=parse_image_size(config.image_size) if config.image_size else None,
        prompt=config.prompt,
        seed=config.seed,
    )


def make_served_policy(config: ServerCallFlags, path: str) -> ServedPolicy | None:
    """Return the policy that LeRobot's server is to load at ``path``; None for another server."""
    from strobe.servers.protocols.lerobot_messages import ServedPolicy

    policy = config.policy
    return ServedPolicy(path, policy.type, policy.device, policy.actions_per_chunk) if path else None


def study(config: ServerConfig, live: Live) -> Studied:
    """Call the server. Raises UserError; KeyboardInterrupt before the first answer."""
    from strobe.servers.protocols.observations import read as read_observations
    from strobe.servers.run import ServerOptions, server

    live.stage("reading observations")
    source = read_observations(observation_options(config))
    options = ServerOptions(
        config.policy.server,
        config.iterations,
        config.seconds or 20.0,
        config.timeout,
        config.control_hz,
        make_served_policy(config, config.policy.path),
    )
    answer = server(options, source, live)
    if answer.status == "interrupted" and answer.first_ms is None:
        raise KeyboardInterrupt
    return Studied(answer, vars(config), config.output_dir, config.thresholds)


BREAKDOWN = Command("breakdown", __doc__, ServerConfig, read, study, heavy="timed")
