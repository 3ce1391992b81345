"""What torch.compile did in the calls of one measurement: graphs and seconds, breaks, recompilations, CUDA graphs."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite


class CodePlace(Data):
    """A place in the code that is compiled."""

    file: str = Field(description="path below the folder that Python imports it from; '' if unknown")
    line: int = 0
    function: str = ""

    @property
    def shown(self) -> str:
        """File and line as they are read."""
        return f"{self.file}:{self.line}" if self.file else "place unknown"


class GraphBreak(CodePlace):
    """A line at which compiled code ends and Python goes on."""

    reason: str
    times: int = Field(description="compilations that ended at this line")
    whole: bool = Field(default=False, description="nothing of the function is compiled, rather than one line of it")


class Recompilation(CodePlace):
    """A function that was compiled again, since its inputs did not fit what had been compiled."""

    times: int = Field(description="recompilations, the one that the limit refused included")
    late: int = Field(default=0, description="those after the warm-up, in measured calls")
    guards: list[str] = Field(default_factory=list, description="failed guards, the first few that differ")
    limit: str = Field(
        default="", description="torch's limit that was reached, such as 'recompile_limit=8'; '' if none"
    )


class SkippedGraph(CodePlace):
    """A reason for which compiled code was not captured in a CUDA graph."""

    reason: str
    times: int = Field(description="compilations without a CUDA graph for this reason")


class Compilation(Data):
    """What torch.compile did from the first call to the last measured one, by torch's own records."""

    graphs: int = Field(description="compiled graphs, forward and backward")
    compile_s: Finite | None = Field(
        default=None, description="seconds of compiling; None if torch does not record them"
    )
    capture_s: Finite = Field(default=0.0, description="seconds of capturing CUDA graphs")
    warmup_s: Finite = Field(default=0.0, description="other seconds of the calls before the measured ones")
    breaks: list[GraphBreak] = Field(default_factory=list)
    recompiled: list[Recompilation] = Field(default_factory=list)
    skipped: list[SkippedGraph] = Field(default_factory=list)
    unjudged: str = Field(default="", description="what this version of torch does not tell, in a line; '' if nothing")

    @property
    def places(self) -> list[str]:
        """The lines at which compiled code stops, each once."""
        return list(dict.fromkeys(cut.shown for cut in self.breaks))
