"""Work that `strobe rollout` and `strobe rehearse` share: LeRobot's loop, the events, the bench, the files of a run."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.live import Live, importing
from strobe.core.cli.runner import Studied
from strobe.core.errors import UserError
from strobe.rollout.files import leave

if TYPE_CHECKING:
    from strobe.preflight.wiring.of_run import WiringLook


@dataclass(frozen=True)
class ChosenLoop:
    """A loop of LeRobot that a command line chooses.

    Args:
        theirs: all arguments after ``--``.
        command: the loop, of `strobe.rollout.loops.registry.NAMES`.
        arguments: the loop's own: ``theirs`` without the word that chooses the loop.
        config: LeRobot's config of ``arguments``. None: they are not parsed yet.
    """

    theirs: list[str]
    command: str
    arguments: list[str]
    config: Any = None


def choose_loop(theirs: Sequence[str], observations: bool) -> ChosenLoop:
    """Return the loop that the arguments after ``--`` name, without a config.

    Args:
        observations: whether observations are recorded, which only a replay of lerobot-rollout reads.

    Raises:
        UserError: an unknown loop, or observations of another one.
    """
    from strobe.rollout.loops.registry import ROLLOUT, chosen

    command, arguments = chosen(theirs)
    if observations and command != ROLLOUT:
        raise UserError(f"--observations is for a replay of {ROLLOUT}: {command} cannot be replayed")
    return ChosenLoop(list(theirs), command, arguments)


def events_file(output_dir: Path) -> Path:
    """Return where the events of this process's rollout go while it runs."""
    return output_dir / f"rollout-{os.getpid()}-{time.time_ns() // 1_000_000_000}.events"


def refused(look: WiringLook, name: str, config: OutputFlags, theirs: Sequence[str]) -> Studied | None:
    """Return the answer of the command ``name`` where it is not started: the findings, and exit code 1.

    None if the first action is not known to be a wrong one.
    """
    from strobe.preflight.findings.wiring import dangerous
    from strobe.preflight.run import answer_of

    if look.wiring is None or not dangerous(look.wiring):
        return None
    options = {name: config, "lerobot-rollout": list(theirs)}
    result = answer_of(look.wiring, refused=f"strobe {name}")
    return Studied(result, options, config.output_dir, config.thresholds, code=1)


def say_serious(look: WiringLook | None, live: Live) -> None:
    """Print what is serious in the wiring of a run that starts all the same, before a servo has torque."""
    if look is None or look.wiring is None:
        return
    from strobe.core.results.units import plain
    from strobe.preflight.findings.wiring import findings_of

    for finding in findings_of(look.wiring):
        if finding.level == "warning":
            live.say(plain(f"! {finding.title}. {finding.seen}"))


def look_at_wiring(chosen: ChosenLoop) -> WiringLook:
    """Read the wiring of a checkpoint that lerobot-rollout is to run; no port is opened.

    Args:
        chosen: with its config; other loops than lerobot-rollout ask no policy.
    """
    from strobe.preflight.wiring.of_run import WiringLook, wiring_of_rollout
    from strobe.rollout.loops.registry import ROLLOUT

    if chosen.command != ROLLOUT:
        return WiringLook()
    with importing():
        from strobe.lerobot.flags.argument_names import joined
    return wiring_of_rollout(chosen.config, joined(chosen.arguments, chosen.command))


def measure_on_bench(watched: Any, live: Live) -> None:
    """Call the run's policy on the bench, if it is still loaded. An interrupt ends that, and not the command."""
    if watched.calls is None:
        return
    from strobe.rollout.bench import bench

    with contextlib.suppress(KeyboardInterrupt), live:  # the run's own answer is there already
        bench(watched, live)


def studied_rollout(
    name: str,
    config: OutputFlags,
    watched: Any,
    theirs: Sequence[str],
    events: Path,
    *,
    look: WiringLook | None = None,
    remove: bool = True,
) -> Studied:
    """Return the answer of a watched rollout, whose folder gets its ``events``.

    Args:
        name: the command's.
        look: what was read of its wiring.
        remove: whether the file of events is deleted once they are in the folder.
    """

    def save_events(folder: Path | None) -> Iterator[str]:
        assert folder is not None
        if watched.result.rollout.engine not in ("sync", "rtc"):  # nothing to replay
            if remove:
                events.unlink(missing_ok=True)
            return
        saved = list(leave(events, folder, remove=remove))
        yield from (f"{what:<7}  {file}" for file, what in saved)
        if saved:
            yield f"again    strobe replay {folder}"

    if look is not None:
        if look.wiring is not None and watched.result.rollout.first_action:
            from strobe.preflight.wiring.fed import add_fed

            joints = [each.joint for each in watched.result.rollout.first_action]
            add_fed(look.wiring, joints, [move.at for move in watched.record.moves])
        look.add_to(watched.result)
    sys.stderr.flush()
    print()
    options = {name: config, "lerobot-rollout": list(theirs)}
    return Studied(watched.result, options, config.output_dir, config.thresholds, [watched.sections], after=save_events)
