"""Every command in README.md, docs/ and the packages' pages is one that its program understands.

Names of commands, flags, treatments, targets and scripts are checked, and not run. What nothing here can check has a
comment in front of its block: <!-- not run: the reason -->.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.checks.page_commands import LEROBOTS, OTHERS, OURS, Command, commands
from support.suite.places import ROOT

from strobe.core.cli import display
from strobe.core.cli.parse import check_names, pairs
from strobe.core.cli.placeholders import groups, option_names
from strobe.core.errors import UserError
from strobe.core.slices import commands as all_commands
from strobe.core.slices import load, sources
from strobe.environments import compare_command as compare_environments
from strobe.lerobot.flags.lazy_flags import options
from strobe.lerobot.policies.lerobot_policies import known_types
from strobe.lerobot.schema.registries import POLICY

# An example's report.md is what a run printed when it ran.
PAGES = sorted(
    path
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/*.md"))
    if path.name != "report.md"
)
LEROBOT_CONFIGS = {
    "train": ("lerobot.configs.train", "TrainPipelineConfig"),
    "eval": ("lerobot.configs.eval", "EvalPipelineConfig"),
    "rollout": ("lerobot.scripts.lerobot_rollout", "RolloutConfig"),
    "record": ("lerobot.scripts.lerobot_record", "RecordConfig"),
    "teleoperate": ("lerobot.scripts.lerobot_teleoperate", "TeleoperateConfig"),
    "policy_server": ("lerobot.async_inference.configs", "PolicyServerConfig"),
    "robot_client": ("lerobot.async_inference.configs", "RobotClientConfig"),
}
PLACEHOLDER = re.compile(r"[A-Z_]{3,}$|…|<|RUN$")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_is_understood(path: Path):
    wrong = []
    for command in commands(path.read_text()):
        try:
            check(command)
        except (UserError, AssertionError, ValueError) as error:
            wrong.append(f"line {command.line or '?'}: {command.text}\n    {error}")
    assert not wrong, "\n".join(wrong)


def test_the_pages_hold_many_commands_and_few_that_nothing_checks():
    found = [command for path in PAGES for command in commands(path.read_text())]
    assert sum(command.name == "strobe" for command in found) > 150
    assert sum(command.excused for command in found) < 30


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("strobe brakdown --policy.type=act", "no command"),
        ("strobe breakdown --policy.typ=act", "typ"),
        ("strobe breakdown --policy.type=act --policy.chunk_siz=5", "chunk_siz"),
        ("strobe breakdown --policy.type=act --itertions=3", "itertions"),
        ("strobe breakdown --policy.server=ws://robot:8000 --contol_hz=50", "contol_hz"),
        ("strobe breakdown --policy.server=ws://robot:8000 --phases=inference", "phases"),
        ("strobe compare --policy.type=act --variant 'a: precison=bf16'", "precison"),
        ("strobe sweep breakdown --policy.type=act --grid btch_size=8,16", "btch_size"),
        ("strobe train -- --policy.type=act --stps=5", "stps"),
        ("strobe rollout -- --robot.typ=so101_follower", "robot.typ"),
        ("strobe diff A B --fail-on-regresion", "fail_on_regresion"),
        ("python benchmarks/verdict.py", "no such script"),
        ("python benchmarks/verdicts.py --fast", "--fast"),
        ("make tuor", "no such target"),
        ("ray start --head", "nothing checks"),
        ("lerobot-train --batchsize=5", "batchsize"),
    ],
)
def test_a_wrong_command_is_seen(line: str, why: str):
    (command,) = commands(f"Text\n\n    {line}\n")
    with pytest.raises((UserError, AssertionError), match=why):
        check(command)


def test_what_nothing_checks_is_excused_by_a_comment_for_one_block():
    page = "<!-- not run: a reason -->\n\n    ray stop\n    ray start\n\nText\n\n    ray stop\n"
    assert [command.excused for command in commands(page)] == [True, True, False]


def check(command: Command) -> None:
    """Raises UserError or AssertionError where the command's program would not understand it."""
    if command.excused:
        return
    name, words = command.name, command.words[1:]
    for extras in re.findall(r"strobe-lab\[([\w,]+)\]", command.text):
        assert set(extras.split(",")) <= extras_of_the_project(), f"no extra {extras}"
    if name in OTHERS:
        assert command.inline, "nothing checks it: write <!-- not run: the reason --> above"
    elif found := LEROBOTS.match(name):
        lerobots(found[1], words)
    elif name == "make":
        for word in words:
            assert "=" in word or word in targets(), f"no such target: {word}"
    elif "strobe" in words and name in ("python", "torchrun", "accelerate"):
        strobe(words[words.index("strobe") + 1 :])
    elif name == "python":
        script(words)
    elif name == "strobe":
        strobe(words)
    else:
        assert name in OURS


