"""An answer in Python, with the ways to look at it and to keep it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from strobe.core.errors import UserError

if TYPE_CHECKING:
    from strobe.core.report.document import Document
    from strobe.core.results.answer import Result
    from strobe.core.timeline import Section


R = TypeVar("R", bound="Result")


class ShownAnswer(Generic[R]):
    """The answer of a study. It has the fields of its ``result``, such as ``answer.comparisons``.

    Attributes:
        result: the data, as `result.json` holds them.
    """

    def __init__(self, result: R, sections: Sequence[Section] = ()) -> None:
        self.result = result
        self._sections = sections

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "result":  # a copy asks before there is a result
            raise AttributeError(name)
        return getattr(self.result, name)

    def show(self, *, full: bool = False) -> None:
        """Print the answer on one screen; with ``full`` every table, finding and note."""
        from strobe.core.cli.display import screen
        from strobe.core.report import console

        if full:
            console.render(self._document, screen())
        else:
            console.render_brief(self._document, screen(), whole="show(full=True)")

    def save(self, folder: str | Path = "runs") -> Path:
        """Write a run below ``folder``, as the command line does, and return the run's own new folder.

        It holds result.json, report.html and trace.json.gz; `strobe report`, `strobe diff` and `strobe history` read
        it. Raises NotKeptError where it cannot be written.
        """
        from strobe.core.cli.keep import build_trace, latest, write_run

        trace = build_trace(self.result, latest(self._sections)) if self._sections else None
        return write_run(self.result, Path(folder), trace, self._files())

    def _files(self) -> dict[str, bytes]:
        return {}

    def to_pandas(self, *, samples: bool = False) -> Any:
        """Return a DataFrame with a row for each measurement and for each of its parts.

        Args:
            samples: a row for each sample of a measurement instead, in the order in which they were taken.

        Returns:
            ``name``, ``part`` ('' for the whole, else its path with ' > ' in between), ``median_ms``, ``mean_ms``,
            ``p95_ms``, ``share`` of the whole (0 to 1), ``calls`` an iteration. Of samples: ``name``, ``round`` (from
            0, the warm-up included), ``warmup``, ``ms``.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise UserError("to_pandas() needs a package: pip install pandas") from None
        return pandas.DataFrame(self._samples() if samples else self._figures())

    def _samples(self) -> dict[str, list[object]]:
        columns: dict[str, list[object]] = {"name": [], "round": [], "warmup": [], "ms": []}
        for measurement in self.result.measurements:
            warm, values = measurement.samples.warmup, measurement.samples.values
            columns["name"] += [measurement.name] * (len(warm) + len(values))
            columns["round"] += range(len(warm) + len(values))
            columns["warmup"] += [True] * len(warm) + [False] * len(values)
            columns["ms"] += [*warm, *values]
        return columns

    def _figures(self) -> dict[str, list[object]]:
        names = ("name", "part", "median_ms", "mean_ms", "p95_ms", "share", "calls")
        rows: list[tuple[object, ...]] = []
        for m in self.result.measurements:
            whole = m.samples.summary
            rows.append((m.name, "", whole.median, whole.mean, whole.p95, 1.0, 1.0))
            for part in m.components:
                its = part.summary
                rows.append((m.name, " > ".join(part.path), its.median, its.mean, its.p95, part.share, part.calls))
        return {name: [row[index] for row in rows] for index, name in enumerate(names)}

    @property
    def _document(self) -> Document:
        from strobe.core.kinds import document

        return document(self.result)

    def __repr__(self) -> str:
        return "\n".join(self._document.answers)

    def _repr_html_(self) -> str:
        """Return the answer for a notebook: at most 100 KB without scripts, styles of its own, or a network."""
        from strobe.core.report import notebook

        return notebook.render(self._document)
