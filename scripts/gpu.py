"""What a card is to answer, in order of value: each experiment once, into a folder that can be committed.

    make gpu                                      what has not run on this card, for --minutes (14)
    make gpu ARGS='--list'                        the agenda: what has run, what is next. Needs no card
    make gpu ARGS='--only=pi05-ladder,groot-ladder'   these, also where they ran before
    make gpu ARGS='--rows'                        write the answers of docs/hardware/CARD into docs/hardware.md
    make gpu ARGS='--device=cpu --quick'          tiny policies on the CPU: a test of the way, not of the numbers

The experiments are `scripts/gpu_agenda.toml`. Each has a bound; a command that reaches it is interrupted as by Ctrl-C,
which keeps what was measured. An experiment of which only a part would fit into the time is left out, and so are those
behind it that are longer. In docs/hardware/CARD are each experiment's answers (`result.json`, `recipe.yaml`) and log,
and `agenda.json`, which is written after each experiment.

Exit code: 0 where all that ran ended well, 1 where something failed, 2 where there is no such device.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HARDWARE = ROOT / "docs" / "hardware"
PAGE = ROOT / "docs" / "hardware.md"
RECORD = "agenda.json"
KEPT = ("result.json", "recipe.yaml")  # pages are made again by `strobe report`
KEPT_BYTES = 2 * 2**20  # the largest file that is kept
GRACE_S = 25.0  # in which an interrupted command saves what it measured
STRAYS = 0.3  # an experiment may be begun where this share of its bound is missing: few take all of it
BEGIN, END = "<!-- answers of {card} -->", "<!-- end of {card} -->"


@dataclass(frozen=True)
class Experiment:
    """A question to a card.

    Args:
        name: the name of its folder.
        question: in words.
        seconds: the most that its commands may take together.
        run: Strobe's commands, or ``pytest`` for the tests marked `gpu`.
        quick: flags that follow those of a command for --quick; behind ``--`` LeRobot's.
        on_cpu: what a command says of a card → what --device=cpu runs in its place.
    """

    name: str
    question: str
    seconds: float
    run: tuple[str, ...]
    quick: str = ""
    on_cpu: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """What came of an experiment: ``done``, ``cut off``, ``exit code N`` or ``interrupted``; its answers in words."""

    outcome: str
    seconds: float
    day: str
    commit: str
    commands: list[str]
    answers: list[str] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        """Whether it need not run again."""
        return self.outcome == "done"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:1, … or cpu")
    parser.add_argument("--card", help="the folder's name in docs/hardware (default: from the device's own name)")
    parser.add_argument("--output_dir", type=Path, help="a folder in place of docs/hardware/CARD")
    parser.add_argument("--minutes", type=float, default=14.0, help="for all of it (14)")
    parser.add_argument("--only", type=lambda text: text.split(","), help="experiments, separated by commas")
    parser.add_argument("--list", action="store_true", help="show the agenda and run nothing")
    parser.add_argument("--rows", action="store_true", help="write the answers into docs/hardware.md and run nothing")
    parser.add_argument("--quick", action="store_true", help="tiny policies and a few seconds for each command")
    asked = parser.parse_args()
    experiments = agenda()
    if unknown := set(asked.only or ()) - {each.name for each in experiments}:
        parser.error(f"--only: no experiment is called {', '.join(sorted(unknown))}; --list shows them")
    if asked.rows:
        return write_rows()
    card = asked.card or card_name(asked.device)
    if card is None and not asked.list:
        print("make gpu: this machine has no such device; ARGS='--device=cpu --quick' tries the way", file=sys.stderr)
        return 2
    trial = asked.quick or asked.device == "cpu"
    folder = asked.output_dir or (ROOT / "runs" / "gpu" if trial else HARDWARE) / (card or "")
    ran = outcomes(folder)
    ahead = [each for each in experiments if each.name in (asked.only or ()) or not asked.only]
    ahead = [each for each in ahead if asked.only or not (each.name in ran and ran[each.name].counts)]
    if asked.list:
        print(list_agenda(experiments, ran, ahead))
        return 0
    return carry_out(ahead, folder, asked)


def agenda(file: Path = ROOT / "scripts" / "gpu_agenda.toml") -> list[Experiment]:
    """The experiments, the most valuable first."""
    read = tomllib.loads(file.read_text(encoding="utf-8"))["experiment"]
    return [Experiment(**{**one, "run": tuple(one["run"])}) for one in read]


def card_name(device: str) -> str | None:
    """A short name of the device, such as h100; None where there is none."""
    if device == "cpu":
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name(torch.device(device)).lower()
    model = re.search(r"\b(?:rtx )?[a-z]*\d+[a-z]*\b", name.replace("nvidia", ""))
    return re.sub(r"\W+", "-", (model.group() if model else name).strip())


def outcomes(folder: Path) -> dict[str, Outcome]:
    """What ran before, by the experiment's name."""
    file = folder / RECORD
    return {name: Outcome(**one) for name, one in json.loads(file.read_text()).items()} if file.is_file() else {}


