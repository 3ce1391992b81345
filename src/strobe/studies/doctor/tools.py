"""Tools around the policy: simulators that render, a browser for reports, a compiler for torch.compile, extras."""

from __future__ import annotations

import shutil
import webbrowser
from collections.abc import Callable, Iterator

from strobe.errors import UserError
from strobe.processes import isolate
from strobe.results.doctor import SelfCheck
from strobe.simulators import environments
from strobe.simulators.environments import NO_OPENGL
from strobe.studies.doctor import supplies, versions

SIMULATORS = ("pusht", "metaworld", "libero")
BROWSERS = ("chromium", "google-chrome", "chrome", "firefox", "xdg-open", "open")
COMPILERS = ("g++", "clang++", "c++", "cl")


def examine(
    run: isolate.Runner = isolate.run, which: Callable[[str], str | None] = shutil.which
) -> Iterator[SelfCheck]:
    """Look for each tool, and start each simulator."""
    yield from versions.extras()
    for kind in SIMULATORS:
        yield _simulator(kind, run)
    yield _found(
        "browser",
        BROWSERS,
        which,
        "Reports are one file each: copy report.html to a machine with a browser, or read it here with "
        "`strobe report RUN`.",
        "apt-get install chromium (Debian, Ubuntu)",
    )
    yield _found(
        "C++ compiler",
        COMPILERS,
        which,
        "torch.compile cannot compile for the CPU.",
        "apt-get install g++ (Debian, Ubuntu); xcode-select --install (macOS)",
    )


def _simulator(kind: str, run: isolate.Runner) -> SelfCheck:
    name = f"simulator {kind}"
    try:
        ms = run(supplies.rendered, kind)
    except UserError as error:
        reason, _, way = str(error).partition(": ")
        if "not installed" not in reason:  # it is there, and what is said is a reason and no command
            return _fails(kind, str(error))
        return SelfCheck(
            area="tools",
            name=name,
            outcome="missing",
            seen=reason,
            means="Observations and episodes of it cannot be had: --env.type names another, or --dataset a recording.",
            do=way,
        )
    except isolate.IsolatedCallError as error:
        return _fails(kind, str(error))
    seen = f"starts and renders; {ms:.0f} ms a reset"
    return SelfCheck(area="tools", name=name, outcome="holds", seen=seen, evidence={"reset_ms": ms})


def _fails(kind: str, why: str) -> SelfCheck:
    return SelfCheck(
        area="tools",
        name=f"simulator {kind}",
        outcome="fails",
        seen=why,
        means="It is installed and does not run.",
        do=NO_OPENGL.partition(": ")[2] if kind in environments.MUJOCO else f"pip install 'lerobot[{kind}]'",
    )


def _found(name: str, names: tuple[str, ...], which: Callable[[str], str | None], means: str, do: str) -> SelfCheck:
    there = next((one for one in names if which(one)), None)
    if there is None and name == "browser":
        try:
            there = webbrowser.get().name
        except webbrowser.Error:
            there = None
    return SelfCheck.judged("tools", name, there is not None, there or "none found", means, do, bad="missing")
