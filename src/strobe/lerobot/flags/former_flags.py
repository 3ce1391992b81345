"""Flags of the scripts that people come from, and what answers the same here; looked up before any likeness.

A likeness alone misleads: ``--num_frames`` resembles ``--env.num_envs``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial

from strobe.core import slices
from strobe.core.cli.live import call_ahead_of_imports
from strobe.core.cli.parse import Hint, parse, read_all, stop
from strobe.core.errors import UserError

# After the flag of LeRobot's command: "-- --num_workers" is one that comes after the --.
THEIRS = "-- "
RTC = "--inference.type=rtc"
_STAYING = ("--levers", "--precision", "--variant")  # their value is the hint's, whatever the unknown flag's is
_STEPS = "; several in one table: strobe evaluate --steps=10,5,2"
_STEP_FIELDS = (
    "num_inference_steps", "num_steps", "num_inference_timesteps", "num_denoising_steps", "num_denoise_steps",
    "action_num_inference_steps",
)  # fmt: skip

Row = tuple[tuple[str, ...], ...]

_DENOISING: Row = (
    ("--steps=10,5,2", ": the numbers to try besides the policy's own"),
    *((f"--policy.{name}", _STEPS) for name in _STEP_FIELDS),
    ("", "strobe breakdown and strobe compare take the policy's field, such as --policy.num_inference_steps" + _STEPS),
)
_EPISODES: Row = (
    ("--episodes", "; the verdict says how many decide"),
    ("--eval.n_episodes", ""),
    ("", "strobe evaluate --episodes=50 plays them"),
)
_AMP: Row = (
    ("--levers=amp", ", or amp=bf16"),
    (f"{THEIRS}--policy.use_amp", ""),
    ("--policy.use_amp", ""),
    ("", "strobe compare --levers=amp measures what it gains"),
)
_ACCUMULATE: Row = (("--levers=accumulate=4", ""), ("", "strobe compare --levers=accumulate=4 measures it"))
_GRAPH: Row = (
    ("--variant='graph: graph=chunk'", ""),
    ("", "strobe compare --variant 'graph: graph=chunk' measures it, and strobe optimize tries it"),
)
_IMAGES: Row = (("--model.img_size", ""), ("--image_size=HEIGHTxWIDTH", ", for synthetic images"))
_OPENPI: Row = (
    ("", "openpi's policies run by --policy.factory=FILE.py:MAKE, its server by --policy.server=ws://HOST:PORT"),
)
_SERVER: Row = (("", "a policy server is --policy.server=ws://HOST:PORT, in strobe breakdown and strobe compare"),)
_ITERATIONS: Row = (
    ("--iterations", "; without it Strobe samples until the interval is narrow enough"), ("--passes", ""),
    ("--latency_iterations", ""),
)  # fmt: skip
_DTYPE: Row = (
    ("--policy.dtype", ""), ("--model.dtype", ""), ("--precision=fp32,bf16", " to compare formats"),
    ("", "strobe compare --precision=fp32,bf16 compares formats"),
)  # fmt: skip
_COMPILED: Row = (
    ("--compile", ", which adds compiled variants next to the eager ones"),
    (f"{THEIRS}--policy.compile_model=true", ", where the policy has it"),
    ("", "strobe compare --compile measures it, and strobe optimize tries it"),
)


def _synthetic_setting(what: str, flag: str) -> Row:
    return (("", f"the {what} comes with the data set; a synthetic robot's is {flag}", flag),)


# Former name → flags here, each with the rest of its sentence. The first that the command has is the hint. '' is for
# commands without any of them, and has flags that take the place of the former one behind its sentence.
ROWS: dict[str, Row] = {
    "allow_tf32": (("--levers=tf32=false", ""), ("", "strobe compare --levers=tf32=false measures it")),
    "batch_size": (
        ("--batch_sizes", " for further sizes; the training's own comes after the --"),
        ("--parallel", ": episodes at the same time"),
    ),
    "default_prompt": ((f"{THEIRS}--task", ""), ("", "the task comes with the data set; a server is sent --prompt")),
    "device": ((f"{THEIRS}--policy.device", ""),),
    "enable_rtc_profiling": (
        ("--rtc.execution_horizon=20", ", which turns RTC on and shows its inside"),
        (f"{THEIRS}{RTC}", "; its inside is always shown"),
    ),
    "execution_horizon": (("--rtc.execution_horizon", ""), (f"{THEIRS}--inference.rtc.execution_horizon", "")),
    "exp_name": ((f"{THEIRS}--job_name", ""),),
    "model_path": (
        ("", "a policy is --policy.path=FOLDER_OR_HUB_ID, a backbone --model.path=FOLDER_OR_HUB_ID", "--policy.path"),
    ),
    "num_cameras": (("--cameras", ""),),
    "num_frames": (
        ("--model.num_frames", ""),
        ("--frames", ""),
        ("", "clips are a backbone's: --model.type=vjepa2 --model.num_frames=16"),
    ),
    "num_steps_wait": (("", "LeRobot's LIBERO lets objects settle by itself"),),
    "num_workers": (
        ("--workers", " for the numbers to try; the training's own comes after the --"),
        ("--parallel", ": episodes at the same time"),
        ("", "strobe dataloader and strobe train measure a loader: --num_workers comes after their --"),
    ),
    "pin_memory": (
        ("--skip_what_ifs", ", which leaves it out; without that, pinned memory is measured on CUDA"),
        ("", "strobe dataloader measures pinned memory on CUDA; lerobot-train has no flag for it"),
    ),
    "policy.compile": (("--policy.compile_model=true", ""), *_COMPILED),
    "policy.image_size": (
        ("--policy.image_resolution", ": what the policy resizes to; a synthetic camera's is --image_size=480x640"),
        *_synthetic_setting("size of an image", "--image_size=480x640"),
    ),
    **{f"policy.{name}": (*_DENOISING[1:-1], ("", "this policy takes no denoising steps")) for name in _STEP_FIELDS},
    "prefetch_factor": (("--prefetch", " for the factors to try; the training's own comes after the --"),),
    "quick": (
        ("--episodes=3 --env.task_ids=[0,1,2]", "; the verdict says how many decide"),
        ("--iterations=10", ""),
        ("--seconds=2", ""),
        (f"{THEIRS}--steps=20", ""),
    ),
    "repeats": (("", "strobe sweep takes --repeats: each configuration then runs in several processes"),),
    "resize_size": (*_IMAGES, ("", "an environment renders in its own size, such as --env.observation_height=256")),
    "robot.type": (("", "strobe rollout and strobe rehearse take a robot after their --; lerobot-record records one"),),
    "task_suite_name": (("--env.task=libero_spatial --env.type=libero", ""),),
    "verbose": (("", "--full prints all that is measured"),),
}
for _names, _row in (
    ("control_time_s episode_time_s", (("--duration", ""), (f"{THEIRS}--duration", ""))),
    ("accumulation_steps gradient_accumulation_steps", _ACCUMULATE),
    ("amp mixed_precision use_amp", _AMP),
    ("pretrained_policy_name_or_path", (("--policy.path", ""), (f"{THEIRS}--policy.path", ""))),
    ("compile use_torch_compile", _COMPILED),
    ("denoising_steps num_denoising_steps num_inference_steps num_steps", _DENOISING),
    ("dtype policy.dtype policy.precision precision pytorch_training_precision", _DTYPE),
    ("eval.n_episodes n_episodes num_episodes num_trials_per_task", _EPISODES),
    ("replan_steps", (("--n_action_steps=5,10", " to try besides the policy's own"), ("--policy.n_action_steps", ""))),
    ("output_file output_path", (("--output_dir", ": a folder with result.json; --json prints the figures"),)),
    ("use_cuda_graph", _GRAPH),
    ("image_resolution img_size", _IMAGES),
    ("n_runs num_iterations num_runs", _ITERATIONS),
    ("policy.config policy.dir", _OPENPI),
    ("policy.action_dim policy.action_feature", _synthetic_setting("size of an action", "--action_dim=14")),
    ("policy.image_features policy.num_cameras", _synthetic_setting("number of cameras", "--cameras=2")),
    ("policy.state_dim policy.state_feature", _synthetic_setting("size of the state", "--state_dim=14")),
    ("fps target_fps", (("--target_hz", ""), ("--pace", ": calls at that rate, as on a robot"))),
    ("eval.batch_size eval.use_async_envs", (("--parallel=4", ": episodes at the same time"),)),
    ("host port server_address", _SERVER),
    ("rtc rtc.enabled", ((f"{THEIRS}{RTC}", ""),)),
    ("num_train_steps", ((f"{THEIRS}--steps", ""),)),
    ("max_episodes_rendered video_out_path", (("--videos=3", ": the number of starts to film"),)),
    ("warmup warmup_iterations", (("", "not needed: the warm-up is found in the samples and cut"),)),
):
    ROWS.update(dict.fromkeys(_names.split(), _row))

# Former script → its page, and the command that answers instead.
SCRIPTS = {
    "add_rtc_profiling": ("rtc-toolkit", "breakdown --policy.path=FOLDER --rtc.execution_horizon=20 --depth=2"),
    "benchmark_forward_pass": (
        "act-relative-rtc",
        "breakdown --policy.type=act_relative_rtc --policy.chunk_size=50 --policy.dim_model=256 "
        "--policy.n_encoder_layers=4 --phases='[training forward]'",
    ),
    "eval_with_real_robot_profiled": ("rtc-toolkit", "rollout -- --policy.path=FOLDER --inference.type=rtc"),
    "libero_eval_full_optimized": ("pi05-libero", "evaluate --policy.path=FOLDER --env.type=libero --steps=10,5,3,2,1"),
    "profile": ("diffusion-training", "train --python_profile=cprofile -- --policy.type=diffusion"),
    "profile_dataloader": ("diffusion-training", "dataloader -- --policy.type=diffusion"),
    "profile_detailed": ("diffusion-training", "train -- --policy.type=diffusion"),
    "profile_pi0_rtc_detailed": ("rtc-toolkit", "breakdown --policy.path=FOLDER --rtc.execution_horizon=20 --depth=2"),
    "profile_rtc_comparison": ("rtc-toolkit", "compare --policy.path=FOLDER --rtc.execution_horizon=20"),
    "profile_train": ("diffusion-training", "train --python_profile=cprofile -- --policy.type=diffusion"),
    "profile_vjepa2": ("vjepa2", "breakdown --model.type=vjepa2"),
}


def find_script(name: str, argv: Sequence[str]) -> str | None:
    """Say what answers instead of a former script (``profile_vjepa2.py``) with its flags; None for another name."""
    page, command = SCRIPTS.get(name.removesuffix(".py").removesuffix(".sh"), (None, ""))
    if page is None:
        return None
    text = f"it is `strobe {command}` here; docs/coming-from/{page}.md lists its flags"
    return f"{text}\n{_translate(*shlex.split(command), argv=argv)}" if argv else text


def _translate(command: str, *own: str, argv: Sequence[str]) -> str:
    """Return what a former script's ``argv`` is for ``command``, whose ``own`` flags say of what it is asked."""
    given = {flag.partition("=")[0].replace("-", "_") for flag in argv}
    asked = [flag for flag in own if flag == "--" or any(word in flag for word in (".type=", "phases=", "profile="))]
    meant = [*(flag for flag in asked if flag.partition("=")[0].replace("-", "_") not in given), *argv]
    run, said = slices.load(slices.commands()[command].module).run, ""
    try:
        with call_ahead_of_imports(stop):
            read_all(command, run.read or partial(parse, run.config), meant)
    except UserError as error:
        if "Corrected: " in str(error):
            return str(error)
        said = f"{error}\n" if str(error) else ""  # such as a data set that is not there
    return f"{said}Corrected: strobe {shlex.join([command, *meant])}"


