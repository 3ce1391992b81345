"""One life of a command: its help or its flags, its work, the findings, the screen, the run's folder, the exit code.

A command's module says what differs, and calls it ``run``:

    run = Command("verify", __doc__, VerifyConfig, read, study)

Commands without an answer to keep (`strobe record`) do their work in ``study`` as well, and return an exit code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from strobe.core import slices
from strobe.core.cli.display import HelpDetail, requested_help
from strobe.core.cli.flags import flag_values
from strobe.core.cli.help import brief_help, help_text, treatments_help
from strobe.core.cli.live import Live, call_ahead_of_imports, shown_if_slow
from strobe.core.cli.parse import parse, read_all
from strobe.core.errors import UserError, make_not_kept_error
from strobe.core.findings.thresholds import DEFAULTS, Thresholds
from strobe.core.processes.lifetime import ctrl_c_ignored
from strobe.core.untrusted import JsonObject

if TYPE_CHECKING:
    from strobe.core.results.agreement import Outcome
    from strobe.core.timeline.timeline import Section

SHARED = ("output_dir", "thresholds")  # flags that a form has from its command, whose help has them
_OUTPUTS = {"output_dir": "run", "to": "export", "recipe_out": "recipe", "fix": "fixed copy", "fix_data": "fixed copy"}
EXIT_CODES: dict[Outcome, int] = {"held": 0, "broken": 1, "not judged": 3}


@dataclass
class Studied:
    """The answer of a study, with what completes it and where it is kept.

    Args:
        result: the answer, a `strobe.core.results.answer.Answer`, without findings.
        options: the flags by name, for ``result.config``; configs in it become JSON data.
        root: the folder in which the run's folder is made; None for an answer that is shown alone.
        thresholds: the limits of the findings; None for a study that draws its findings itself.
        sections: recorded sections of each measurement, for a trace; None for a study without one.
        profiled: events of torch.profiler, for the trace.
        files: name → content of further files of the run.
        made_of: makes further files of the completed answer.
        folder: a folder that holds parts of the answer already (episodes, a sweep's cells); the answer is kept there.
        page: the file of a page of the answer, as ``--output`` names it.
        code: the exit code of a run that was not interrupted, or what makes it of the completed answer; None for 0, or
            1 where the answer says 'failed'.
        shown: False for an answer that another process shows and keeps.
        after: does what is left to do once the answer is kept in a folder (None: in no folder). Yields lines to print.
        held: left once the answer is kept, such as a lock.
    """

    result: Any
    options: Mapping[str, Any]
    root: Path | None
    thresholds: Thresholds | None = DEFAULTS
    sections: Sequence[Sequence[Section]] | None = None
    profiled: list[JsonObject] | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    made_of: Callable[[Any], dict[str, bytes]] | None = None
    folder: Path | None = None
    page: Path | None = None
    code: int | Callable[[Any], int] | None = None
    shown: bool = True
    after: Callable[[Path | None], Iterable[str]] | None = None
    held: contextlib.AbstractContextManager[object] = field(default_factory=contextlib.nullcontext)

    @property
    def exit_code(self) -> int:
        """0, 1, 2, 3, or 130 after Ctrl-C."""
        if self.result.status == "interrupted":
            return 130
        if self.code is not None:
            return self.code if isinstance(self.code, int) else self.code(self.result)
        return int(self.result.status == "failed")


@dataclass
class Command:
    """A command. Called with its arguments, it returns the exit code.

    Args:
        doc: the text of its help, or what makes it: what it answers in a line, then more, then examples.
        config: the dataclass of its flags.
        read: turns arguments into a config, and checks it. Raises UserError, before anything heavy is loaded. None if
            parsing the flags is all that there is to it.
        study: does the work, from the config and a `Live`. Returns the answer, or an exit code.
        subject: whose flags the help describes as well.
        bar: False where the work prints its own progress, or LeRobot's log does.
        bare: whether the command without arguments shows its help.
        common: name of a group → the flags that most users need, without ``--``; empty where all are few.
        treatments: whether the command takes treatments, which ``--help=treatments`` lists.
        more_help: makes text that stands after the flags, before that of the command's other forms.
        heavy: how other work on this machine changes the command, which then says so before it begins: 'timed' where
            it measures times, 'untimed' where it takes long and measures none; None if it does not matter.
        gives_way: whether torch's threads sleep while they wait, on a machine that is busy when the command begins.
    """

    name: str
    doc: str | Callable[[], str] | None
    config: type
    read: Callable[[Sequence[str]], Any] | None
    study: Callable[..., Studied | int]
    subject: Literal["policy", "policy or model"] | None = None
    bar: bool = True
    bare: bool = False
    common: Mapping[str, Sequence[str]] = field(default_factory=dict)
    treatments: bool = False
    more_help: Callable[[], str] | None = None
    heavy: Literal["timed", "untimed"] | None = None
    gives_way: bool = False

    def __call__(self, argv: Sequence[str]) -> int:
        """Run the command. Raises UserError for wrong flags, or an answer that could not be kept."""
        detail: HelpDetail | None = "brief" if self.bare and not argv else requested_help(argv)
        if detail is not None:
            print(self.help(detail))
            return 0
        return self.form(argv)._run(argv)

    def form(self, argv: Sequence[str]) -> Command:
        """Return the command in the form that runs the subjects which ``argv`` names: itself for most.

        Raises UserError for subjects that it does not take.
        """
        for source in slices.sources():
            flag = source.find_flag(argv)
            if flag and (form := source.forms.get(self.name)):
                return slices.load(form)
            if flag and flag != "--variant" and self.name not in source.forms:
                *others, last = source.forms
                commands = f"{', '.join(others)} and {last}" if others else last
                raise UserError(f"{flag} is for strobe {commands}: strobe {self.name} {source.otherwise}")
        return self

    def _run(self, argv: Sequence[str]) -> int:
        live = Live()
        notes: list[str] = []
        looked = False

        def look() -> None:
            nonlocal looked
            if not looked:
                looked = True
                notes.extend(self._look(live))

        early = self.heavy and self.bar
        with call_ahead_of_imports(look) if early else contextlib.nullcontext():
            config = read_all(self.name, self.read or partial(parse, self.config), argv)
        _try_outputs(config)
        started = time.monotonic()
        if early:
            live.before = look  # what is wrong with the flags is said before then
        elif self.heavy:
            look()
        with live if self.bar else contextlib.nullcontext():
            answer = self.study(config, live)
        if isinstance(answer, int):
            return answer
        answer.result.notes += notes
        if answer.shown:
            with answer.held, ctrl_c_ignored():  # what was measured is saved whole
                with shown_if_slow("drawing findings"):
                    trace = finish(answer, [self.name, *argv], started)
                _keep(answer, trace)
        return answer.exit_code

    def _look(self, live: Live) -> list[str]:
        """Say what else keeps this machine busy, and have torch's threads give way to it. Return notes on both."""
        from strobe.core.measure import other_work

        notes = say_other_work(live, timed=self.heavy == "timed")
        if notes and self.gives_way and (note := other_work.give_way()):
            notes.append(note)
        return notes

    def help(self, detail: HelpDetail) -> str:
        """Return the command's text and flags: those that most users need, all of them, or its treatments."""
        doc = self.doc() if callable(self.doc) else self.doc or ""
        if detail == "treatments" and self.treatments:
            return treatments_help()
        whole = self._whole_help(doc)
        if detail == "brief":
            return brief_help(self.name, doc, whole, self.common, treatments=self.treatments)
        return whole

    def _whole_help(self, doc: str) -> str:
        parts = [help_text(doc, self.config)]
        if self.more_help is not None:
            parts.append(self.more_help())
        for source in slices.sources():
            if name := source.forms.get(self.name):
                form = slices.load(name)
                parts.append(help_text(form.doc, form.config, SHARED))
        if self.subject:
            subject_help = slices.Offer[Callable[[bool], list[str]]]("help on subjects").find()
            parts += subject_help(self.subject == "policy or model") if subject_help is not None else []
        return "\n\n".join(parts)


def _try_outputs(config: object) -> None:
    """Write a file where the run is to be saved, and remove it. Raises NotKeptError before a run that would be lost."""
    for name, what in _OUTPUTS.items():
        if isinstance(path := getattr(config, name, None), Path):
            try_output(path.parent if name == "recipe_out" else path, what, f"--{name}")


def try_output(folder: Path, what: str, flag: str) -> None:
    """Write a file in ``folder``, or where it is to be made, and remove it. Raises NotKeptError where that fails."""
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"0")
    except OSError as error:
        raise make_not_kept_error(what, flag, folder, error) from None


