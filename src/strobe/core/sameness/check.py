"""Run a policy with treatments and without on observations that find faults, and say how far its actions are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from strobe.core import slices
from strobe.core.errors import UserError, error_line
from strobe.core.measure.agreement import agree, crop_to_common_actions
from strobe.core.measure.time_limit import LookInterrupted, TimeLimit, TimeUpError
from strobe.core.results.agreement import ActionScale, Agreement, Yardstick, YardstickName
from strobe.core.sameness.visits import FEWEST, CheckCall, describe, required_visits
from strobe.core.subjects.check_inputs import COUNT
from strobe.core.subjects.subject import ActingSubject, Observation, digest
from strobe.core.treatments.treatment import Treatment, Variant

if TYPE_CHECKING:
    from torch import Tensor

# Of the calls with Real-Time Chunking, in control ticks: what LeRobot's rollout has where nothing else is said.
HORIZON, DELAY = 10, 4
OTHER_NOISE = 1_000_003  # added to a seed
CALLS_EACH = 7  # approximate calls of the policy per observation: its reference, its visits, its yardsticks

YARDSTICKS: tuple[YardstickName, ...] = (
    "reordered sums",
    "another noise draw",
    "neighbouring frame",
    "another observation",
)

Progress = Callable[[int, int], None]  # calls done, calls planned


class PolicyCallError(UserError):
    """A call of a check failed. Its message is one line that names the call."""


class NotSeenError(UserError):
    """The time limit was spent before the first call of a check. Its message says so."""


@contextmanager
def _naming_the_failure(what: str) -> Iterator[None]:
    """Raises PolicyCallError, a line that begins with ``what``, for whatever fails inside."""
    try:
        yield
    except TimeUpError:
        raise
    except Exception as error:
        raise PolicyCallError(f"{what}: {error_line(error, 200)}") from error


def affordable(seconds: float, chunk_s: float) -> int:
    """Return how many observations can be checked in ``seconds``, `FEWEST` to `COUNT`."""
    return max(FEWEST, min(COUNT, int(seconds / (CALLS_EACH * max(chunk_s, 1e-6)))))


def make_guidance(subject: ActingSubject) -> Treatment | None:
    """Return Real-Time Chunking for ``subject``, with a horizon that its chunks have room for; None without it."""
    guidance = slices.offer("guidance")
    return guidance(subject, HORIZON, DELAY) if guidance is not None else None


class Sameness:
    """The baseline's chunks on the observations of a check, each computed once, and what is compared with them.

    Args:
        base: treatments of the baseline itself (Real-Time Chunking), on in every call.
        count: observations, at most.
        limit: once it is over, only the calls that a judgement needs are made (`visits.needed`); once it is spent,
            none. It may be put in place later.

    Raises:
        UserError: a treatment of ``base`` does not apply.
    """

    def __init__(
        self,
        subject: ActingSubject,
        base: Sequence[Treatment] = (),
        count: int = COUNT,
        limit: TimeLimit | None = None,
    ) -> None:
        self.subject, self.limit = subject, limit or TimeLimit()
        self.baseline = Variant("baseline", tuple(base))
        self.checks = subject.checks(count)
        guided = any(treatment.key == "rtc" for treatment in base)
        self._guidance = make_guidance(subject) if not guided else None
        self.rtc = self._guidance is not None
        self._chunks: dict[tuple[int, bool], Tensor] = {}
        self._failed: dict[tuple[int, bool], str] = {}  # the baseline's calls that fail, and why
        self._unmeasured: list[str] = []  # yardsticks that could not be measured, and why
        self._scale: ActionScale | None = None

    @property
    def count(self) -> int:
        """How many observations there are."""
        return len(self.checks.observations)

    @property
    def scale(self) -> ActionScale:
        """The spread of the actions; that of the baseline chunks where there are no statistics of it."""
        if self._scale is None:
            self.prepare([CheckCall(index) for index in range(self.count)])
            scale = self.subject.scale([self._chunks[index, False] for index in self._plain(self.count)])
            assert scale is not None  # there are chunks
            self._scale = scale
        return self._scale

    @property
    def notes(self) -> list[str]:
        """Which observations and yardsticks the baseline fails on, and why; none where it takes all."""
        if not self._failed:
            return list(self._unmeasured)
        (observation, rtc), why = next(iter(self._failed.items()))
        first = f"the first is observation {observation + 1}{' with RTC' if rtc else ''}: {why}"
        calls = f"{len(self._failed)} of {len(self._failed) + len(self._chunks)} calls"
        left_out = f"the baseline itself fails in {calls} of the check, which do not count; {first}"
        return [left_out, *self._unmeasured]

    def prepare(self, visits: Sequence[CheckCall], progress: Progress | None = None) -> None:
        """Compute the baseline's chunks of ``visits``, as far as that was not done yet.

        What it fails on is left out of all that follows, and is in `notes`.

        Raises:
            PolicyCallError: it fails on every observation.
            NotSeenError: the time limit was spent before the first chunk.
        """
        wanted = dict.fromkeys((visit.observation, visit.rtc) for visit in visits)
        places = required_visits(visits)
        required = {(visit.observation, visit.rtc) for place, visit in enumerate(visits) if place in places}
        missing = [key for key in wanted if key not in self._chunks and key not in self._failed]
        if missing and not self.limit.is_spent:
            with self._apply_variant(self.baseline):
                for done, (observation, rtc) in enumerate(missing, 1):
                    if not self._has_time(required=(observation, rtc) in required):
                        continue
                    try:
                        self._chunks[observation, rtc] = self._chunk(CheckCall(observation, rtc=rtc))
                    except Exception as error:
                        self._failed[observation, rtc] = error_line(error, 200)
                    if progress is not None:
                        progress(done, len(missing))
        if not any(not rtc for _, rtc in self._chunks):
            if not self._failed:
                raise NotSeenError("the time was over before the baseline's first chunk")
            raise PolicyCallError(f"the baseline fails on every observation: {next(iter(self._failed.values()))}")

    def _has_time(self, *, required: bool) -> bool:
        return not (self.limit.is_spent if required else self.limit.is_work_over)

    def _plain(self, count: int) -> list[int]:
        return [index for index in range(self.count) if (index, False) in self._chunks][:count]

    def check(
        self,
        variant: Variant,
        visits: Sequence[CheckCall],
        progress: Progress | None = None,
        *,
        on_already: bool = False,
    ) -> Agreement:
        """Compare ``variant`` with the baseline on ``visits``, with the same noise, in their order.

        ``variant`` is applied once for all of them, but for those that it is applied for alone.

        Args:
            on_already: whether the treatments are on, and stay on; the baseline chunks were prepared before then.

        Returns:
            Their agreement. Where time was too short for the calls that a judgement needs, it is `short`.

        Raises:
            UserError: a treatment does not apply.
            PolicyCallError: a call fails that does not fail without the treatments, or gives a chunk of another shape.
            NotSeenError: the time limit was spent before the first call.
            LookInterrupted: Ctrl-C, after the first call.
        """
        self.prepare(visits)
        scale = self.scale
        places = required_visits(visits)
        planned = [
            (visit, place in places)
            for place, visit in enumerate(visits)
            if (visit.observation, visit.rtc) not in self._failed
        ]
        planned.sort(key=lambda one: one[0].isolated)  # the treatments are applied for these one by one, at the end
        applied = Variant(variant.name) if on_already else variant
        calls = _Calls(self, variant, scale, len(planned), progress)
        try:
            with self._apply_variant(applied):
                for visit, required in planned:
                    if not visit.isolated and calls.possible(visit, required=required):
                        calls.run(visit)
            for visit, required in planned:
                if visit.isolated and calls.possible(visit, required=required):
                    with self._apply_variant(applied):
                        calls.run(visit)
        except KeyboardInterrupt:
            if not calls.after:
                raise
            found = calls.agreement(visits)
            found.short = True
            found.unjudged = found.unjudged or f"stopped after {len(calls.after)} of {len(planned)} calls"
            raise LookInterrupted(found) from None
        if not calls.after:
            raise NotSeenError(f"the time was over before the first of {len(planned)} calls")
        return calls.agreement(visits)

    def yardstick(self, name: YardstickName, count: int, progress: Progress | None = None) -> Yardstick | None:
        """Measure how far the baseline's own actions move, on ``count`` observations that it takes.

        Returns:
            None for another noise draw of a policy that draws none; and where the policy fails or time is over, which
            `notes` say.

        Raises:
            PolicyCallError: it fails on every observation.
            NotSeenError: the time limit was spent before the first chunk.
            LookInterrupted: Ctrl-C, after the first observation.
        """
        self.prepare([CheckCall(index) for index in range(self.count)], progress)
        if self.limit.is_spent or (self.limit.is_work_over and name != "reordered sums"):
            self._unmeasured.append(f"not measured, since the time was over: {name}")
            return None
        try:
            return self._yardstick(name, count, progress)
        except PolicyCallError as error:
            self._unmeasured.append(str(error))
            return None

    def _yardstick(self, name: YardstickName, count: int, progress: Progress | None) -> Yardstick | None:
        chosen = self._plain(self.count)[:count]
        moved: list[Tensor] = []
        same = ""  # sums that were not reordered
        try:
            with self._apply_variant(self.baseline), _naming_the_failure(f"the baseline fails, {name}"):
                for done, index in enumerate(chosen, 1):
                    if moved and self.limit.is_work_over:
                        break
                    chunk, same = self._moved_chunk(name, index)
                    moved.append(chunk)
                    if progress is not None:
                        progress(done, len(chosen))
                    if name == "another noise draw" and moved[0].equal(self._chunks[chosen[0], False]):
                        return None  # it draws none
        except TimeUpError:
            if not moved:
                self._unmeasured.append(f"not measured, since a call takes longer than there was time for: {name}")
                return None
        except KeyboardInterrupt:
            if not moved:
                raise
            raise LookInterrupted(self._make_yardstick(name, chosen[: len(moved)], moved, same)) from None
        return self._make_yardstick(name, chosen[: len(moved)], moved, same)

    def _moved_chunk(self, name: YardstickName, index: int) -> tuple[Tensor, str]:
        observations, seed = self.checks.observations, self.subject.seed + index
        if name == "reordered sums":
            from strobe.core.sameness.reordered import reorder_sums  # needs torch

            with reorder_sums(seed, self.limit) as met:
                return self._act(observations[index], seed), str(met)
        if name == "another noise draw":
            return self._act(observations[index], seed + OTHER_NOISE), ""
        if name == "neighbouring frame":
            return self._act(self.checks.neighbours[index], seed), ""
        usable = self._plain(self.count)
        return self._act(observations[usable[(usable.index(index) + 1) % len(usable)]], seed), ""

    def _make_yardstick(
        self, name: YardstickName, chosen: Sequence[int], moved: Sequence[Tensor], same: str
    ) -> Yardstick:
        before = [self._chunks[index, False] for index in chosen]
        agreement = agree(before, moved, self.scale)
        assert agreement.rms is not None  # there is a scale
        assert agreement.worst is not None
        about = {
            "reordered sums": f"the same arithmetic, its sums taken in another order{same and ', '}{same}",
            "another noise draw": "the same observation with other noise to start from",
            "neighbouring frame": self.checks.neighbour,
            "another observation": "another observation with the same noise",
        }[name]
        return Yardstick(
            name=name,
            about=about,
            rms=agreement.rms,
            worst=agreement.worst,
            observations=len(chosen),
            dimensions=agreement.dimensions,
        )

    @contextmanager
    def _apply_variant(self, variant: Variant) -> Iterator[None]:
        undo = variant.apply(self.subject)
        try:
            yield
        finally:
            undo()
            self.subject.policy.reset()

    def _chunk(self, visit: CheckCall) -> Tensor:
        if visit.reset:
            self.subject.policy.reset()
        observation, seed = self.checks.observations[visit.observation], self.subject.seed + visit.observation
        if not visit.rtc or self._guidance is None:
            return self._act(observation, seed)
        undo = self._guidance.apply(self.subject)
        try:
            return self._act(observation, seed)
        finally:
            undo()

    def _act(self, observation: Observation, seed: int) -> Tensor:
        return self.subject.act(dict(observation), seed).detach().float().cpu().clone()


class _Calls:
    """The calls of one check, as far as they were made."""

    def __init__(
        self, same: Sameness, variant: Variant, scale: ActionScale, planned: int, progress: Progress | None
    ) -> None:
        self._same, self._variant, self._scale = same, variant, scale
        self._planned, self._progress = planned, progress
        self._visited: list[CheckCall] = []
        self._lacking = 0  # calls that a judgement needs, and that there was no time for
        self.before: list[Tensor] = []
        self.after: list[Tensor] = []

    def possible(self, visit: CheckCall, *, required: bool) -> bool:
        """Return whether there is time for the call, and a chunk of the baseline to compare it with."""
        same = self._same
        possible = (visit.observation, visit.rtc) in same._chunks and same._has_time(required=required)
        self._lacking += required and not possible
        return possible

    def run(self, visit: CheckCall) -> None:
        """Make the call. Raises PolicyCallError."""
        same = self._same
        expected = same._chunks[visit.observation, visit.rtc]
        with _naming_the_failure(f"the call fails ({visit.words or 'plain'})"):
            chunk = same._chunk(visit)
        if self._variant.changes_execution:
            (expected,), (chunk,) = crop_to_common_actions([expected], [chunk])
        if chunk.shape != expected.shape:
            plain = tuple(expected.shape)
            raise PolicyCallError(f"a chunk of {tuple(chunk.shape)}, and {plain} without the treatments")
        self.before.append(expected)
        self.after.append(chunk)
        self._visited.append(visit)
        if self._progress is not None:
            self._progress(len(self.after), self._planned)

    def agreement(self, visits: Sequence[CheckCall]) -> Agreement:
        """Return how far the chunks are apart; of ``visits``, those that were not made are named."""
        same, words = self._same, [visit.words for visit in self._visited]
        agreement = agree(self.before, self.after, self._scale, executed=same.subject.executed_actions, calls=words)
        agreement.how = describe(self._visited)
        given = self._same.checks.observations
        agreement.distinct = len({digest([given[visit.observation]]) for visit in self._visited})
        observations = {visit.observation for visit in visits}
        taken = [index for index in observations if (index, False) not in same._failed]
        if agreement.distinct == 1 < len(observations):
            agreement.unjudged = f"all {len(observations)} observations are one, as of a robot at rest: give others"
        if 2 * len(taken) < len(observations):
            alone = f"the baseline takes {len(taken)} of {len(observations)} observations alone"
            agreement.unjudged = f"{alone}: give observations of its own (--dataset.root or --env.type)"
        if len(self.after) < self._planned:
            seen = f"{len(self.after)} of {self._planned} calls were made in time"
            agreement.how = f"{agreement.how}; {seen}"
            if self._lacking:
                agreement.short = True
                agreement.unjudged = f"{seen}, which are too few to judge by: give more --seconds"
        agreement.changes_execution = self._variant.changes_execution
        return agreement
