"""Flags of comparisons of environments: what names one, and what is refused in a line."""

from __future__ import annotations

import sys

import pytest

from strobe.commands import compare, verify
from strobe.core.cli.runner import Command
from strobe.core.errors import UserError
from strobe.environments import compare_command as compare_environments
from strobe.environments import verify_command as verify_environment

PYTHON = sys.executable
ACT = ["--policy.type=act", "--policy.size=tiny"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--variant", "next: python=x"], True),
        (["--variant=pr: lerobot=x"], True),
        (["--variant=half: precision=bf16"], False),
        (["--variant=5 steps: policy.num_steps=5", "--variant", "next: python=x"], True),
        (["--compile"], False),
    ],
)
def test_a_variant_names_an_environment_by_its_keys(argv: list[str], expected: bool):
    assert (compare.run.form(argv).config is compare_environments.CompareEnvironmentsConfig) == expected


def test_one_variant_is_held_against_this_environment_and_several_against_the_first():
    (here, there) = compare_environments.parse_sides([f"next: python={PYTHON}"])
    assert (here.name, here.python, there.name, there.python) == ("this environment", None, "next", PYTHON)
    sides = compare_environments.parse_sides([f"base: python={PYTHON}", f"head: python={PYTHON}"])
    assert [side.name for side in sides] == ["base", "head"]


@pytest.mark.parametrize(
    ("variants", "words"),
    [
        (["next: python=nowhere"], "python=nowhere is no interpreter"),
        (["pr: lerobot=nowhere"], "has no package 'lerobot'"),
        ([f"next: python={PYTHON}, precision=bf16"], "has no 'precision'"),
        (["next: python="], "python= names nothing"),
        ([f"a: python={PYTHON}", f"a: python={PYTHON}"], "two variants have the same name: a, a"),
        ([f"python={PYTHON}"], "write 'NAME: python=INTERPRETER, lerobot=CHECKOUT'"),
    ],
)
def test_wrong_variants_are_one_line(variants: list[str], words: str):
    with pytest.raises(UserError, match=words) as raised:
        compare_environments.parse_sides(variants)
    assert "\n" not in str(raised.value)


def test_treatments_and_backbones_are_not_for_other_environments():
    with pytest.raises(UserError, match="--precision"):
        compare_environments.read([*ACT, "--precision=bf16", f"--variant=next: python={PYTHON}"])
    with pytest.raises(UserError, match="other environments run policies of LeRobot"):
        compare_environments.read(["--model.type=vjepa2", f"--variant=next: python={PYTHON}"])


def test_a_command_that_runs_no_other_environment_says_which_one_does():
    for command in (compare.run, Command("made-up", None, object, None, lambda: 0)):
        with pytest.raises(UserError, match=f"is for strobe verify: strobe {command.name} has no such flag"):
            command(["--against_python=x"])
    behind = Command("made-up", None, object, list, lambda argv, _: len(argv), bar=False)
    assert behind(["--", "--against_python=x"]) == 2  # another program's own flag


def test_verify_names_an_environment_by_its_flags():
    of_environment = verify_environment.VerifyEnvironmentConfig
    assert verify.run.form(["--against_python=x"]).config is of_environment
    assert verify.run.form(["--against-lerobot", "x"]).config is of_environment
    assert verify.run.form(["--recipe=x"]) is verify.run
    with pytest.raises(UserError, match="no interpreter"):
        verify_environment.read([*ACT, "--against_python=nowhere"])
    with pytest.raises(UserError, match="--guard='wrong'"):
        verify_environment.read([*ACT, f"--against_python={PYTHON}", "--guard=wrong"])
    with pytest.raises(UserError, match="--recipe is checked in this environment"):
        verify_environment.read([*ACT, f"--against_python={PYTHON}", "--recipe=x.yaml"])
