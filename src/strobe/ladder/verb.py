"""`strobe.optimize`: its arguments, checked before a heavy import."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from strobe.core.cli.live import prepare_imports
from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards
from strobe.core.python.request import VerbArguments
from strobe.core.python.verbs import announce_imports

if TYPE_CHECKING:  # it brings torch and LeRobot
    from strobe.ladder.python import FoundRecipe


def optimize(
    target: object,
    inputs: object,
    *,
    target_ms: float = 50.0,
    guard: str = "",
    seconds: float | None = None,
    lossy: bool = False,
    device: str | None = None,
    seed: int = 0,
) -> FoundRecipe:
    """Search for treatments that make a call fast enough, with the same outputs within limits.

        answer = strobe.optimize(policy, observations, target_ms=50)
        strobe.apply_recipe(answer.recipe, policy)

    The same ladder as that of `strobe optimize`: one treatment at a time, of those that need only torch modules, such
    as compiling, other floating-point formats or channels last. Each is judged in alternation with the treatments
    accepted before. All together must stay within the limits. In the end no treatment is applied to the target.

    Args:
        target: a torch module, or an object with modules inside, called as a variant of `compare`.
        inputs, device, seed: as in `compare`.
        target_ms: milliseconds within which 95 % of the calls must end.
        guard: limits on how far outputs may change, such as 'cosine>=0.999, largest_error<=1e-3'. By default exact
            treatments must agree up to floating-point noise, and the others within 'rms<=0.02, worst<=0.2', in σ, the
            standard deviation of each column (a place along the last dimension) over the rows of all baseline outputs.
            Without 8 different rows there is no σ: then such limits are not judged, and no treatment is accepted that
            changes an output.
        seconds: for the search; by default 80 on a CPU and 300 elsewhere, or more if a call takes long.
        lossy: whether to try treatments that change the outputs by more than rounding does, such as int8.

    Returns:
        The answer of `strobe optimize`. ``recipe`` is for `apply_recipe`; None if nothing is shown to be faster.
        An interrupt keeps the steps so far.

    Raises:
        UserError: nothing to call, no inputs, a bad number, a guard that cannot be read, or a target that fails.
        KeyboardInterrupt: before the baseline was measured.
    """
    limit = seconds if seconds is not None else 1.0
    request = VerbArguments({"target": target}, inputs, limit, 0.1, device, None, seed)
    if not isinstance(target_ms, int | float) or not (math.isfinite(target_ms) and target_ms > 0):
        raise UserError(f"target_ms={target_ms}: must be a number above zero")
    guards = Guards.parse(guard)
    if guards.requested is not None:
        guards.requested.require_figures("outputs")
    announce_imports(prepare_imports())
    from strobe.ladder.python import optimize_request

    return optimize_request(request, guards, float(target_ms), seconds, lossy)