def list_agenda(experiments: Iterable[Experiment], ran: dict[str, Outcome], ahead: Sequence[Experiment]) -> str:
    """The agenda, a line for each experiment."""
    lines = []
    for each in experiments:
        before = ran.get(each.name)
        state = f"{before.outcome} on {before.day}" if before else "has not run"
        lines.append(f"{each.name:18} {each.seconds:4.0f} s  {state:22} {each.question}")
    total = sum(each.seconds for each in ahead) / 60
    return "\n".join([*lines, f"{len(ahead)} ahead, {total:.0f} minutes at most"])


def carry_out(ahead: Sequence[Experiment], folder: Path, asked: argparse.Namespace) -> int:
    """Run what fits into the time. Ctrl-C ends it, and keeps what was done."""
    folder.mkdir(parents=True, exist_ok=True)
    ends, ran, failed = time.monotonic() + 60 * asked.minutes, outcomes(folder), False
    data = folder / ".data"
    try:
        for each in ahead:
            left = ends - time.monotonic()
            if left < (1 - STRAYS) * each.seconds:
                print(f"{each.name}: left out, {left:.0f} s remain of {each.seconds:.0f}", flush=True)
                continue
            print(f"{each.name}: {each.question} (at most {min(left, each.seconds):.0f} s)", flush=True)
            outcome = run(each, folder, data, asked, min(left, each.seconds))
            ran[each.name] = outcome
            failed |= outcome.outcome.startswith("exit")
            (folder / RECORD).write_text(json.dumps({name: asdict(one) for name, one in ran.items()}, indent=1) + "\n")
            print(f"  {outcome.outcome}, {outcome.seconds:.0f} s", *outcome.answers, sep="\n  ", flush=True)
            if outcome.outcome == "interrupted":
                break
    finally:
        shutil.rmtree(data, ignore_errors=True)
    print(folder)
    return int(failed)


def run(one: Experiment, folder: Path, data: Path, asked: argparse.Namespace, limit_s: float) -> Outcome:
    """Run an experiment's commands one after the other, and keep their answers."""
    place, began, code, ended = folder / one.name, time.monotonic(), 0, "done"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    commands, out = [], place / ".out"
    with (place / "log.txt").open("w", encoding="utf-8") as log:
        for text in one.run:
            if "{data}" in text and not data.exists():
                recording = [*strobe(), "record", f"--root={data}", "--image=96", "--episodes=8", "--frames=60"]
                subprocess.run(recording, stdout=log, stderr=log, cwd=ROOT, timeout=120, check=True)
            command = build_command(one, text, data, out, asked)
            commands.append(format_command(command, folder))
            code, ended = run_bounded(command, log, limit_s - (time.monotonic() - began))
            if code or ended != "done":
                break
    answers = collect_answers(out, place) if one.run != ("pytest",) else count_tests(place / "log.txt")
    shutil.rmtree(out, ignore_errors=True)
    return Outcome(
        ended if ended != "done" or not code else f"exit code {code}",
        round(time.monotonic() - began, 1),
        datetime.date.today().isoformat(),
        commit(),
        commands,
        answers,
    )


