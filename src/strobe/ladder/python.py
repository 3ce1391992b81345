"""`strobe.optimize`: the ladder of a target in Python."""

from __future__ import annotations

from strobe.core.cli.live import Live
from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.python.request import VerbArguments
from strobe.core.python.run import produce_answer
from strobe.core.python.shown import ShownAnswer
from strobe.core.results.agreement import Effect
from strobe.core.results.recipe import Recipe
from strobe.core.studies.shared.measuring import Options
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.timeline import Section
from strobe.ladder.answer import build_recipe
from strobe.ladder.candidates import Choice
from strobe.ladder.results import OptimizeResult
from strobe.ladder.run import optimize
from strobe.ladder.settings import Aim

CLOSING_S = 30.0  # longest closing run in seconds, as on the command line


def optimize_request(
    request: VerbArguments, guards: Guards, target_ms: float, seconds: float | None, lossy: bool
) -> FoundRecipe:
    """Climb to ``target_ms`` on the one thing of ``request``. Raises UserError."""
    effects: tuple[Effect, ...] = ("exact", "rounding", "lossy") if lossy else ("exact", "rounding")
    aim = Aim(1e3 / target_ms, guards=guards, choice=Choice(effects=effects), time_limit=seconds)
    sections: list[Section] = []

    def work(subject: CallableSubject, live: Live) -> tuple[OptimizeResult, None]:
        if not subject.target.modules:
            raise UserError(f"{subject.info.name} contains no torch module, so there is nothing to optimize")
        subject.first_calls(live.stage)
        budget = SamplingBudget(seconds=CLOSING_S, precision=request.interval)
        result, recorded = optimize(subject, aim, Options(budget, batch_size=1), (), live, "used")
        sections.extend(recorded)
        return result, None

    config = {"target_ms": target_ms, "guard": str(guards), "lossy": lossy, "seconds": seconds}
    answer = produce_answer(request, work, config)
    return FoundRecipe(answer.result, sections)


class FoundRecipe(ShownAnswer[OptimizeResult]):
    """The answer of `optimize`, with the recipe of its ladder. `save` writes that into the run's folder as well."""

    @property
    def recipe(self) -> Recipe | None:
        """Treatments of the best rung, for `strobe.apply_recipe`; None if nothing is shown to be faster."""
        return build_recipe(self.result)

    def _files(self) -> dict[str, bytes]:
        from strobe.ladder.command import recipe_files

        return recipe_files(self.result, None)
