"""A ladder's highest rung in a simulator: it stays the highest unless paired episodes speak against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from strobe.errors import UserError
from strobe.measure.episodes import MARGIN
from strobe.measure.guard import DROP, Guards
from strobe.measure.planning import fewest_pairs
from strobe.policies.subject import Subject
from strobe.results.answer import OptimizeResult
from strobe.results.episodes import PairedEpisodes
from strobe.results.ladder import Ladder
from strobe.studies.episodes import CandidateFailed, Episodes, Watching
from strobe.studies.optimize.ladder import AS_IT_IS, NOTHING
from strobe.treatments.treatment import Treatment, Variant, policy_of


class Proving(Watching, Protocol):
    """Where the proof reports its progress and its outcome."""

    def stage(self, what: str) -> None: ...


def started(subject: Subject, env: Any, count: int, guards: Guards, base: Sequence[Treatment] = ()) -> Episodes:
    """Start the simulator of LeRobot's ``EnvConfig`` for ``count`` pairs per task, at most.

    Raises:
        UserError: it cannot be started, ``subject`` is no policy, or the pairs are too few for what the guard demands.
    """
    policy = policy_of(subject)
    limit = guards.success_drop
    margin = MARGIN if limit is None else limit
    episodes = Episodes(env, policy, Variant(AS_IT_IS, tuple(base)), count, policy.seed, margin)
    if limit is not None and episodes.planned < (enough := fewest_pairs(limit)):
        episodes.close()
        raise UserError(
            f"{DROP}<={limit:g} takes {enough} pairs of episodes or more, even if all of them end alike, and "
            f"{episodes.planned} are asked for"
        )
    return episodes


def prove(
    result: OptimizeResult,
    variants: Sequence[Variant],
    episodes: Episodes,
    guards: Guards,
    climbed: Callable[..., Ladder],
    watching: Proving,
    refused: Mapping[str, str] = NOTHING,
) -> None:
    """Play the rung that the ladder ends with against the policy as it is; where it is refused, the next one below.

    ``result`` gets the episodes and a ladder that takes them into account; one that Ctrl-C ended is interrupted.

    Args:
        variants: of the ladder's rungs.
        climbed: makes the ladder again, given ``refused``: rung → what speaks against it.
        refused: what speaks against some already.
    """
    refused = dict(refused)
    if result.ladder is not None and result.ladder.chosen == AS_IT_IS:
        result.notes.append("no paired episodes: the ladder has no rung to play")
    while result.ladder is not None and (name := result.ladder.chosen) != AS_IT_IS:
        rung = next(variant for variant in variants if variant.name == name)
        watching.stage(f"paired episodes in {episodes.environment}: {AS_IT_IS}, {name}")
        judged: PairedEpisodes | None = None
        interrupted = False
        try:
            judged, interrupted = episodes.against(rung, watching)
        except CandidateFailed as error:
            refused[name] = str(error)
            watching.said(f"{name} is refused: {error}")
        except UserError as error:  # the simulator's fault says nothing of any rung, and must not cost the ladder
            result.notes.append(f"no paired episodes: {error}")
        if judged is not None:
            judged.broken = guards.lost(judged)
            result.episodes.append(judged)
            refused |= {name: judged.broken} if judged.broken else {}
            watching.said(judged.sentence)
        elif interrupted:
            result.notes.append("no paired episodes: interrupted before the first pair was played")
        unknown = judged is None and name not in refused
        if (interrupted or unknown) and guards.success_drop is not None:
            refused = {variant.name: "no episodes show what it loses" for variant in variants[1:]} | refused
        result.ladder = climbed(refused=refused)
        if interrupted:
            result.status = "interrupted"
        if interrupted or name not in refused:
            return
