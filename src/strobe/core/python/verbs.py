"""`strobe.compare`, `breakdown`, `verify` and `optimize`: their arguments, checked before a heavy import."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guard, Guards
from strobe.core.python.request import VerbArguments
from strobe.core.python.shown import ShownAnswer
from strobe.core.torch_there import has_torch

if TYPE_CHECKING:
    from strobe.core.results.answer import BreakdownResult, CompareResult, VerifyResult


def compare(
    variants: Mapping[str, object],
    inputs: object,
    *,
    seconds: float | None = None,
    interval: float = 0.01,
    guard: str = "",
    device: str | None = None,
    name: str | None = None,
    seed: int = 0,
) -> ShownAnswer[CompareResult]:
    """Judge variants against the first one: is it faster, and are the outputs the same?

        answer = strobe.compare({"eager": f, "compiled": g}, inputs)

    The variants are called in alternation (A B, B A, …) with the same input and the same seed in each round, and
    judged on the paired ratio of their times, as `strobe compare` does. Nothing is judged of parts: `breakdown` shows
    them. A call is made unchanged: wrap a torch module in `torch.no_grad()` where that is how it runs.

    Args:
        variants: name → a function, a torch module, or an object with `infer`, `get_action`, `predict_action_chunk`,
            `sample_actions` or `select_action`, of which the first that it has is called. An object is `reset` before
            each `infer`, `get_action` and `select_action`, where it can be, so that no call takes an action from a
            queue. JAX's arrays are waited for. Each call gets a copy of the arrays and tensors of its input.
        inputs: one input, or a list of inputs that the rounds take in turn. A tuple is the arguments of one call, and
            () a call without any; anything else is the only argument, a dict too. For keywords, or for a list as the
            only argument, pass a function that takes something else.
        seconds: wall time of the rounds, without the first calls. Default: 30, or what the fewest to judge by take.
        interval: stop earlier where the interval is as narrow as this share of the time to either side.
        guard: limits on how far outputs may move, such as 'cosine>=0.999, largest_error<=1e-3'. Those in σ are not
            judged, as the spread of an output is not known.
        device: torch's name of the device whose time is taken. Default: that of the modules inside, else of the inputs.
        name: of what is compared, for titles. Default: that of the first variant.
        seed: of torch, NumPy and `random` in the first round; the next rounds count on. They are restored.

    Returns:
        The answer of `strobe compare`, without parts. An interrupt keeps the rounds that were measured.

    Raises:
        UserError: fewer than two variants, nothing to call, no inputs, a bad number, or a variant that fails on an
            input; the variant's own exception is its cause.
        KeyboardInterrupt: before the first round ended.
    """
    if not isinstance(variants, Mapping) or len(variants) < 2:
        raise UserError("compare takes two variants or more, by name: {'eager': f, 'compiled': g}")
    request = VerbArguments(variants, inputs, seconds, interval, device, name, seed)
    guards = Guards.parse(guard)
    announce_imports()
    from strobe.core.python.run import run_comparison

    return run_comparison(request, guards if guard.strip() else None)


def breakdown(
    target: object,
    inputs: object,
    *,
    seconds: float | None = None,
    interval: float = 0.01,
    depth: int = 1,
    count: bool = True,
    device: str | None = None,
    seed: int = 0,
) -> ShownAnswer[BreakdownResult]:
    """Measure where the time of a call goes, by the torch modules inside.

        answer = strobe.breakdown(policy, observation)

    A torch module is cut along its modules. A policy of a known LeRobot type is cut into the parts of its family. So
    are openpi's `PI0Pytorch` and Isaac-GR00T's `Gr00tN1d7`, and the policies that hold them. Any other object is cut
    along the torch modules among its attributes and their own methods. A function is one part, but for what it opens
    with `strobe.section`. Code that is compiled already is one part, too, and so is a model of JAX.

    Args:
        target: what is called, as a variant of `compare`.
        inputs, seconds, interval, device, seed: as in `compare`.
        depth: levels of parts.
        count: whether FLOP and memory are counted, and the machine's ceiling measured to compare them with. That takes
            some seconds; without torch modules nothing is counted.

    Returns:
        The answer of `strobe breakdown` for inference. An interrupt keeps the rounds that were measured.

    Raises:
        UserError: nothing to call, no inputs, a bad number, or a target that fails on an input.
        KeyboardInterrupt: before the first round ended.
    """
    if depth < 1:
        raise UserError(f"depth={depth}: must be at least 1")
    request = VerbArguments({"inference": target}, inputs, seconds, interval, device, None, seed)
    announce_imports()
    from strobe.core.python.run import broken_down

    return broken_down(request, depth, count)


def verify(
    before: object, after: object, inputs: object, *, guard: str, device: str | None = None, seed: int = 0
) -> ShownAnswer[VerifyResult]:
    """Say whether ``after`` returns what ``before`` does, within a guard, input by input. Nothing is timed.

        answer = strobe.verify(eager, compiled, observations, guard="largest_error<=1e-3")
        assert answer.outcome == "held"

    Args:
        before, after: what is called, as variants of `compare`.
        inputs, device, seed: as in `compare`.
        guard: limits such as 'cosine>=0.999, largest_error<=1e-3', the second in the output's own units. Those in σ are
            not judged. There is no default, as nobody but you knows what the outputs mean.

    Returns:
        An answer like that of `strobe verify`; ``outcome`` is 'held', 'broken' or 'not judged'. An ``after`` that fails
        or returns other shapes has broken the guard. An interrupt keeps the inputs that were looked at.

    Raises:
        UserError: nothing to call, no inputs, a guard that cannot be read, or a ``before`` that fails on an input.
    """
    request = VerbArguments({"before": before, "after": after}, inputs, 1.0, 1.0, device, None, seed)
    limits = Guard.parse(guard)
    announce_imports()
    from strobe.core.python.run import run_verification

    return run_verification(request, limits)


def announce_imports(library: str = "") -> None:
    """Say that the first call imports what takes seconds: torch where it is installed, and a ``library`` besides."""
    if has_torch() and ("lerobot.policies" if library else "torch") not in sys.modules:
        print(f"… importing torch{library}", file=sys.stderr, flush=True)
