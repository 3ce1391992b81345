"""How far a backbone's own features move by what is harmless: the yardstick of its exact treatments."""

from __future__ import annotations

from collections.abc import Callable

from strobe.errors import UserError, in_a_line
from strobe.measure.features import agree_features
from strobe.policies.subject import Subject
from strobe.results.agreement import Yardstick
from strobe.sameness.reordered import reordered
from strobe.treatments.treatment import Variant

SEED = 0


def features_reordered(
    subject: Subject, untouched: Variant, count: int, progress: Callable[[int, int], None] | None = None
) -> Yardstick | None:
    """Measure how far the features of ``untouched`` move on ``count`` clips when its sums are taken in another order.

    Returns:
        None where the features have too few tokens to have a spread.

    Raises:
        UserError: a call fails.
    """
    call = subject.call("inference", 1)
    before, after = [], []
    undo = untouched.apply(subject)
    try:
        for index in range(count):
            before.append(call(index).detach().float().cpu().clone())
            with reordered(SEED + index):
                after.append(call(index).detach().float().cpu().clone())
            if progress is not None:
                progress(index + 1, count)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"the untouched backbone fails with its sums reordered: {in_a_line(error, 200)}") from error
    finally:
        undo()
    found = agree_features(before, after)
    if found.rms is None or found.worst is None:
        return None
    return Yardstick(
        name="reordered sums",
        about="the same arithmetic, its sums taken in another order",
        rms=found.rms,
        worst=found.worst,
        token=found.token,
        observations=count,
        dimensions=found.dimensions,
    )
