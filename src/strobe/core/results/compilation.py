"""What torch.compile did in the calls of one measurement: its graphs and seconds, and the lines to look at."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite

What = Literal["graph break", "not compiled", "recompiled", "no CUDA graph"]


class CompiledPlace(Data):
    """A line at which compiled code stops, is compiled again, or is not captured in a CUDA graph."""

    what: What
    where: str = Field(default="", description="file and line, from the folder that its package was imported from")
    function: str = Field(default="", description="function with the line; if it is not compiled, the whole function")
    times: int = Field(default=1, description="number of compilations, one that a limit refused included")
    late: int = Field(default=0, description="of the recompilations, those after the warm-up, in measured calls")
    limit: str = Field(
        default="", description="limit of recompilations that was reached: 'recompile_limit=8'; '' if none"
    )
    reasons: list[str] = Field(default_factory=list, description="torch's reasons or failed guards, a few that differ")


class Compilation(Data):
    """What torch.compile did from the first call to the last measured one, by torch's own records."""

    graphs: int = Field(description="compiled graphs, forward and backward")
    compile_s: Finite | None = Field(
        default=None, description="seconds of compiling; None if torch does not record them"
    )
    capture_s: Finite = Field(default=0.0, description="seconds of capturing CUDA graphs")
    warmup_s: Finite = Field(default=0.0, description="other seconds of the calls before the measured ones")
    places: list[CompiledPlace] = Field(default_factory=list, description="those with the most compilations first")
    unjudged: str = Field(default="", description="what this version of torch does not tell, in a line; '' if nothing")

    def of(self, *kinds: What) -> list[CompiledPlace]:
        """Return the places of these kinds."""
        return [place for place in self.places if place.what in kinds]

    @property
    def breaks(self) -> list[str]:
        """The lines at which compiled code stops, each once."""
        return list(dict.fromkeys(place.where for place in self.of("graph break", "not compiled")))