def say_other_work(live: Live, *, timed: bool = True) -> list[str]:
    """Say on stderr what else keeps this machine busy. Return it in a note; no note on a machine at rest.

    Args:
        timed: whether times are measured while it runs.
    """
    from strobe.core.measure import other_work

    words = other_work.look().words(timed=timed)
    if words:
        live.say(f"… {words}")
    return [f"when it began, {words}"] if words else []


def finish(answer: Studied, argv: Sequence[str], started: float) -> JsonObject | None:
    """Complete the answer's result with its command, config and findings. Return its trace, None without sections.

    Args:
        argv: the command and its flags, without 'strobe'.
        started: `time.monotonic` at the command's start, in seconds.
    """
    from strobe.core.cli.keep import build_trace, complete, latest

    complete(answer.result, argv, started, to_json(dict(answer.options)), answer.thresholds)
    if answer.made_of is not None:
        answer.files |= answer.made_of(answer.result)
    if answer.sections is None:
        return None
    sections = [section for recorded in answer.sections for section in latest(recorded)]
    return build_trace(answer.result, sections, answer.profiled)


def to_json(value: object) -> Any:
    """Return configs and what holds them as JSON data; what JSON does not know as text."""

    def plain(part: object) -> object:
        return flag_values(part) if dataclasses.is_dataclass(part) and not isinstance(part, type) else str(part)

    return json.loads(json.dumps(value, default=plain))


def _keep(answer: Studied, trace: JsonObject | None) -> None:
    """Show and keep a completed answer. Raises NotKeptError where it cannot be written."""
    from strobe.core.cli.keep import keep, save_answer

    if answer.folder is not None:
        save_answer(answer.result, answer.folder)
        folder: Path | None = answer.folder
    else:
        folder = keep(answer.result, answer.root, trace, answer.files, answer.page)
    for line in answer.after(folder) if answer.after is not None else ():
        print(line)