def hint(name: str, has: Callable[[str], bool]) -> Hint | None:
    """Name the flags here that do what ``name`` of another tool (``--img_size``) does; None for an unknown flag.

    Args:
        has: whether the command takes a flag. One after `THEIRS` is LeRobot's, which comes after the ``--``.
    """
    given = name.removeprefix("--")
    former = given.removeprefix("policy.").removeprefix("model.")
    row = ROWS.get(given) or ROWS.get(former, ())
    for text, rest, *_ in row:
        flag, *more = shlex.split(text) or [""]
        if flag and flag != name and text == text.removeprefix(THEIRS) and has(flag.partition("=")[0]):
            return Hint(f"use {text}{rest}", (flag, *more), stays=flag.startswith(_STAYING))
    if has(THEIRS + name):
        return Hint(f"it is a flag of LeRobot: put it after the -- (… -- {name}=…)", (name,), after=True)
    if given != former and given not in ROWS:
        return None
    for text, rest, *_ in row:
        if text.startswith(THEIRS) and has(text.partition("=")[0]):
            flag = text.removeprefix(THEIRS)
            return Hint(f"put {flag} after the --{rest}", (flag,), after=True, stays=flag == RTC)
    rtc = former.removeprefix("rtc.")
    if rtc != former and has(f"{THEIRS}--inference.rtc.{rtc}"):
        flag = f"--inference.rtc.{rtc}"
        return Hint(f"put {flag} after the --, with {RTC}", (flag, RTC), after=True)
    return next((Hint(rest, tuple(flags)) for flag, rest, *flags in row if not flag), None)
