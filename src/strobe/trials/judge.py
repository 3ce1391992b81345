"""Trials are judged as episodes are: by pairs, with sequences that hold at every number of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError
from strobe.evaluate.measure.planning import fewest_pairs, fewest_pairs_apart
from strobe.evaluate.measure.success_rates import paired_rates, success_rate
from strobe.evaluate.measure.time_to_task import Ended, judge_times, time_to_task
from strobe.trials.plan import KEY, SHEET, TrialKey, TrialPlan, load_key, load_plan
from strobe.trials.results import Code, OfOrder, Trial, TrialsResult, TriedSetting
from strobe.trials.sheet import SheetLimits, read_sheet
from strobe.version import __version__


@dataclass(frozen=True)
class Pair:
    """Two trials from one start, by their code and by their place."""

    of: dict[Code, Trial]
    first: Trial
    second: Trial


def judge(
    plan: TrialPlan, trials: Sequence[Trial], key: TrialKey | None, source: str, blind: str | None = None
) -> TrialsResult:
    """Judge the trials that were run.

    Args:
        trials: by their place in the plan.
        key: None for a blind look: whether it is decided, and not for which setting.
        source: the file that was read.
        blind: why there is no key.
    """
    pairs = _pairs(trials)
    result = TrialsResult(
        strobe_version=__version__,
        title="two settings on the robot",
        source=source,
        planned=len(plan.orders),
        margin=plan.margin,
        limit_s=plan.limit_s,
        blind=blind if key is None else None,
        trials=list(trials),
        counted=len(pairs),
    )
    _record_deviations(result, plan, pairs)
    # Without the key the two have no order: the second code is compared with the first.
    default: Code = key.default if key is not None else "A"
    codes: tuple[Code, Code] = ("A", "B") if default == "A" else ("B", "A")
    _judge_success(result, pairs, codes, key)
    _judge_times(result, pairs, codes, key)
    if key is not None:
        result.settings = [_setting(result, key, code, pairs) for code in codes]
        result.title = " against ".join(setting.name for setting in reversed(result.settings))
        result.orders = [_order_effect(key, code, codes, pairs) for code in codes]
    return result


def _pairs(trials: Sequence[Trial]) -> list[Pair]:
    by_pair: dict[int, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.trial):
        by_pair.setdefault(trial.pair, []).append(trial)
    return [
        Pair({trial.code: trial for trial in both}, both[0], both[1])
        for _, both in sorted(by_pair.items())
        if {trial.code for trial in both} == {"A", "B"}
    ]


def _record_deviations(result: TrialsResult, plan: TrialPlan, pairs: Sequence[Pair]) -> None:
    run = {trial.pair for trial in result.trials}
    whole = {pair.first.pair for pair in pairs}
    result.half_run = sorted(run - whole)
    result.passed_over = [pair for pair in range(1, max(run, default=0)) if pair not in run]
    result.other_order = sorted({t.pair for t in result.trials if plan.orders[t.pair - 1][(t.trial - 1) % 2] != t.code})
    starts = [(pair.first.pair, pair.first.condition, pair.second.condition) for pair in pairs]
    result.other_start = [pair for pair, one, other in starts if one and other and _plain(one) != _plain(other)]
    if pairs:
        firsts = [pair.first.success for pair in pairs]
        result.places = paired_rates(firsts, [pair.second.success for pair in pairs], every=None)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _judge_success(result: TrialsResult, pairs: Sequence[Pair], codes: tuple[Code, Code], key: TrialKey | None) -> None:
    fewest = min(fewest_pairs_apart(), fewest_pairs(result.margin))
    if len(pairs) < fewest:
        complete = "1 pair is complete" if len(pairs) == 1 else f"{len(pairs)} pairs are complete"
        result.rates_not_judged = f"{complete}, and fewer than {fewest} decide nothing"
        return
    before, after = ([pair.of[code].success for pair in pairs] for code in codes)
    rates = paired_rates(before, after, result.margin)
    if rates.decision.kind in ("better", "worse"):
        result.decided.append("success")
    if key is None:
        result.rates_not_judged = "the key was not opened"
    else:
        result.rates = rates


def _judge_times(result: TrialsResult, pairs: Sequence[Pair], codes: tuple[Code, Code], key: TrialKey | None) -> None:
    result.times_not_judged = _times_unjudged_reason(result, pairs)
    if result.times_not_judged:
        return
    before, after = (_trial_ends(result, pairs, code) for code in codes)
    times = judge_times(before, after)
    if times.kind in ("sooner", "later"):
        result.decided.append("time")
    if key is None:
        result.times_not_judged = "the key was not opened"
    else:
        result.times = times


def _times_unjudged_reason(result: TrialsResult, pairs: Sequence[Pair]) -> str | None:
    """Return why the times of these pairs are not judged; None if they are."""
    if result.limit_s is None:
        return "the plan states no limit of a trial (--limit_s)"
    done = [trial for pair in pairs for trial in pair.of.values() if trial.success]
    if not done:
        return "no trial of a complete pair succeeded"
    if missing := [trial for trial in done if trial.seconds is None]:
        return f"{len(missing)} of {len(done)} successes have no seconds (trial {missing[0].trial} is the first)"
    if all(trial.seconds == result.limit_s for trial in done):
        return "every success has the limit of a trial as its seconds"
    if len(pairs) < fewest_pairs_apart():
        return f"fewer than {fewest_pairs_apart()} pairs decide nothing"
    return None


def _trial_ends(result: TrialsResult, pairs: Sequence[Pair], code: Code) -> list[Ended]:
    assert result.limit_s is not None  # else times are not judged
    return [
        Ended(result.limit_s if trial.seconds is None else trial.seconds, trial.success, result.limit_s)
        for trial in (pair.of[code] for pair in pairs)
    ]


def _setting(result: TrialsResult, key: TrialKey, code: Code, pairs: Sequence[Pair]) -> TriedSetting:
    setting, second = key.settings[code], code != key.default
    outcomes = [pair.of[code].success for pair in pairs]
    timed = result.times is not None and any(outcomes)
    return TriedSetting(
        name=setting.name,
        code=code,
        flags=setting.flags,
        recipe=setting.recipe,
        success=success_rate(outcomes) if outcomes else None,
        time=time_to_task(_trial_ends(result, pairs, code), result.times if second else None) if timed else None,
    )


def _order_effect(key: TrialKey, code: Code, codes: tuple[Code, Code], pairs: Sequence[Pair]) -> OfOrder:
    these = [pair for pair in pairs if pair.first.code == code]
    won = [(pair.of[codes[0]].success, pair.of[codes[1]].success) for pair in these]
    return OfOrder(
        first=key.settings[code].name, pairs=len(these), lost=won.count((True, False)), won=won.count((False, True))
    )


def judge_trials(path: Path, *, blind: bool = False) -> TrialsResult:
    """Judge the trials of a plan.

    Args:
        path: the plan's folder, or its table.
        blind: leave the key closed.

    Raises:
        UserError: no plan there, a damaged file, or a row with a missing or odd value.
    """
    folder = path if path.is_dir() else path.parent
    if not path.exists():
        raise UserError(f"--judge={path}: there is no such folder or file")
    plan = load_plan(folder)
    file = folder / SHEET if path.is_dir() else path
    trials = read_sheet(file, SheetLimits(len(plan.orders), plan.limit_s))
    missing = "" if (folder / KEY).exists() else f"{folder} has no {KEY}"
    why = "--blind leaves the key closed" if blind else missing
    key = None if why else load_key(folder)
    return judge(plan, trials, key, str(file), why)
