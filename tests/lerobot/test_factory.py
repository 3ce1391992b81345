"""`--policy.factory`: a policy of another project, made by a function, through the commands that run such policies.

The policy is tests/support/factories/arm.py: a vision encoder and a denoising loop, with an `infer` of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support.checks.run_contents import load_stored
from support.fakes.sleeper import Clock
from support.suite.places import TESTS

import strobe
from strobe.core.cli.main import main
from strobe.core.results.answer import Answer, BreakdownResult, CompareResult, VerifyResult
from strobe.core.results.subject import Ceiling
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions

FACTORIES = TESTS / "support" / "factories"
ARM = FACTORIES / "arm.py"


@pytest.fixture(autouse=True)
def forgotten():
    """Forget the modules that a command imported for one test."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        if name in ("arm", "arm_parts", "strobe_factory_arm", "timed_arm"):
            del sys.modules[name]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """`timed_arm:make` makes the policy; by this clock its encoder takes 4 ms, half in bfloat16; its expert 1 ms."""
    clock = Clock().wind(monkeypatch)
    monkeypatch.setattr("strobe.core.measure.ceiling.measure", lambda *_: Ceiling())
    monkeypatch.syspath_prepend(str(FACTORIES))
    import arm  # pyright: ignore[reportMissingImports]

    def slow_module(module: torch.nn.Module, ms: float) -> None:
        plain = module.forward

        def forward(*args):
            half = next(module.parameters()).dtype is torch.bfloat16
            clock.sleep(ms * (0.5 if half else 1.0) / 1e3)
            return plain(*args)

        module.forward = forward

    def make():
        policy, observations = arm.make()
        slow_module(policy.vision, 4.0)
        slow_module(policy.expert, 1.0)
        return policy, observations

    timed = ModuleType("timed_arm")
    vars(timed)["make"] = make
    monkeypatch.setitem(sys.modules, "timed_arm", timed)
    return clock


def run_command(command: str, folder: Path, *flags: str, factory: object = f"{ARM}:make") -> int:
    return main([command, f"--policy.factory={factory}", f"--output_dir={folder}", *flags])


def load_only_answer[A: Answer](kind: type[A], folder: Path) -> A:
    """Return the answer of the one run in ``folder``."""
    (run,) = [each for each in folder.iterdir() if each.is_dir()]
    return load_stored(kind, run)


def refusal_line(capsys: pytest.CaptureFixture[str], command: str, folder: Path, *flags: str, **how: object) -> str:
    """Return the line that a command ends with."""
    assert run_command(command, folder, *flags, **how) == 2
    out = capsys.readouterr()
    assert not list(folder.glob("*"))
    (line,) = [line for line in out.err.splitlines() if line.startswith("strobe: ")]
    assert "Traceback" not in out.err
    return line


def test_breakdown_cuts_it_along_the_modules_inside(clock: Clock, tmp_path: Path):
    assert run_command("breakdown", tmp_path, "--seconds=1", factory="timed_arm:make") == 0
    result = load_only_answer(BreakdownResult, tmp_path)
    parts = {" > ".join(part.path): part for part in result.measurements[0].components}
    assert parts["vision"].summary.median == pytest.approx(4.0, rel=0.05)
    assert parts["expert"].summary.median == pytest.approx(4.0, rel=0.05)
    assert parts["expert"].calls == 4
    assert parts["expert"].gflop
    assert (result.subject.name, result.subject.kind) == ("ArmPolicy", "object with infer()")
    assert result.subject.source == "made by timed_arm:make"
    assert result.subject.inputs.startswith("3 inputs")
    saved = json.loads((next(tmp_path.glob("*_breakdown_armpolicy")) / "result.json").read_text())
    assert saved["config"]["policy"]["factory"] == "timed_arm:make"


def test_compare_judges_a_treatment_of_its_modules(clock: Clock, tmp_path: Path):
    assert (
        run_command("compare", tmp_path, "--seconds=2", "--variant=half: precision=bf16", factory="timed_arm:make") == 0
    )
    result = load_only_answer(CompareResult, tmp_path)
    (comparison,) = result.comparisons
    assert comparison.verdict.kind == "faster"
    assert (comparison.effect, comparison.outcome) == ("rounding", "held")
    assert comparison.guard == "rms<=0.02, worst<=0.2"
    assert comparison.agreement.of == "outputs"
    assert comparison.agreement.rms is not None
    assert 0 < comparison.agreement.rms < 0.02
    assert all(dimension.name.startswith("actions ") for dimension in comparison.agreement.dimensions)


def test_a_treatment_for_a_policy_of_lerobot_says_so(capsys, tmp_path: Path):
    line = refusal_line(capsys, "compare", tmp_path, "--iterations=2", "--variant=fewer: policy.num_inference_steps=2")
    assert "ArmPolicy is not a policy: this applies to policies only" in line


