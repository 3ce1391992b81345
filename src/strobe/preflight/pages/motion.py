"""The motion of a recording on a page: what is odd in which episode, and plots that show it."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.report import charts
from strobe.core.report.document import Columns, Section, figure, table, words
from strobe.core.report.frame import Plots
from strobe.motion.checks import CHECKS
from strobe.motion.results import CameraLag, Motion, RestPoints, Trace

MOST_ROWS, MOST_TRACES = 60, 6
KEY = "motion"


def sections(motion: Motion) -> list[Section]:
    """Return the table of odd episodes, with what was looked at below it."""
    whole = [each for each in motion.found if len(each.episodes) == len(motion.rows)]
    odd = {number: [each for each in motion.found if number in each.episodes] for number in motion.rows}
    shown = [number for number, found in odd.items() if len(found) > len(whole)]
    columns: Columns[int] = [
        words("Episode", str),
        figure("Rows", motion.rows.__getitem__),
        words("What is odd in it", lambda number: "; ".join(each.title for each in odd[number] if each not in whole)),
    ]
    read = [check.reads for check in CHECKS if check.name in motion.checks]
    notes = [f"In each episode: {each.title}." for each in whole]
    notes.append(f"{len(shown):,} of {len(motion.rows):,} episodes have something odd of their own.")
    notes += [f"The first {MOST_ROWS} are shown."] if len(shown) > MOST_ROWS else []
    notes.append(f"Looked at: {'; '.join(read)}.")
    notes += [_note_camera(camera) for camera in motion.cameras]
    notes += [f"Not judged: {reason}." for reason in motion.unjudged]
    return [Section(KEY, "Episodes and their motion", table(shown[:MOST_ROWS], columns) if shown else None, notes)]


def _note_camera(camera: CameraLag) -> str:
    shown = f"{len(camera.episodes)} of" if camera.episodes else "none of"
    lag = f"its lag behind {camera.against or 'the rows'} is shown by {shown} {camera.looked_at} episodes"
    return f"{camera.camera}: {lag}."


def plots(motion: Motion) -> Plots:
    """Return the plots of the motion, by section."""
    made = [_rest_plot(motion.rests)] if motion.rests else []
    made += [_trace_plot(each) for each in motion.traces[:MOST_TRACES]]
    made += [_lag_plot(motion.cameras)] if motion.cameras else []
    return {KEY: made} if made else {}


def _rest_plot(rests: list[RestPoints]) -> charts.Plot:
    data = []
    for number, (name, wanted) in enumerate((("as the others", False), ("named above", True))):
        points = list(_points(rests, wanted))
        if points:
            x, y = zip(*points, strict=True)
            data.append(charts.points(name, x, y, charts.colour(number), symbol="line-ns-open", size=13))
    names = charts.names_axis([each.joint for each in rests], **charts.DOWN)
    axis = charts.axis("state less action at rest, in the joint's unit", zeroline=True)
    layout = charts.layout(140 + 34 * len(rests), axis, names, legend=charts.LEGEND_ABOVE)
    caption = "A mark for each episode. A servo that is calibrated like its leader rests near 0."
    return charts.Plot("Where the joints rest, against their commands", caption, data, layout)


def _points(rests: list[RestPoints], wanted: bool) -> Iterator[tuple[float, int]]:
    for place, each in enumerate(rests):
        for action, state, odd in zip(each.action, each.state, each.odd, strict=True):
            if odd == wanted:
                yield state - action, place


def _trace_plot(trace: Trace) -> charts.Plot:
    x = list(range(trace.first, trace.first + len(trace.values)))
    data = [charts.line(trace.name, x, trace.values, charts.colour(1), points=4)]
    layout = charts.layout(280, charts.axis(f"frame of episode {trace.episode}"), charts.axis("value"))
    return charts.Plot(f"{trace.name} in episode {trace.episode}", "The values as they are recorded.", data, layout)


def _lag_plot(cameras: list[CameraLag]) -> charts.Plot:
    data = [
        charts.line(_name_lag(camera), camera.lags_s, camera.correlation, charts.colour(number))
        for number, camera in enumerate(cameras)
    ]
    x, y = charts.axis("seconds by which the images are behind"), charts.axis("correlation")
    layout = charts.layout(300, x, y, shapes=[charts.dashed_line(0.0)], legend=charts.LEGEND_ABOVE)
    caption = "The change of the images against the speed of the joints, or another camera's. A peak at 0: no lag."
    return charts.Plot("Images against rows in time", caption, data, layout)


def _name_lag(lag: CameraLag) -> str:
    return lag.camera if lag.against is None else f"{lag.camera} behind {lag.against}"
