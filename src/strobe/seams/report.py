"""The causes of jumps between chunks on the page of `strobe replay`, and the finding that names one."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.report.document import Columns, Section, figure, listing, words
from strobe.core.results.answer import Answer
from strobe.core.results.data import Interval
from strobe.core.results.finding import Finding, warning
from strobe.core.results.numerals import format_fixed
from strobe.seams.results import Cause, CauseName, RemedyName, SeamCauses

TITLE = "Why chunks do not meet"
LABELS: dict[CauseName, str] = {
    "noise": "each call draws noise of its own",
    "observation": "the observation has changed since the last call",
    "arm": "the arm is behind its commands",
    "count": "the engine skips other actions than those that were executed",
    "step": "the ordinary step",
}
FEWER_STEPS = "Replay the run with a lower --policy.n_action_steps, so that calls lie closer together."
SOONER = "Replay the run with a higher --inference.queue_threshold, so that calls begin sooner."
REMEDIES: dict[RemedyName, str] = {
    "none": "as recorded",
    "counted": "chunks that begin after the executed actions",
    "aligned": "chunks that begin at the action nearest to the next step",
    "same noise": "the same noise in each call",
}


def _share(cause: Cause) -> str:
    return f"{_percent(cause.share)} %{_ends(cause.interval)}"


def _ends(interval: Interval | None) -> str:
    return f" [{_percent(interval.low)}, {_percent(interval.high)}]" if interval is not None else ""


def _percent(share: float) -> str:
    return format_fixed(100 * share, 0)


def _columns(causes: SeamCauses) -> Columns[Cause]:
    rest = "what the guidance of Real-Time Chunking changes" if causes.guided else "not explained by these calls"
    labels = LABELS | ({"noise": rest} if causes.draws == 1 else {})  # calls that are all alike have no noise
    return [words("Cause", lambda cause: labels[cause.name]), figure("Share of the jumps", lambda cause: cause, _share)]


def sections(causes: SeamCauses | None) -> list[Section]:
    """Return the table of causes; none where no jump was split."""
    if causes is None:
        return []
    remedies = [f"{REMEDIES[each.name]} {each.jump:.1f}" for each in causes.remedies]
    text = (
        f"{causes.seams} seams between recorded chunks, split by calls of the policy on the recorded observations. "
        "Shares sum to 100 %; one below 0 makes the jumps smaller. Brackets are 95 % intervals over seams. "
    )
    if causes.draws > 1:
        text += f"{causes.draws} calls on each observation tell what noise does. "
    if causes.guided:
        text += "Real-Time Chunking guided the recorded chunks: what its guidance did is a part of the noise. "
    if remedies:
        text += f"Jumps in ordinary steps (median): {', '.join(remedies)}. "
    text += f"{causes.back} jumps go back along the path, {causes.off} leave it to a side."
    if causes.left_out:
        text += f" {causes.left_out} more seams have no recorded observation."
    if causes.not_judged is not None:
        return [Section("causes", TITLE, None, [f"Not judged: {causes.not_judged}."])]
    return listing("causes", TITLE, causes.causes, _columns(causes), text)


def seam_cause(result: Answer, _: Thresholds) -> Iterator[Finding]:
    """The cause of most of the jumps between chunks, where the interval shows it."""
    causes: SeamCauses | None = getattr(result, "causes", None)
    cause = causes.main_cause if causes is not None else None
    if causes is None or cause is None:
        return
    seen = {
        "noise": f"is how far single calls lie from the mean of {causes.draws} calls on the same observation.",
        "observation": "is what the newer observation changes. The observations of two chunks lie "
        f"{causes.age_s or 0:.2f} s apart (median).",
        "arm": "goes away if the policy is given the last command in place of the arm's position." + _lag_text(causes),
        "count": f"is the engine's count: a chunk begins {causes.miscounted or 0:+.0f} actions from the next one to "
        "execute (median).",
    }.get(cause.name, "")
    more = ", more than all since another cause makes them smaller," if cause.share > 1.05 else ""
    seen = f"Of the jumps at {causes.seams} seams, {_share(cause)}{more} {seen}"
    jumps = {each.name: each.jump for each in causes.remedies}
    remedy: RemedyName | None = {"noise": "same noise", "arm": "aligned", "count": "counted"}.get(cause.name)  # type: ignore[assignment]
    if remedy in jumps:
        seen += f" With {REMEDIES[remedy]}, a jump has {jumps[remedy]:.1f} ordinary steps, not {jumps['none']:.1f}."
    yield warning(
        rule="seam-cause",
        title=f"Chunks do not meet: {LABELS[cause.name]}",
        found=seen,
        why="Each jump is split by calls of the policy on the recorded observations, each changed in one thing.",
        do=_advise(causes, cause.name),
    )


def _advise(causes: SeamCauses, cause: CauseName) -> str:
    """Return what to try, of what the run's policy and its engine take."""
    if cause == "count":
        fixed = "LeRobot's pull request 4454 counts the executed actions: replay the run with --rtc_version=4454."
        return f"{fixed} Or make the loop hold its --fps."
    if cause == "observation":
        sooner = SOONER if causes.guided else FEWER_STEPS
        return f"{sooner} A faster policy (--latency=x0.5) helps where calls wait for each other."
    if causes.guided:
        bound = (
            "Replay the run with a longer --inference.rtc.execution_horizon: it binds more of each chunk to the last."
        )
    elif causes.can_rtc:
        bound = "Replay the run with --inference.type=rtc, which guides each chunk to continue the last one."
    else:
        bound = "Real-Time Chunking cannot guide this policy."
    if cause == "noise":
        fewer = "" if causes.guided else " A higher --policy.n_action_steps makes fewer seams."
        return f"{bound} More denoising steps may bring the calls closer together.{fewer}"
    nearest = "An engine of your own can begin each chunk at the action nearest to the last command."
    return f"{bound} Servos with a higher gain are less behind. {nearest}"


def _lag_text(causes: SeamCauses) -> str:
    if causes.behind is None:
        return ""
    return f" {causes.behind_joint} is {causes.behind:.3g} behind its command when a chunk is asked for (median)."
