"""Who plays an evaluation's episodes beside this process: processes here, or players on a Ray cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from strobe.cli.live import Live
from strobe.cli.parse import PolicyFlags


def crew(config: Any, live: Live) -> contextlib.AbstractContextManager[Any]:
    """Those that ``config`` asks for; they end with the context. None where this process plays alone.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """
    from strobe.studies.evaluate.sharing import parse_each, parse_parallel
    from strobe.studies.evaluate.workers import Workers

    if config.launcher == "ray":
        from strobe.sweeps.players import Players

        live.stage("joining the Ray cluster")
        return Players(config.ray.address, parse_each(config.parallel), live.said)
    count = parse_parallel(config.parallel)
    # Started before the policy is loaded here: they import torch and LeRobot meanwhile.
    return Workers(count) if count > 1 else contextlib.nullcontext()


def begin(
    crew: Any,
    flags: PolicyFlags,
    config: Any,
    subject: Any,
    threads: int,
    timings: Sequence[Any],
    films: Any,
    live: Live,
) -> None:
    """Let ``crew`` make itself ready to play what is asked for.

    Args:
        films: the `Filming` of this process.

    Raises:
        UserError: its copies of the policy do not fit into memory.
    """
    from strobe.policies.fingerprint import fingerprint
    from strobe.studies.evaluate.alike import Alike, Elsewhere, require_memory, taken_along
    from strobe.studies.evaluate.variants import parse_recipes, parse_steps
    from strobe.studies.evaluate.workers import Workers

    each = f"{threads} thread{'s' * (threads > 1)} of torch"
    alike = Alike(
        env=config.env,
        path=flags.path,
        type=flags.type,
        size=flags.size,
        fed=taken_along(subject.inputs),
        weights=fingerprint(subject.policy),
        overrides=flags.overrides,
        seed=config.seed,
        rename=config.rename_map,
        steps=parse_steps(config.steps),
        recipes=parse_recipes(config.recipe),
        rendering="always" if config.render == "always" else "needed",
        threads=threads,
        timings=tuple(timings),
        videos=config.videos,
        folder=films.folder,
    )
    if isinstance(crew, Workers):
        require_memory(subject, crew.free)
        live.said(f"{crew.free} processes play episodes side by side, each with its own policy, simulator and {each}")
        crew.begin(alike)
        return
    kind = subject.device.type
    # The one device that a node's player sees is its first; where nothing is said, LeRobot would choose by the node.
    overrides = [flag for flag in flags.overrides if not flag.startswith("--device=")]
    path = str(Path(flags.path).absolute()) if flags.path and Path(flags.path).is_dir() else flags.path
    alike = replace(alike, path=path, overrides=[*overrides, f"--device={kind}"])
    live.said(f"players on the cluster's nodes load the policy, each with its own simulator and {each}")
    crew.begin(Elsewhere(alike, tuple(one.read_bytes() for one in alike.recipes)), kind == "cpu", films.write)