def build_command(one: Experiment, text: str, data: Path, out: Path, asked: argparse.Namespace) -> list[str]:
    """The command as it is run: Strobe's flags of --quick follow its own ones, LeRobot's those behind ``--``."""
    if text == "pytest":
        # Only the files with such tests: pytest imports every file that it is given.
        files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text()]
        return [sys.executable, "-m", "pytest", "-m", "gpu", "-n", "4", "-rs", *files[: 1 if asked.quick else None]]
    for of_a_card, in_its_place in one.on_cpu.items() if asked.device == "cpu" else ():
        text = text.replace(of_a_card, in_its_place)
    words = shlex.split(text.format(device=asked.device, data=data, out=out))
    own, theirs = split(words)
    more, more_theirs = split(shlex.split(one.quick)) if asked.quick else ([], [])
    overridden = {flag.partition("=")[0] for flag in (*more, *more_theirs)}
    own, theirs = ([flag for flag in flags if flag.partition("=")[0] not in overridden] for flags in (own, theirs))
    place = f"--sweep_dir={out / 'sweep'}" if own[0] == "sweep" else f"--output_dir={out}"
    device = [] if theirs else [f"--device={asked.device}"]
    return [*strobe(), *own, *more, *device, place, *(["--", *theirs, *more_theirs] if theirs else [])]


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before a ``--`` and those behind it."""
    at = words.index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


def strobe() -> list[str]:
    """This environment's own `strobe`."""
    return [str(Path(sys.executable).with_name("strobe"))]


def format_command(command: Sequence[str], folder: Path) -> str:
    """The command for a reader: without this machine's paths."""
    return shlex.join(command).replace(str(strobe()[0]), "strobe").replace(str(folder), "RUNS").replace(f"{ROOT}/", "")


def run_bounded(command: Sequence[str], log: Any, limit_s: float) -> tuple[int, str]:
    """Run a command; at its bound, or with Ctrl-C here, it is interrupted and given `GRACE_S` to save."""
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True)
    ended = "done"
    try:
        process.wait(max(1.0, limit_s - GRACE_S))
    except subprocess.TimeoutExpired:
        ended = "cut off"
    except KeyboardInterrupt:
        ended = "interrupted"
    if ended != "done":
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode, ended


def collect_answers(out: Path, place: Path) -> list[str]:
    """Bring the answers' files into ``place``, and return the first sentences of each."""
    from strobe.core.errors import UserError
    from strobe.core.kinds import document
    from strobe.core.runs import store

    sentences = []
    for found in sorted(out.rglob("result.json")):
        target = place / found.parent.relative_to(out)
        for name in KEPT:
            if (file := found.with_name(name)).is_file() and file.stat().st_size <= KEPT_BYTES:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target / name)
        try:
            page = document(store.load_answer(found))
        except UserError as error:
            sentences.append(f"{found.parent.name}: {error}")
            continue
        sentences += [f"{page.title}: {' '.join(page.answers[:3])}"]
    return sentences


def count_tests(log: Path) -> list[str]:
    """How many tests passed, failed and were skipped."""
    found = re.findall(r"\d+ (?:passed|failed|skipped|errors?)", log.read_text()[-2000:])
    return [", ".join(found) or "no test ran"]


def commit() -> str:
    """The commit that ran."""
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return said.stdout.strip()


def write_rows(page: Path = PAGE, hardware: Path = HARDWARE) -> int:
    """Write the answers of each card into the page, in place of those that stand there."""
    text, questions = page.read_text(encoding="utf-8"), {each.name: each.question for each in agenda()}
    for file in sorted(hardware.glob(f"*/{RECORD}")):
        card = file.parent.name
        begin, end = BEGIN.format(card=card), END.format(card=card)
        lines = [begin, "", "| question | answers | command |", "|---|---|---|"]
        for name, one in outcomes(file.parent).items():
            said = " ".join(one.answers) if one.answers else "none"
            state = f"{one.outcome}, {one.day}, `{one.commit}`"
            commands = "; ".join(f"`{command}`" for command in one.commands)
            lines.append(" | ".join(["", questions.get(name, name), f"{said} ({state})", commands, ""]).strip())
        block = "\n".join([*lines, "", end])
        before, found, rest = text.partition(begin)
        if found:
            text = before + block + rest.partition(end)[2]
        else:
            text = f"{text.rstrip()}\n\n## The agenda on {card}\n\n{block}\n"
    page.write_text(text, encoding="utf-8")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
