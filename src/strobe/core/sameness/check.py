"""Run a policy with treatments and without on observations that find faults, and say how far its actions are apart."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from strobe.core.errors import UserError, error_line
from strobe.core.measure.agreement import agree, crop_to_common_actions
from strobe.core.measure.time_limit import LookInterrupted, TimeLimit, TimeUpError
from strobe.core.results.agreement import ActionScale, Agreement, Yardstick, YardstickName
from strobe.core.sameness.visits import FEWEST, CheckCall, describe, mark_required
from strobe.core.slices import Offer
from strobe.core.subjects.check_inputs import COUNT
from strobe.core.subjects.subject import ActingSubject, Observation, digest
from strobe.core.treatments.treatment import Treatment, Variant

if TYPE_CHECKING:
    from torch import Tensor

# Of the calls with Real-Time Chunking, in control ticks: what LeRobot's rollout has where nothing else is said.
HORIZON, DELAY = 10, 4
OTHER_NOISE = 1_000_003  # added to a seed
CALLS_EACH = 7  # approximate calls of the policy per observation: its reference, its visits, its yardsticks

YARDSTICKS: tuple[YardstickName, ...] = get_args(YardstickName)

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
    guidance = Offer[Callable[[ActingSubject, int, int], Treatment | None]]("guidance").find()
    return guidance(subject, HORIZON, DELAY) if guidance is not None else None


@dataclass(frozen=True)
class MadeCall:
    """A call that was made: its chunk, and that of the baseline, of equal shape: (1, chunk, action dim)."""

    visit: CheckCall
    before: Tensor
    after: Tensor


def compare_calls(made: Sequence[MadeCall], scale: ActionScale, executed: int | None) -> Agreement:
    """Return how far the chunks of ``made`` are apart, in σ of ``scale``.

    ``executed``: actions of a chunk that are executed; None if that is not known.
    """
    before, after, visits = [call.before for call in made], [call.after for call in made], [call.visit for call in made]
    agreement = agree(before, after, scale, executed=executed, calls=[visit.words for visit in visits])
    agreement.how = describe(visits)
    return agreement


class Sameness:
    """The baseline's chunks on the observations of a check, each computed once, and what is compared with them.

    Args:
        base: treatments of the baseline itself (Real-Time Chunking), on in every call.
        count: observations, at most.
        limit: once it is over, only the calls that a judgement needs are made; once it is spent, none. It
            may be put in place later.

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
        required = {visit.baseline_call for visit in mark_required(visits) if visit.required}
        wanted = dict.fromkeys(visit.baseline_call for visit in visits)
        missing = [call for call in wanted if call not in self._chunks and call not in self._failed]
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
        planned = [visit for visit in mark_required(visits) if visit.baseline_call not in self._failed]
        made: list[MadeCall] = []
        stopped = lacks_required = False
        try:
            with closing(self._visit(Variant(variant.name) if on_already else variant, planned)) as possible:
                for visit, expected in possible:
                    if expected is None:
                        lacks_required = lacks_required or visit.required
                        continue
                    made.append(self._make_call(variant, visit, expected))
                    if progress is not None:
                        progress(len(made), len(planned))
        except KeyboardInterrupt:
            if not made:
                raise
            stopped = True
        if not made:
            raise NotSeenError(f"the time was over before the first of {len(planned)} calls")
        agreement = compare_calls(made, scale, self.subject.executed_actions)
        agreement.short, agreement.changes_execution = stopped, variant.changes_execution
        agreement.distinct = len({digest([self.checks.observations[call.visit.observation]]) for call in made})
        agreement.unjudged = self._inputs_fault(agreement.distinct, visits) or agreement.unjudged
        if len(made) < len(planned):
            seen = f"{len(made)} of {len(planned)} calls were made in time"
            agreement.how = f"{agreement.how}; {seen}"
            if lacks_required:
                agreement.short = True
                agreement.unjudged = f"{seen}, which are too few to judge by: give more --seconds"
        if stopped:
            agreement.unjudged = agreement.unjudged or f"stopped after {len(made)} of {len(planned)} calls"
            raise LookInterrupted(agreement)
        return agreement

    def _visit(
        self, variant: Variant, planned: Sequence[CheckCall]
    ) -> Generator[tuple[CheckCall, Tensor | None], None, None]:
        """Yield the planned calls, each while ``variant`` is applied, with the baseline's chunk; None without time."""
        with self._apply_variant(variant):
            for visit in (each for each in planned if not each.isolated):
                yield visit, self._expected_chunk(visit)
        for visit in (each for each in planned if each.isolated):
            if (expected := self._expected_chunk(visit)) is None:
                yield visit, None
                continue
            with self._apply_variant(variant):
                yield visit, expected

    def _expected_chunk(self, visit: CheckCall) -> Tensor | None:
        return self._chunks.get(visit.baseline_call) if self._has_time(required=visit.required) else None

    def _make_call(self, variant: Variant, visit: CheckCall, expected: Tensor) -> MadeCall:
        """Make the call. Raises PolicyCallError."""
        with _naming_the_failure(f"the call fails ({visit.words or 'plain'})"):
            chunk = self._chunk(visit)
        if variant.changes_execution:
            (expected,), (chunk,) = crop_to_common_actions([expected], [chunk])
        if chunk.shape != expected.shape:
            plain = tuple(expected.shape)
            raise PolicyCallError(f"a chunk of {tuple(chunk.shape)}, and {plain} without the treatments")
        return MadeCall(visit, expected, chunk)

    def _inputs_fault(self, distinct: int, visits: Sequence[CheckCall]) -> str | None:
        """Return why the observations of ``visits``, ``distinct`` of them different, show too little; None if not."""
        observations = {visit.observation for visit in visits}
        taken = [index for index in observations if (index, False) not in self._failed]
        if 2 * len(taken) < len(observations):
            alone = f"the baseline takes {len(taken)} of {len(observations)} observations alone"
            return f"{alone}: give observations of its own (--dataset.root or --env.type)"
        if distinct == 1 < len(observations):
            return f"all {len(observations)} observations are one, as of a robot at rest: give others"
        return None

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
            from strobe.core.sameness.reordered import ReorderedSums  # needs torch

            with ReorderedSums(seed, self.limit) as met:
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
