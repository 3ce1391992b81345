"""Help and wrong flags are answered without torch and without LeRobot, whose imports take seconds.

One process answers all of them and looks after each at what is imported; no time is judged.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.suite.places import TESTS

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.slices import commands

HEAVY = ("torch", "lerobot", "transformers", "diffusers", "datasets", "scipy", "pandas", "plotly", "gymnasium")
ACT = ["breakdown", "--policy.type=act"]
GUIDED = ["compare", "--policy.type=act"]
PLAYED = ["evaluate", "--policy.type=act", "--env.type=pusht"]
RECIPE = "policy: {policy}\ntreatments:\n- {spec}\n"

# The arguments → words of the answer.
WRONG: list[tuple[list[str], str]] = [
    (["breakdown", "--polcy.type=act"], "did you mean --policy.type?"),
    (["breakdown", "--policy.type=actt"], "did you mean 'act'?"),
    (["breakdown"], "name the policy:"),
    (["breakdown", "--policy.chunk_size=3"], "name the policy:"),
    ([*ACT, "--policy.chunk_sise=3"], "did you mean --policy.chunk_size?"),
    ([*ACT, "--policy.chunk_size=x"], "`chunk_size`: Couldn't parse 'x' into an int"),
    ([*ACT, "--policy.use_vae=maybe"], "`use_vae`: Couldn't parse 'maybe' into a bool"),
    ([*ACT, "--iteratons=3"], "did you mean --iterations?"),
    ([*ACT, "--iterations=many"], "`iterations`"),
    ([*ACT, "--iterations=0"], "must be at least 1"),
    ([*ACT, "--phases=[infrence]"], "did you mean 'inference'?"),
    ([*ACT, "--device=cdua"], "no device 'cdua'"),
    ([*ACT, "--env.type=pushtt"], "did you mean 'pusht'?"),
    ([*ACT, "--env.type=pusht", "--env.tsak=x"], "did you mean --env.task?"),
    ([*ACT, "--env.type=pusht", "--env.fps=x"], "`env.fps`: Couldn't parse 'x' into an int"),
    ([*ACT, "--env.task=x"], "--env.* needs --env.type: aloha"),
    ([*ACT, "--evn.type=pusht"], "did you mean --env.type?"),
    ([*ACT, "--dataset.rot=x"], "did you mean --dataset.root?"),
    ([*ACT, "--dataset.revision=x"], "Missing required field(s) `repo_id`"),
    ([*ACT, "--dataset.root=x", "--dataset.streaming=3"], "`dataset.streaming`: Couldn't parse '3' into a bool"),
    ([*ACT, "--rtc.execution_horizn=3"], "did you mean --rtc.execution_horizon?"),
    ([*ACT, "--rtc.max_guidance_weight=much"], "`rtc.max_guidance_weight`: Couldn't parse 'much' into a float"),
    ([*ACT, "--dataset.root=x", "--env.type=pusht"], "from --dataset or from --env, not both"),
    ([*ACT, "--recipe=/no/such.yaml"], "cannot read the recipe /no/such.yaml"),
    ([*ACT, "--recipe=other.yaml"], "is a recipe for the type 'pi05'"),
    ([*ACT, "--recipe=unknown.yaml"], "treatments.1: no treatment 'speed'"),
    ([*ACT, "--python_profile=perf"], "--python_profile=perf"),
    ([*ACT, "--rtc=20"], "--rtc=20: give each of its fields as a flag"),
    ([*ACT, "--dataset.root=/no/such/data"], "no LeRobotDataset at /no/such/data"),
    ([*ACT, "--dataset.root=2024-11-29"], "no LeRobotDataset at 2024-11-29"),
    (["breakdown", "--policy.path=/no/such/folder"], "there is no folder /no/such/folder"),
    (["breakdown", "--policy.path=checkpoint", "--policy.chunk_sise=3"], "did you mean --policy.chunk_size?"),
    (["breakdown", "--model.type=vjepa3"], "did you mean 'vjepa2'?"),
    (["breakdown", "--model.type=vjepa2", "--model.hiden_size=3"], "did you mean '--model.hidden_size'?"),
    (["breakdown", "--model.type=vjepa2", "--rtc.enabled=true"], "--rtc is for policies"),
    ([*GUIDED, "--variant", "oops"], "NAME: key=value"),
    ([*GUIDED, "--variant", "a: speed=1"], "no treatment 'speed'"),
    ([*GUIDED, "--variant", "a: precision.part=x"], "is an option of 'precision'"),
    ([*GUIDED, "--variant", "a: channels_last=3"], "channels_last takes no value"),
    ([*GUIDED, "--variant", "a: cameras=x"], "'batched' is the only value"),
    ([*GUIDED, "--variant", "a: rtc.horizon=3"], "no setting 'rtc.horizon'"),
    ([*GUIDED, "--precision=bf17"], "unknown precision 'bf17'"),
    ([*GUIDED, "--levers=speed"], "no lever 'speed'"),
    ([*GUIDED, "--compile_mode=fast"], "--compile_mode=fast"),
    (["optimize", "--policy.type=act", "--guard=rsm<=1"], "did you mean 'rms'?"),
    (["optimize", "--policy.type=act", "--only=precison"], "did you mean 'precision'?"),
    (["optimize", "--policy.type=act", "--candidate", "speed=1"], "no treatment 'speed'"),
    (["optimize", "--policy.type=act", "--allow=losy"], "did you mean 'lossy'?"),
    (["verify", "--policy.type=act"], "name the recipe to verify"),
    ([*PLAYED, "--episode=4"], "did you mean --episodes?"),
    ([*PLAYED, "--steps=ten"], "'ten' is not a whole number, such as 10"),
    ([*PLAYED, "--realtime", "--hold=x"], "last or zero"),
    ([*PLAYED, "--realtime", "--inference.rtc.execution_horizon=0", "--inference.type=rtc"], "must be at least 1"),
    ([*PLAYED, "--inference.rtc.execution_horizn=3"], "did you mean --inference.rtc.execution_horizon?"),
    (["sweep", *ACT, "--grid", "policy.chunk_sise=1,2"], "did you mean --policy.chunk_size?"),
    (["sweep", *ACT, "--grid", "batch_size=0,2"], "1 of 2 cells"),
    (["sweep", "brakdown", "--policy.type=act"], "did you mean 'breakdown'?"),
    (["batch", "--policy.type=act", "--larges=3"], "unknown flag --larges"),
    (["train", "--dpeth=2"], "did you mean --depth?"),
    (["train", "--", "--policy.type=act"], "name the dataset:"),
    (["train", "--", "--policy.type=actt", "--dataset.repo_id=a/b"], "did you mean 'act'?"),
    (["train", "--", "--polcy.type=act"], "did you mean '--policy.type'?"),
    (["dataloader", "--seconds=0", "--", "--policy.type=act"], "--seconds=0.0: must be above 0"),
    (["dataloader", "--", "--dataset.repo=x"], "did you mean '--dataset.repo_id'?"),
    (["rollout", "--", "--robot.type=x", "--polcy.path=x"], "did you mean '--policy.path'?"),
    (["rollout", "--", "--policy.path=x"], "name the robot:"),
    (["rollout", "--", "lerobot-recrod"], "did you mean 'lerobot-record'?"),
    (["rehearse", "--", "--robot.type=so101_follower", "--policy.type=actt"], "did you mean 'act'?"),
    (["replay", "/no/run"], "no run at /no/run"),
    (["replay", "/no/run", "--drews=3"], "did you mean --draws?"),
    (["record", "--root=x", "--env=metawrld"], "did you mean 'metaworld'?"),
    (["doctor", "--only=nois"], "did you mean 'noise'?"),
    (["budget", "/no/run"], "/no/run"),
    (["report", "--depht=2", "x"], "--depht"),
    (["diff", "/no/run", "/no/other"], "/no/run"),
]


def answers() -> None:
    """Print for each help and each wrong flag: code, output, and what heavy modules it imported."""
    asked = [["--help"], ["--version"], *([command, "--help"] for command in commands()), *(argv for argv, _ in WRONG)]
    for argv in asked:
        before = set(sys.modules)
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(argv)
        fresh = {name.partition(".")[0] for name in set(sys.modules) - before}
        plugins = [name for name in fresh if name.startswith("lerobot_")]
        heavy = [name for name in HEAVY if name in fresh]
        print(json.dumps([argv, code, said.getvalue(), [*heavy, *plugins]]))


def test_no_help_and_no_wrong_flag_imports_what_takes_seconds(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(RECIPE.format(policy="pi05", spec="precision: bf16"))
    (tmp_path / "unknown.yaml").write_text(RECIPE.format(policy="act", spec="speed: 1"))
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text('{"type": "act"}')
    (tmp_path / "checkpoint" / "model.safetensors").touch()
    here = TESTS
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])}
    code = "from commands import test_answers_at_once as here; here.answers()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    imported = [(argv, heavy) for argv, _, _, heavy in found if heavy]
    assert not imported
    helps, wrong = found[: -len(WRONG)], found[-len(WRONG) :]
    assert [argv for argv, code, *_ in helps if code != 0] == []
    told = [(argv, words, said) for (argv, code, said, _), (_, words) in zip(wrong, WRONG, strict=True)
            if code != 2 or words not in said]  # fmt: skip
    assert not told
    assert [said for _, _, said, _ in wrong if "Traceback" in said or said.startswith("…")] == []


def test_a_comparison_says_that_it_lives_before_torch_is_imported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from strobe.core.cli.live import importing

    monkeypatch.delitem(sys.modules, "lerobot.policies", raising=False)
    with importing():
        assert capsys.readouterr().err == "… importing torch and LeRobot\n"
        assert not gc.isenabled()
    assert gc.isenabled()
    monkeypatch.setitem(sys.modules, "lerobot.policies", sys)
    with importing():
        assert gc.isenabled()
    assert not capsys.readouterr().err


def test_what_the_source_does_not_show_lerobot_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from strobe.commands.breakdown import read
    from strobe.lerobot.flags.lazy_flags import realise
    from strobe.lerobot.policies.options import PolicyOptions
    from strobe.lerobot.schema import registries, shapes
    from strobe.lerobot.schema.source import UnreadableSourceError

    def unreadable(*_: object) -> None:
        raise UnreadableSourceError("of a form of its own")

    for module, name in ((registries, "choices"), (shapes, "shape"), (shapes, "options"), (shapes, "find")):
        monkeypatch.setattr(module, name, unreadable)
    rest = ["--policy.chunk_size=7", "--rtc.execution_horizon=7", "--env.type=pusht", "--env.fps=5"]
    config = read(["--policy.type=act", *rest])
    realise(config)
    assert isinstance(config.subject, PolicyOptions)
    assert config.subject.overrides == ["--chunk_size=7"]
    assert config.rtc is not None
    assert config.env is not None
    assert (config.rtc.execution_horizon, config.env.type, config.env.fps) == (7, "pusht", 5)
    for wrong in ("--policy.chunk_sise=7", "--rtc.execution_horizn=7", "--env.fpss=7"):
        with pytest.raises(UserError, match="unknown flag"):
            read(["--policy.type=act", "--env.type=pusht", wrong])
