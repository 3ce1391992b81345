"""--recipe on the commands that run a policy: it is on, it is shown, and where it makes no sense it is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from strobe.commands import breakdown, compare
from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.results.answer import CompareResult, Result
from strobe.core.results.recipe import Recipe
from strobe.core.runs import store
from strobe.core.runs.recipe_file import dump
from strobe.core.treatments.catalogue import own_entries
from strobe.sweep import grid

TINY = ["--policy.size=tiny", "--device=cpu", "--iterations=2", "--skip_counting", "--image_size=64x64", "--cameras=1"]


@pytest.fixture
def fast(tmp_path: Path) -> str:
    path = tmp_path / "fast.yaml"
    dump(Recipe(policy="act", treatments=[{"channels_last": True}, {"precision": "bf16"}]), path)
    return str(path)


def answer(tmp_path: Path, *argv: str) -> Result:
    assert main([*argv, *TINY, "--full", f"--output_dir={tmp_path / 'runs'}"]) == 0
    (folder,) = [path.parent for path in (tmp_path / "runs").rglob("result.json")]
    return store.load(folder)


def test_breakdown_runs_with_it_and_says_so(fast: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = answer(tmp_path, "breakdown", "--policy.type=act", f"--recipe={fast}")
    traits = result.measurement("inference").traits
    assert traits.recipe == "fast.yaml"
    assert [(one.key, one.value) for one in traits.treatments] == [("precision", "bf16"), ("channels_last", True)]
    assert result.measurement("inference").memory.weights == pytest.approx(result.subject.weight_bytes / 2, rel=0.01)
    said = "recipe fast.yaml: channels_last=true; precision=bf16"
    assert said in result.notes
    assert said in " ".join(capsys.readouterr().out.split())
    (page,) = (tmp_path / "runs").rglob("report.html")
    assert said in page.read_text()


def test_by_itself_it_is_compared_with_the_policy_as_it_is(fast: str, tmp_path: Path) -> None:
    result = answer(tmp_path, "compare", "--policy.type=act", f"--recipe={fast}")
    assert [measurement.name for measurement in result.measurements] == ["baseline", "recipe"]
    as_it_is, treated = result.measurements
    assert as_it_is.traits.recipe == ""
    assert treated.traits.recipe == "fast.yaml"
    assert isinstance(result, CompareResult)
    (comparison,) = result.comparisons
    assert comparison.agreement is not None
    assert 0.99 < comparison.agreement.cosine < 1
    # What a rule on precisions would say is not said of a recipe that does more.
    assert not [finding for finding in result.findings if finding.rule.startswith("precision")]


def test_every_variant_carries_it(fast: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    dump(Recipe(policy="act", treatments=[{"policy.n_action_steps": 5}]), other)
    result = answer(
        tmp_path,
        "compare",
        "--policy.type=act",
        f"--recipe={fast}",
        "--variant",
        "half: precision=fp16",
        "--variant",
        f"both: recipe={other}",
    )
    assert [measurement.name for measurement in result.measurements] == ["recipe", "half", "both"]
    assert all(measurement.traits.treatment("channels_last") for measurement in result.measurements)
    assert [measurement.traits.treatment("precision").value for measurement in result.measurements] == [
        "bf16",
        "fp16",
        "bf16",
    ]
    assert result.measurement("both").traits.setting("n_action_steps") == 5
    assert "recipe other.yaml: policy.n_action_steps=5" in result.notes


def test_with_rtc_both_variants_carry_it(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    dump(Recipe(policy="smolvla", treatments=[{"guidance": "closed form"}, {"policy.num_steps": 2}]), path)
    argv = ["compare", "--policy.type=smolvla", f"--recipe={path}", "--rtc.execution_horizon=6"]
    result = answer(tmp_path, *argv)
    assert [measurement.name for measurement in result.measurements] == ["without RTC", "with RTC"]
    assert [measurement.traits.recipe for measurement in result.measurements] == ["flow.yaml"] * 2
    parts = [part.name for part in result.measurement("with RTC").components]
    assert parts.count("RTC step") == 1
    assert "autograd correction" not in parts


PHASES = "--phases=[inference, training forward]"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["breakdown", "--policy.type=act", PHASES], "for inference, not for 'training forward': remove fast.yaml"),
        (["compare", "--policy.type=act", "--phase=training step"], "for inference, not for 'training step'"),
        (["compare", "--policy.type=act", "--levers=auto"], "--levers are about training"),
        (["breakdown", "--policy.type=pi05"], "fast.yaml is a recipe for the type 'act', and this is 'pi05'"),
        (["breakdown", "--model.type=vjepa2"], "fast.yaml is a recipe for the type 'act', and this is 'vjepa2'"),
        (["batch", "--policy.type=act"], "--recipe does not fit here: recipes are for inference"),
        (["train"], "--recipe is for inference"),
        (["dataloader"], "--recipe is for inference"),
    ],
)
def test_where_it_makes_no_sense_it_is_refused(
    argv: list[str], words: str, fast: str, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*argv, f"--recipe={fast}", *(["--", "--policy.type=act"] if len(argv) == 1 else [])]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert len(told.splitlines()) == 1


def test_a_wrong_recipe_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("policy: act\ntreatments: [{presicion: bf16}]\n")
    argv = ["--policy.type=act", f"--recipe={path}"]
    for read in (breakdown.read, compare.read):
        with pytest.raises(UserError, match=r"x.yaml: treatments.1: no treatment 'presicion'"):
            read(argv)
    with pytest.raises(UserError, match=r"x.yaml: treatments.1"):
        compare.read(["--policy.type=act", "--variant", f"a: recipe={path}"])
    with pytest.raises(UserError, match="cannot read the recipe"):
        breakdown.read(["--policy.type=act", f"--recipe={tmp_path / 'none.yaml'}"])
    with pytest.raises(UserError, match="one recipe, not 2"):
        compare.read(["--policy.type=act", "--variant", f"a: recipe={path}, recipe={path}"])


def test_a_rung_that_does_not_fit_ends_a_command_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    dump(Recipe(policy="act", treatments=[{"precision": "bf16"}, {"guidance": "closed form"}]), path)
    code = main(["breakdown", "--policy.type=act", f"--recipe={path}", *TINY, f"--output_dir={tmp_path}"])
    assert code == 2
    assert "strobe: x.yaml: step 2 (guidance=closed form): policy type 'act' has no" in capsys.readouterr().err


@pytest.mark.parametrize("axis", [True, False])
def test_a_sweeps_cell_is_another_once_its_recipe_is(axis: bool, fast: str) -> None:
    def keys() -> list[str]:
        if axis:
            made = grid.cells("breakdown", ["--policy.type=act"], {"recipe": [fast, "none.yaml"]})
        else:
            flags = ["--policy.type=act", f"--variant=a: precision=fp16, recipe={fast}"]
            made = grid.cells("compare", flags, {"batch_size": ["1", "2"]})
        return [cell.key for cell in made]

    before = keys()
    text = Path(fast).read_text()
    Path(fast).write_text(text)
    os.utime(fast, (0, 0))
    assert keys() == before  # written again, it is the same
    Path(fast).write_text(text.replace("bf16", "fp16"))
    assert keys()[0] != before[0]
    if axis:
        assert keys()[1] == before[1]


def test_help_lists_the_treatments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--help"]) == 0
    assert "--recipe" in capsys.readouterr().out
    assert main(["compare", "--help=treatments"]) == 0
    told = capsys.readouterr().out
    for entry in own_entries():
        assert entry.help in told
        assert f"\n  {entry.key}" in told
    assert "policy.FIELD (lossy)" in told
