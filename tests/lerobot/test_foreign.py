"""Somebody else's policy, with a record and a treatment of its own, through every command: one file each is enough.

The policy is tests/support/foreign, and tests/support/foreign_records holds what Strobe gets of it. Nothing in Strobe
knows their names. Its parts take their time by a clock of the test's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checks.run_contents import load_stored
from support.fakes.sleeper import Clock
from support.suite.places import TESTS

from strobe.core.cli.main import main
from strobe.core.families import registry
from strobe.core.results.answer import CompareResult
from strobe.core.runs import store
from strobe.core.treatments import catalogue
from strobe.lerobot.policies import lerobot_policies

SUPPORT = TESTS / "support"
SUBJECT = ["--policy.type=small_flow", "--policy.size=tiny", "--device=cpu", "--skip_counting"]


@pytest.fixture
def installed_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is installed. A later test in this process does not find it."""
    for folder in ("foreign", "foreign_records"):
        monkeypatch.syspath_prepend(str(SUPPORT / folder))
    cached = (lerobot_policies._register_plugins, registry._family_entry_points, catalogue.plug_in_entries)
    for function in cached:
        function.cache_clear()
    lerobot_policies.known_types()
    yield
    monkeypatch.undo()
    for function in cached:
        function.cache_clear()


@pytest.fixture
def clock(installed_package: None, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Its encoder takes 4 ms a step, its velocity 1 ms."""
    from lerobot_policy_small_flow import modeling_small_flow as modeling

    clock = Clock().wind(monkeypatch)
    for part, ms in ((modeling.Encoder, 4.0), (modeling.Velocity, 1.0)):

        def slowly(self, *args, plain=part.forward, ms=ms):
            clock.sleep(ms / 1e3)
            return plain(self, *args)

        monkeypatch.setattr(part, "forward", slowly)
    return clock


def run_command(command: str, folder: Path, *flags: str) -> tuple[int, Path]:
    code = main([command, *SUBJECT, f"--output_dir={folder}", *flags])
    (run,) = folder.iterdir()
    return code, run


def test_its_parts_have_the_names_of_its_record(clock: Clock, tmp_path: Path) -> None:
    code, run = run_command("breakdown", tmp_path, "--iterations=6", "--phases=[inference, training forward]")
    assert code == 0
    result = store.load(run)
    assert result.subject.anatomy == "small flow"
    assert result.subject.packages == {"lerobot_policy_small_flow": "1.0", "strobe_small_flow": "1.0"}
    inference, training = result.measurements
    assert inference.traits.denoising_steps == 8
    parts = {"/".join(part.path): part for part in inference.components}
    assert parts["policy/denoise step/context"].summary.median == pytest.approx(32, rel=0.1)
    assert parts["policy/denoise step/velocity"].summary.median == pytest.approx(8, rel=0.1)
    assert {"context", "velocity"} <= {part.path[-1] for part in training.components}
    assert "denoise step" not in {part.path[-1] for part in training.components}


def test_its_treatment_and_its_steps_are_compared(clock: Clock, tmp_path: Path) -> None:
    variants = ["--variant=once: context=once", "--variant=half: policy.euler_steps=4"]
    code, run = run_command("compare", tmp_path, "--iterations=10", *variants)
    assert code == 0
    once, half = load_stored(CompareResult, run).comparisons
    assert (once.verdict.kind, half.verdict.kind) == ("faster", "faster")
    assert once.verdict.ratio == pytest.approx(12 / 40, rel=0.1)
    assert once.agreement is not None
    assert once.agreement.largest_error == 0
    treatments = load_stored(CompareResult, run).measurement("once").traits.treatments
    assert [treatment.package for treatment in treatments] == ["strobe_small_flow 1.0"]
    assert half.agreement is not None
    assert half.agreement.largest_error > 0


def test_a_ladder_finds_its_treatment_and_a_recipe_keeps_it(clock: Clock, tmp_path: Path) -> None:
    code, run = run_command("optimize", tmp_path / "ladder", "--target-hz=1000", "--only=context", "--iterations=10")
    assert code == 0
    ladder = json.loads((run / "result.json").read_text())["ladder"]
    assert [rung["treatment"] for rung in ladder["rungs"]] == ["", "context=once"]
    code, run = run_command("compare", tmp_path / "again", "--iterations=10", f"--recipe={run / 'recipe.yaml'}")
    assert code == 0
    (comparison,) = load_stored(CompareResult, run).comparisons
    assert comparison.verdict.kind == "faster"


def test_its_record_has_what_the_shared_parts_ask(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *SUBJECT, "--variant=a: padding=trimmed", "--iterations=3"]) == 2
    assert "small_flow" in capsys.readouterr().err
    assert main(["breakdown", "--policy.type=small_flow", "--policy.euler_step=3"]) == 2
    assert "--policy.euler_steps" in capsys.readouterr().err


def package(folder: Path, name: str, entry_points: str = "", *, module: str = "") -> None:
    """Install another package in ``folder``: its module, and the metadata of its distribution."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(module)
    information = folder / f"{name}-2.5.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
    (information / "entry_points.txt").write_text(entry_points)


SECOND_TYPE = """
from dataclasses import dataclass
from lerobot.configs import PreTrainedConfig

@PreTrainedConfig.register_subclass("small_flow")
@dataclass
class OtherConfig(PreTrainedConfig):
    pass
"""
BROUGHT = {
    "the type": ("lerobot_policy_other_flow", "", SECOND_TYPE, "lerobot_policy_small_flow 1.0"),
    "its record": (
        "strobe_other_flow", "[strobe.families]\nsmall_flow = strobe_small_flow.family:FAMILY\n", "",
        "strobe_small_flow 1.0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROUGHT)
def test_two_packages_of_one_type_are_refused_and_both_are_named(
    what: str,
    installed_package: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, entry_points, module, first = BROUGHT[what]
    package(tmp_path, name, entry_points, module=module)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._family_entry_points.cache_clear()
    monkeypatch.delitem(registry.records(), "small_flow", raising=False)
    assert main(["breakdown", *SUBJECT, "--iterations=2", f"--output_dir={tmp_path / 'runs'}"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("strobe: ")]
    assert first in line
    assert f"{name} 2.5" in line
    assert "'small_flow'" in line
    assert "act" in lerobot_policies.known_types()  # other types go on
    assert registry.find_family("act") is not None
    assert list(registry.known_families())


def test_diff_sees_another_version_of_a_package(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, run = run_command("compare", tmp_path / "runs", "--iterations=10", "--variant=once: context=once")
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, version in ((before, "1.0"), (after, "1.1")):
        folder.mkdir()
        answer = json.loads((run / "result.json").read_text())
        answer["subject"]["packages"]["lerobot_policy_small_flow"] = version
        answer["measurements"][1]["traits"]["treatments"][0]["package"] = f"strobe_small_flow {version}"
        (folder / "result.json").write_text(json.dumps(answer))
    assert main(["diff", str(before), str(after), "--full"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "subject packages.lerobot_policy_small_flow: 1.0 before, 1.1 after" in said
    assert "treatment context: strobe_small_flow 1.0 before, strobe_small_flow 1.1 after" in said