def strobe(words: list[str]) -> None:
    name, *rest = words or [""]
    if PLACEHOLDER.match(name) or name in ("--help", "--version"):
        return
    assert name in all_commands(), f"no command '{name}'"
    ours = rest[: rest.index("--")] if "--" in rest else rest
    theirs = rest[len(ours) + 1 :]
    if theirs:
        loop = {"train": "train", "dataloader": "train"}.get(name, "rollout")
        if re.match(r"[a-z]", theirs[0]):
            loop = theirs.pop(0).removeprefix("lerobot-")
        lerobots(loop, theirs)
    study = next((word for word in ours if word in ("breakdown", "compare")), "") if name == "sweep" else ""
    known = command_flags(name) | (command_flags(study) if study else frozenset())
    if name == "sweep" and not study:
        known |= command_flags("compare") | command_flags("breakdown")
    own = list(flags(ours))
    if (config := other_form(name, ours)) is not None:
        inside = [f"--{group}.{one}" for group, where in groups(config).items() for one in where.options()]
        check_names([*option_names(config), *inside, *EVERYWHERE], [flag for flag, _ in own])
        for _, text in (pair for pair in own if pair[0] == "--variant"):
            compare_environments.parse_side(text or "")
        return
    for flag, value in own:
        check_flag(flag, value, known)
    values = dict(own)
    kind = values.get("--policy.type")
    if kind in known_types():
        fields(kind, [flag for flag, _ in own])
    for flag, value in own:
        if flag in ("--variant", "--candidate", "--start") and value and "…" not in value and "key=value" not in value:
            treatments(value, flag)
        if flag == "--grid" and value and "=" in value and not value.startswith("NAME"):
            axis = f"--{value.partition('=')[0]}"
            check_flag(axis, None, known)
            if kind in known_types():
                fields(kind, [axis])


def other_form(name: str, argv: list[str]) -> type | None:
    """The flags of the command's form for the subjects that ``argv`` names; None for its own."""
    form = next((one.forms[name] for one in sources() if one.forms.get(name) and one.find_flag(argv)), None)
    return load(form).config if form is not None else None


EVERYWHERE = ("--help", "--policy.path", "--policy.type", "--policy.size", *display.FLAGS)


def flags(words: list[str]) -> Iterator[tuple[str, str | None]]:
    """The flags among ``words`` with their values; what is no flag is passed over."""
    for number, word in enumerate(words):
        if word.startswith("--") and len(word) > 2 and not PLACEHOLDER.match(word[2:]):
            after = words[number + 1] if number + 1 < len(words) and "=" not in word else None
            yield from pairs([word] if after is None or after.startswith("--") else [word, after])


def check_flag(flag: str, value: str | None, known: frozenset[str]) -> None:
    if flag in known or flag in EVERYWHERE:
        return
    prefix = flag.partition(".")[0]
    open_ended = {"--policy": "--policy.*", "--model": "--policy.*", "--frames": "--frames"}.get(prefix)
    assert open_ended in known or (flag == "--recipe" and "--grid" in known), f"no flag {flag}"
    if prefix == "--policy" and "." in flag:
        assert flag[9:] in every_field(), f"no policy has a field {flag[9:]}"
    if prefix == "--model":
        assert flag[8:] in ("path", "type", "size", "img_size", "num_frames", "dtype", "predictor"), f"no flag {flag}"


