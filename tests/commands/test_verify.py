"""strobe verify: passes a recipe that acts the same, names the one that does not, and exits accordingly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checks.presence import require_value
from support.fakes.progress_log import ProgressSeen

from strobe.core.cli import main as cli
from strobe.core.measure.guard import Guards
from strobe.core.report.verify import answers
from strobe.core.results.answer import VerifyResult
from strobe.core.results.recipe import Recipe
from strobe.core.runs import store
from strobe.core.runs.recipe_file import dump
from strobe.core.sameness.check import YARDSTICKS
from strobe.core.treatments import catalogue, known, spec
from strobe.core.treatments.recipe import ALL, EXACT_ALONE, recipe_guards
from strobe.core.treatments.treatment import STRUCTURE, Entry, Treatment, require_policy
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.verify import verify

MIXED: list[dict[str, Any]] = [{"padding": "trimmed"}, {"masks": "once"}, {"precision": "bf16"}]
BOUND = ["--policy.type=pi05", "--policy.size=tiny", "--policy.num_inference_steps=2", "--policy.device=cpu"]


def recipe(treatments: list[dict[str, Any]], guard: str = "") -> Recipe:
    return Recipe(policy="pi05", size="tiny", treatments=treatments, guard=guard)


class Reused(Treatment):
    """Claims to be exact, and gives the first observation's prefix to all."""

    effect = "exact"
    key = "reused"

    def apply(self, subject):
        model: Any = require_policy(subject).policy.model
        kept, before = {}, model.embed_prefix

        def embed(*args, **kwargs):
            return kept.setdefault("first", before(*args, **kwargs))

        model.__dict__["embed_prefix"] = embed
        return lambda: model.__dict__.pop("embed_prefix")


@pytest.fixture
def reused_treatment(monkeypatch):
    entry = Entry("reused", "a planted fault", "exact", STRUCTURE, lambda _: Reused())
    entries = (*catalogue.own_entries(), entry)
    monkeypatch.setattr(catalogue, "own_entries", lambda: entries)
    words = spec.HelpWords("reused", "", "exact", STRUCTURE, "a planted fault")
    monkeypatch.setattr(known, "table", lambda: {**spec.table(), "reused": words})


@pytest.fixture(scope="module")
def subject():
    return load_subject(PolicyOptions(type="pi05", size="tiny", overrides=["--num_inference_steps=2", "--device=cpu"]))


def test_a_recipe_that_acts_the_same_passes_and_its_exact_treatments_are_held_to_more(subject):
    found = recipe(MIXED)
    result = verify(subject, found, "fast.yaml", recipe_guards(found), count=4, passes=1)
    assert result.has_passed
    assert [(check.name, check.effect) for check in result.checks] == [(EXACT_ALONE, "exact"), (ALL, "rounding")]
    exact, together = (check.agreement for check in result.checks)
    assert require_value(exact).rms < 1e-5 < require_value(require_value(together).rms) < 0.02
    assert [one.name for one in result.yardsticks] == [
        "reordered sums", "another noise draw", "neighbouring frame", "another observation",
    ]  # fmt: skip
    assert not result.measurements


def test_a_wrong_exact_treatment_is_not_hidden_by_rounding(subject, reused_treatment):
    found = recipe([{"reused": True}, {"precision": "bf16"}], guard="rms<=1, worst<=3")
    result = verify(subject, found, "fast.yaml", recipe_guards(found), count=4, passes=1)
    assert not result.has_passed
    exact, together = result.checks
    assert "it is not exact" in (exact.broken or "")
    assert exact.agreement.worst_at
    assert not together.broken, "the recipe's own guard is as loose as that"


def test_limits_of_ones_own_count(subject):
    found = recipe([{"precision": "bf16"}])
    result = verify(subject, found, "fast.yaml", Guards.parse("rms<=1e-6"), count=2, passes=1)
    assert [(check.broken or "").startswith("RMS") for check in result.checks] == [True]


def test_ctrl_c_keeps_the_checks_that_were_made(subject):
    class Stops:
        def stage(self, what: str) -> None:
            if what.startswith(ALL):
                raise KeyboardInterrupt

        def progress(self, progress) -> None: ...

    found = recipe(MIXED)
    result = verify(subject, found, "fast.yaml", recipe_guards(found), Stops(), count=2, passes=1)
    assert result.status == "interrupted"
    assert [check.name for check in result.checks] == [EXACT_ALONE]
    assert not result.has_passed


def test_every_phase_tells_how_far_the_whole_is_and_how_long_it_will_take(subject):
    found, kept = recipe(MIXED), ProgressSeen()
    verify(subject, found, "fast.yaml", recipe_guards(found), kept, count=2, passes=1)
    calling = {what: told for what, told in kept.stages.items() if "ceiling" not in what}
    assert len(calling) == 1 + len(YARDSTICKS) + 2
    assert all(calling.values())
    told = [one for phase in calling.values() for one in phase]
    assert [one.done for one in told] == list(range(1, len(told) + 1))
    assert {one.expected for one in told} == {len(told)}
    assert all(one.seconds_left is not None for one in told)
    assert told[-1].seconds_left == 0


def test_where_time_is_short_fewer_observations_are_looked_at_and_the_answer_says_so(subject):
    found = recipe([{"precision": "bf16"}])
    result = verify(subject, found, "fast.yaml", recipe_guards(found), count=5, passes=1, seconds=1e-3)
    assert [check.agreement.distinct for check in result.checks] == [4]
    assert any(sentence.startswith("4 of 5 observations were compared") for sentence in answers(result))


def test_the_command_ends_in_a_run_and_an_exit_code(tmp_path: Path, capsys, reused_treatment):
    path = tmp_path / "fast.yaml"
    common = [f"--recipe={path}", *BOUND, f"--output_dir={tmp_path / 'runs'}", "--observations=2", "--passes=1"]
    dump(recipe(MIXED), path)
    assert cli.main(["verify", *common]) == 0
    said = capsys.readouterr().out
    assert "fast.yaml" in said
    assert "σ" in said
    assert cli.main(["verify", *common, "--guard=rms<=1e-9"]) == 1
    dump(recipe([{"reused": True}]), path)
    assert cli.main(["verify", *common]) == 1
    assert "not exact" in capsys.readouterr().out
    runs = sorted((tmp_path / "runs").iterdir())
    assert len(runs) == 3
    for run in runs:
        assert isinstance(store.load(run), VerifyResult)
        assert (run / "report.html").is_file()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--policy.type=pi05"], "name the recipe to verify: --recipe=recipe.yaml"),
        (["--policy.type=pi05", "--recipe={recipe}", "--iterations=5"], "--iterations is for timing"),
        (["--policy.type=act", "--recipe={recipe}"], "is a recipe for the type 'pi05'"),
        (["--policy.type=pi05", "--recipe={recipe}", "--guard=rms<=x"], "--guard='rms<=x': 'x' is not a number"),
        (["--policy.type=pi05", "--recipe={recipe}", "--guard=success_drop<=0.1"], "success_drop needs episodes"),
        (["--model.type=vjepa2", "--recipe={recipe}"], "a model has no actions"),
        (["--policy.type=pi05", "--recipe={recipe}x"], "cannot read the recipe"),
        (["--policy.type=pi05", "--recipe={recipe}", "--observations=1"], "observations"),
    ],
)
def test_wrong_input_is_one_line(tmp_path: Path, capsys, argv: list[str], words: str):
    path = tmp_path / "fast.yaml"
    dump(recipe(MIXED), path)
    assert cli.main(["verify", *(one.replace("{recipe}", str(path)) for one in argv)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