RECIPE = "version: 1\npolicy: object with infer()\ntreatments:\n- {precision: bf16}\n- {channels_last: true}\n"


@pytest.mark.parametrize(("guard", "code", "outcome"), [("", 0, "held"), ("rms<=1e-6", 1, "broken")])
def test_verify_holds_a_recipe_against_it(tmp_path: Path, guard: str, code: int, outcome: str):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    flags = (f"--recipe={tmp_path / 'recipe.yaml'}", "--observations=4", "--passes=1", f"--guard={guard}")
    assert run_command("verify", tmp_path / "runs", *flags) == code
    result = load_only_answer(VerifyResult, tmp_path / "runs")
    assert result.outcome == outcome
    (check,) = result.checks
    assert check.treatments == ["precision=bf16", "channels_last=true"]
    assert check.agreement.distinct == 3
    assert "returning to an earlier one" in check.agreement.how


def test_verify_says_that_a_recipe_is_for_another_kind(capsys, tmp_path: Path):
    (recipe := tmp_path / "recipe.yaml").write_text(RECIPE.replace("object with infer()", "act"))
    line = refusal_line(capsys, "verify", tmp_path / "runs", f"--recipe={recipe}")
    assert line.endswith("recipe.yaml is a recipe for the type 'act', and this is 'object with infer()'")


def test_a_treatment_that_fails_in_a_call_breaks_the_check(tmp_path: Path):
    (tmp_path / "recipe.yaml").write_text("version: 1\npolicy: object with infer()\ntreatments:\n- {precision: bf16}\n")
    (tmp_path / "strict.py").write_text(
        "import numpy as np, torch\n"
        "class Strict:\n"
        "    def __init__(self): self.layer = torch.nn.Linear(4, 4).eval().requires_grad_(False)\n"
        "    def infer(self, x):\n"
        "        if self.layer.weight.dtype is not torch.float32: raise TypeError('only float32')\n"
        "        return self.layer(torch.from_numpy(x)).numpy()\n"
        "def make(): return Strict(), np.ones((9, 4), np.float32)\n"
    )
    flags = (f"--recipe={tmp_path / 'recipe.yaml'}", "--observations=2", "--passes=1")
    assert run_command("verify", tmp_path / "runs", *flags, factory=f"{tmp_path / 'strict.py'}:make") == 1
    (check,) = load_only_answer(VerifyResult, tmp_path / "runs").checks
    assert check.broken == "'Strict' failed on input 1 of 1: TypeError: only float32"


def test_what_a_module_returns_has_the_dtype_that_the_object_expects(tmp_path: Path):
    (tmp_path / "plain.py").write_text(
        "import numpy as np, torch\n"
        "class Plain:\n"
        "    def __init__(self): self.layer = torch.nn.Linear(4, 4).eval().requires_grad_(False)\n"
        "    def infer(self, x): return self.layer(torch.from_numpy(x)).numpy()\n"
        "def make(): return Plain(), np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)\n"
    )
    flags = ("--variant=half: precision=bf16", "--iterations=3", "--skip_counting")
    assert run_command("compare", tmp_path / "runs", *flags, factory=f"{tmp_path / 'plain.py'}:make") == 0
    assert load_only_answer(CompareResult, tmp_path / "runs").comparisons[0].agreement.largest_error > 0