def fields(kind: str, names: list[str]) -> None:
    """Raises UserError for a ``--policy.FIELD`` that the type's config does not have."""
    given = [name for name in names if name.startswith("--policy.")]
    own = [name for name in given if name not in ("--policy.path", "--policy.type", "--policy.size")]
    check_names([f"--policy.{name}" for name in options(POLICY, kind)], own)


def treatments(value: str, flag: str) -> None:
    from strobe.core.treatments.catalogue import parse

    text = value.partition(":")[2] if flag == "--variant" else value
    text = ",".join(pair for pair in text.split(",") if not pair.strip().startswith(("rtc.", "recipe", "exported")))
    if flag == "--variant" and "policy.delay_training" in text:
        return  # a field that a training reads
    parse(text)


@cache
def command_flags(command: str) -> frozenset[str]:
    """The flags of a command, with '--policy.*' where it takes a policy's fields."""
    module = load(all_commands()[command].module)
    configs = [
        value
        for name, value in vars(module).items()
        if name.endswith("Config") and dataclasses.is_dataclass(value) and value.__module__.startswith("strobe.")
    ]
    known: set[str] = set().union(*map(option_names, configs))
    known |= {
        f"--{group}.{name}" for one in configs for group, where in groups(one).items() for name in where.options()
    }
    known |= set(re.findall(r"^  (--[a-z]\w*)", print_help(command), re.MULTILINE))
    more = {
        "batch": command_flags("breakdown") if command == "batch" else (),
        "evaluate": {"--results", "--same_seeds", "--inference", "--policy.*"},
        "rehearse": {"--fault", "--frames"},
        "compare": {"--variant"},
        "optimize": {"--candidate", "--start"},
        "replay": {"--fps", "--inference.type", "--inference.queue_threshold", "--inference.rtc.execution_horizon"},
    }
    known |= set(more.get(command, ()))
    if command in ("breakdown", "compare", "optimize", "verify"):
        known.add("--policy.*")
    return frozenset(known)


def print_help(command: str) -> str:
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        load(all_commands()[command].module).run(["--help"])
    return printed.getvalue()


@cache
def every_field() -> frozenset[str]:
    from lerobot.configs.policies import PreTrainedConfig

    known = {
        item.name
        for kind in known_types()
        for item in dataclasses.fields(PreTrainedConfig.get_choice_class(kind))  # type: ignore[arg-type]
    }
    return frozenset(known | {"path", "type", "size", "factory", "pretrained_path"})


def lerobots(script: str, words: list[str]) -> None:
    """Raises AssertionError for a flag that LeRobot's script does not have."""
    known = lerobot_flags(script)
    for flag, _ in flags(words):
        assert flag in known or flag.partition(".")[2] == "path", f"lerobot-{script} has no flag {flag}"
    kind = dict(flags(words)).get("--policy.type")
    if kind in known_types():
        fields(kind, [flag for flag, _ in flags(words)])


@cache
def lerobot_flags(script: str) -> frozenset[str]:
    module, name = LEROBOT_CONFIGS[script]
    config: Any = getattr(importlib.import_module(module), name)
    known = option_names(config)
    if script in ("train", "eval", "rollout", "record"):
        known |= frozenset(f"--policy.{name}" for name in every_field())
    return known


def script(words: list[str]) -> None:
    if not words or words[0].startswith("-"):
        return  # Python itself: -m pstats
    path = ROOT / words[0]
    assert path.is_file(), f"no such script: {words[0]}"
    text = path.read_text() + "".join(one.read_text() for one in path.parent.glob("_*.py"))
    for word in words[1:]:
        flag = word.partition("=")[0]
        assert not flag.startswith("--") or f'"{flag}"' in text, f"{words[0]} has no flag {flag}"


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def extras_of_the_project() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