def test_a_policy_of_lerobot_without_observations_is_run_as_one(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "from lerobot.policies.act.configuration_act import ACTConfig\n"
        "from lerobot.policies.act.modeling_act import ACTPolicy\n"
        "from lerobot.configs.types import FeatureType, PolicyFeature\n"
        "def make():\n"
        "    small = dict(dim_model=32, n_heads=2, dim_feedforward=32, n_encoder_layers=1, n_vae_encoder_layers=1)\n"
        "    config = ACTConfig(chunk_size=4, n_action_steps=4, pretrained_backbone_weights=None, **small)\n"
        "    config.input_features = {'observation.state': PolicyFeature(FeatureType.STATE, (6,)),"
        " 'observation.images.top': PolicyFeature(FeatureType.VISUAL, (3, 64, 64))}\n"
        "    config.output_features = {'action': PolicyFeature(FeatureType.ACTION, (6,))}\n"
        "    return ACTPolicy(config)\n"
    )
    assert (
        run_command(
            "breakdown", tmp_path / "runs", "--iterations=2", "--skip_counting", factory=f"{tmp_path}/mine.py:make"
        )
        == 0
    )
    result = load_only_answer(BreakdownResult, tmp_path / "runs")
    assert (result.subject.kind, result.subject.anatomy) == ("act", "act")
    assert {"preprocessing", "policy"} <= {part.name for part in result.measurements[0].components}


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("arm.py", "must be package.module:function or path/to/file.py:function"),
        ("nowhere/arm.py:make", "there is no file nowhere/arm.py"),
        ("a-b:make", "'a-b' is neither the name of a module nor a file that ends in .py"),
        ("no_such_package.policies:make", "module 'no_such_package' is not installed"),
        (f"{ARM}:maek", "there is no 'maek' in it: did you mean 'make'?"),
        (f"{ARM}:not_a_function", "'not_a_function' is of type int: use a function that returns the policy"),
        (
            f"{ARM}:require_width",
            "require_width() takes arguments (width): use a function without arguments that calls it",
        ),
        (f"{ARM}:fails", "fails() failed: FileNotFoundError: no weights at all (arm.py, line "),
        (f"{ARM}:ends", "ends() failed: RuntimeError: it ended the process with 3"),
        (f"{ARM}:return_none", "it returns None: return the policy"),
        (f"{ARM}:three", "it returns 3 values: return the policy, or (policy, observations)"),
        (f"{ARM}:a_class", "'a_class' is the class ArmPolicy: pass an object of it"),
        (f"{ARM}:return_empty_list", "its list of observations is empty"),
        (f"{ARM}:return_policy_only", "it returns no observations to call ArmPolicy with: return them"),
        (f"{ARM}:fails_on_its_input", "'ArmPolicy' failed on input 1 of 1: KeyError: 'image'"),
    ],
)
def test_a_wrong_factory_is_one_line(capsys, tmp_path: Path, factory: str, words: str):
    assert words in refusal_line(capsys, "breakdown", tmp_path, factory=factory)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def make(:", "it cannot be imported: SyntaxError: "),
        ("import no_such_thing", "it cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("1 / 0", "it cannot be imported: ZeroDivisionError: division by zero (broken.py, line 1)"),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_line(capsys, tmp_path: Path, text: str, words: str):
    (tmp_path / "broken.py").write_text(text)
    assert words in refusal_line(capsys, "breakdown", tmp_path / "runs", factory=f"{tmp_path / 'broken.py'}:make")


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        ("breakdown", ["--dataset.root=somewhere"], "--dataset works with LeRobot policies only"),
        ("breakdown", ["--rtc.execution_horizon=10"], "--rtc works with LeRobot policies only"),
        ("breakdown", ["--phases=[training step]"], "'training step' needs a policy of LeRobot"),
        ("breakdown", ["--policy.chunk_size=10"], "--policy.chunk_size has no effect with --policy.factory"),
        ("compare", [], "a comparison needs two variants: add --precision=auto, --compile, --recipe=FILE or --variant"),
        ("compare", ["--levers=auto"], "'training step' needs a policy of LeRobot"),
        ("optimize", ["--env.type=pusht"], "--env works with LeRobot policies only"),
        ("verify", ["--recipe=missing.yaml"], "cannot read the recipe missing.yaml"),
        (
            "evaluate",
            ["--env.type=pusht"],
            "is for strobe breakdown, compare, verify, optimize and sweep: strobe evaluate",
        ),
        ("train", [], "strobe train needs a policy of LeRobot"),
        ("rollout", ["--", "--robot.type=so101_follower"], "strobe rollout needs a policy of LeRobot"),
        ("replay", ["somewhere"], "strobe replay needs a policy of LeRobot"),
        ("preflight", [], "strobe preflight needs a policy of LeRobot"),
        ("batch", [], "strobe batch needs a policy of LeRobot"),
    ],
)
def test_what_needs_lerobot_says_so_in_a_line(capsys, tmp_path: Path, command: str, flags: list[str], words: str):
    assert words in refusal_line(capsys, command, tmp_path, *flags)


def test_the_seed_makes_the_same_weights(tmp_path: Path):
    from strobe.lerobot.policies import factory

    def weights(seed: int) -> torch.Tensor:
        return next(factory.load(f"{ARM}:make", seed=seed).module.parameters())

    before = torch.random.get_rng_state()
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_policy_of_lerobots_has_the_parts_of_its_family():
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    batch = subject.prepare(subject.observation(0))
    answer = strobe.breakdown(subject.policy, batch, seconds=0.3, count=False)
    assert answer.subject.kind == "object with predict_action_chunk()"
    known = {hook.name for hook in subject.hooks("inference", 1)}
    parts = {part.name for part in answer.measurements[0].components if not part.other}
    assert parts
    assert parts <= known
    same = strobe.verify(subject.policy, subject.policy.predict_action_chunk, batch, guard="largest_error<=0")
    assert same.outcome == "held"


def test_importing_strobe_imports_nothing_heavy():
    heavy = "{'torch', 'numpy', 'lerobot', 'pydantic', 'rich'}"
    code = f"import sys, strobe; print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
