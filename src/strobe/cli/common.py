"""What the measuring commands share: their flags, how a subject is loaded, how a run is kept and shown."""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lerobot.configs.default import DatasetConfig
from lerobot.envs.configs import EnvConfig
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from rich.console import Console

from strobe.advice import Thresholds
from strobe.cli.live import Live
from strobe.cli.parse import ModelFlags, PolicyFlags, check_flags, help_text, parse, policy_type, split_subject
from strobe.cli.profilers import check_profilers, told
from strobe.errors import UserError, nearest
from strobe.kinds import advise, document, page
from strobe.measure.sampling import Budget
from strobe.report import console as console_report
from strobe.results import store
from strobe.results.answer import Result
from strobe.studies.measuring import Options
from strobe.subjects.subject import Subject
from strobe.timeline.timeline import Section
from strobe.timeline.trace import chrome_trace

if TYPE_CHECKING:
    from strobe.treatments.recipe import RecipeTreatment

SubjectFlags = PolicyFlags | ModelFlags
DTYPES = ("float32", "bfloat16", "float16")  # a model's

NO_LIMIT_S = 1e9
TRACED = 20  # iterations of each variant that go into the trace


@dataclass
class InputFlags:
    # A video file, decoded as LeRobot decodes; decoding is part of what is measured.
    video: Path | None = None


@dataclass
class RunConfig:
    # Frames of a LeRobotDataset as inputs: --dataset.root=FOLDER (or --dataset.repo_id=ID from the Hub or its cache).
    dataset: DatasetConfig | None = None
    # Observations of an environment as inputs: --env.type=pusht, metaworld, libero …
    env: EnvConfig | None = None
    # Clips of a video file as inputs of a model, decoded in every iteration: --input.video=FILE
    input: InputFlags = field(default_factory=InputFlags)
    # Names in the inputs → names that the policy knows, as in lerobot-train: '{"observation.image": "observation.x"}'.
    rename_map: dict[str, str] = field(default_factory=dict)
    # Real-Time Chunking, as in lerobot-rollout: --rtc.execution_horizon=20, --rtc.max_guidance_weight=10 …
    rtc: RTCConfig | None = None
    # RTC: control ticks from the observation to the first action of the chunk that is executed.
    inference_delay: int = 4
    # A file of treatments to put on the policy or model in inference, as written by hand or by `strobe optimize`.
    recipe: Path | None = None
    # How many times each thing is run; by default, until its interval is narrow enough (see --interval).
    iterations: int | None = None
    # Time to spend on sampling each phase, in seconds (default: 30; with --iterations no limit).
    seconds: float | None = None
    # Stop once the 95 % interval's half-width is below this fraction of the median.
    interval: float = 0.01
    # 1: the anatomy's parts; 2: their blocks and the processors' steps; 3: the inside of blocks. A model's blocks are
    # its parts, so there 2 is the inside of blocks.
    depth: int = 1
    # Samples in a training batch (default: 8; a policy's inference is always one observation), or a model's clips at
    # once (default: 1).
    batch_size: int | None = None
    # Height and width of synthetic cameras' images, before any preprocessing, e.g. 240x320 (default: 480x640).
    image_size: str | None = None
    # Number of synthetic cameras (default: 2).
    cameras: int | None = None
    # Device to run on (cpu, cuda, cuda:1, mps); the same as --policy.device.
    device: str | None = None
    # torch's threads on the CPU; by default as torch chooses.
    threads: int | None = None
    # Seed of weights, inputs and noise.
    seed: int = 0
    # Synchronise the device around every part: true host time per part, nothing overlaps, a slower whole.
    serialised: bool = False
    # Leave out the pass that counts FLOP and memory, and the measuring of this machine's ceiling.
    skip_counting: bool = False
    # One more iteration under torch.profiler: top operators and kernels, gaps, and all of them in the trace.
    operators: bool = False
    # Leave out what --operators asks for.
    skip_detailed: bool = False
    # More iterations under a profiler of Python: cprofile, pyinstrument or line (line_profiler).
    python_profile: str | None = None
    # What --python_profile=line times: module:function, module:Class.method or module:Class, separated by commas
    # (default: the methods of the policy's own classes).
    profile_functions: str | None = None
    # Keep every allocation of one more iteration with its stack, for pytorch.org/memory_viz (CUDA only).
    memory_snapshot: bool = False
    # Where run folders go.
    output_dir: Path = Path("runs")
    # Limits at which findings fire, e.g. --thresholds.backbone_dominates=0.7
    thresholds: Thresholds = field(default_factory=Thresholds)

    @property
    def plays(self) -> bool:
        """Whether --env is where episodes are played: then the inputs may come from --dataset all the same."""
        return False


def read_flags[C: RunConfig](
    config_class: type[C], argv: Sequence[str], extra: Sequence[str] = ()
) -> tuple[SubjectFlags, C]:
    """Parse a measuring command's flags. Raises UserError, before anything heavy is loaded."""
    flags, rest = split_subject(argv)
    names = [argument.split("=", 1)[0] for argument in rest]
    if "--dataset.root" in names and "--dataset.repo_id" not in names:
        root = next(argument.split("=", 1)[1] for argument in rest if argument.startswith("--dataset.root="))
        rest.append(f"--dataset.repo_id=local/{Path(root).name}")
    taken = ["--policy.path", "--policy.type", "--policy.size", "--model.path", "--model.type", "--model.size"]
    config = parse(config_class, rest, extra=[*extra, *taken])
    if isinstance(flags, ModelFlags):
        _check_model(flags, config)
    else:
        _check_policy(flags, config)
    if config.dataset is not None and config.env is not None and not config.plays:
        raise UserError("inputs come from --dataset or from --env, not both")
    if config.image_size is not None:
        size_of(config.image_size)
    if (config.image_size or config.cameras) and (config.dataset or config.env):
        raise UserError("--image_size and --cameras shape synthetic inputs; a dataset or an environment has its own")
    if config.batch_size is None and isinstance(flags, ModelFlags):
        config.batch_size = 1
    for name, value, least in (("iterations", config.iterations, 1), ("depth", config.depth, 1),
                               ("batch_size", config.batch_size, 1), ("threads", config.threads, 1),
                               ("cameras", config.cameras, 1)):  # fmt: skip
        if value is not None and value < least:
            raise UserError(f"--{name}={value}: must be at least {least}")
    if config.inference_delay < 0:
        raise UserError(f"--inference_delay={config.inference_delay}: must be 0 or more")
    for name, value in (("seconds", config.seconds), ("interval", config.interval)):
        if value is not None and not value > 0:
            raise UserError(f"--{name}={value}: must be above 0")
    check_profilers(config)
    return flags, config


def _check_policy(flags: PolicyFlags, config: RunConfig) -> None:
    """Raises UserError for what is no policy, a field that its config does not have, or a model's input."""
    if config.input.video is not None:
        raise UserError("--input.video is for models (--model.type, --model.path); a policy takes --dataset or --env")
    if flags.type is not None:
        from lerobot.configs.policies import PreTrainedConfig

        known = PreTrainedConfig.get_choice_class(policy_type(flags.type))
        check_flags(known, [o.split("=", 1)[0] for o in flags.overrides], prefix="policy.", extra=["--policy.path"])
    if config.device is not None and not any(o.startswith("--device=") for o in flags.overrides):
        flags.overrides.append(f"--device={config.device}")


def _check_model(flags: ModelFlags, config: RunConfig) -> None:
    """Raises UserError for flags that mean nothing to a backbone, or what its config refuses."""
    unfit = {"env": config.env, "rtc": config.rtc, "rename_map": config.rename_map, "cameras": config.cameras}
    for name, value in unfit.items():
        if value:
            raise UserError(f"--{name} is for policies; a model takes clips: --input.video, --dataset, or synthetic")
    if config.input.video is not None and config.dataset is not None:
        raise UserError("clips come from --input.video or from --dataset, not both")
    if config.input.video is not None and config.image_size is not None:
        raise UserError("--image_size shapes synthetic frames; a video has its own")
    if flags.dtype is not None and flags.dtype not in DTYPES:
        raise UserError(f"--model.dtype={flags.dtype}: {nearest(flags.dtype, DTYPES)}")
    if flags.type is not None:
        check_values(flags)


def check_phases(flags: SubjectFlags, phases: Sequence[str]) -> None:
    """Raises UserError where a model is to be trained: it has no loss of its own."""
    for phase in phases:
        if isinstance(flags, ModelFlags) and phase != "inference":
            raise UserError(f"a model without a policy has no loss: inference only, not '{phase}'")


def check_recipe(flags: SubjectFlags, path: Path | None, phases: Sequence[str]) -> None:
    """Raises UserError for a recipe that cannot be read, is for another type, or is to be trained with."""
    if path is None:
        return
    from strobe.treatments.recipe import load, require_kind

    for phase in phases:
        if phase != "inference":
            raise UserError(f"a recipe is about inference, not '{phase}': leave out {path.name}, or that phase")
    recipe = load(path)
    if flags.type is not None:
        require_kind(flags.type, recipe, path.name)


def rungs_of(subject: Subject, path: Path | None) -> tuple[RecipeTreatment, ...]:
    """The treatments of the recipe at ``path``, made anew; none for None. Raises UserError for another type's."""
    if path is None:
        return ()
    from strobe.treatments.recipe import load, require_kind, treatments_of

    recipe = load(path)
    require_kind(subject.info.kind, recipe, path.name)
    return treatments_of(recipe, path.name)


def recipe_notes(path: Path | None) -> list[str]:
    """What the recipe at ``path`` is, and what is of another version here than where it was made."""
    if path is None:
        return []
    from strobe.treatments.catalogue import told
    from strobe.treatments.recipe import differences, load

    recipe = load(path)
    return [f"recipe {path.name}: {'; '.join(map(told, recipe.treatments))}", *differences(recipe, path.name)]


def size_of(text: str) -> tuple[int, int]:
    """``'240x320'`` as (height, width). Raises UserError."""
    height, times, width = text.lower().partition("x")
    if not (times and height.isdecimal() and width.isdecimal() and int(height) > 0 and int(width) > 0):
        raise UserError(f"--image_size={text}: write HEIGHTxWIDTH, such as 240x320")
    return int(height), int(width)


def options_of(config: RunConfig) -> Options:
    """How to measure, from the flags."""
    seconds = config.seconds or (30.0 if config.iterations is None else NO_LIMIT_S)
    budget = Budget(iterations=config.iterations, seconds=seconds, precision=config.interval)
    return Options(
        budget=budget,
        depth=config.depth,
        batch_size=config.batch_size or 8,
        serialised=config.serialised,
        counted=not config.skip_counting,
    )


def load_subject(flags: SubjectFlags, config: RunConfig, live: Live) -> Subject:
    """Build or load the policy or the model, with inputs. Raises UserError."""
    import torch

    from strobe.subjects import loading

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    live.stage(f"loading {flags.path or flags.type}")
    image_size = size_of(config.image_size) if config.image_size else None
    if isinstance(flags, ModelFlags):
        return loading.load_model(
            path=flags.path,
            kind=flags.type,
            size=flags.size,
            img_size=flags.img_size,
            num_frames=flags.num_frames,
            dtype=flags.dtype,
            predictor=flags.predictor,
            overrides=flags.overrides,
            device=config.device,
            video=config.input.video,
            dataset=config.dataset,
            image_size=image_size,
            seed=config.seed,
        )
    return loading.load_subject(
        path=flags.path,
        policy_type=flags.type,
        size=flags.size,
        overrides=flags.overrides,
        dataset=config.dataset,
        env=config.env,
        image_size=image_size,
        cameras=config.cameras,
        seed=config.seed,
        rename=config.rename_map or None,
    )


@dataclass
class Answer:
    """What a study found, what it was asked, and what its trace is made from."""

    result: Result
    flags: SubjectFlags
    config: RunConfig
    sections: Sequence[Section] = ()
    profiled: list[dict[str, Any]] | None = None  # torch.profiler's events, for the trace
    files: dict[str, bytes] = field(default_factory=dict)  # what profilers left, for the run's folder
    made_of: Callable[[Result], dict[str, bytes]] | None = None  # further files, of the finished result


def run_study[C: RunConfig](
    name: str,
    doc: str | None,
    config_class: type[C],
    read: Callable[[Sequence[str]], tuple[SubjectFlags, C]],
    study: Callable[[SubjectFlags, C, Live], Answer],
    argv: Sequence[str],
) -> int:
    """What a measuring command does: help, flags, the study, the run's folder. Returns the exit code."""
    if show_help(doc or "", config_class, argv):
        return 0
    flags, config = read(argv)
    started = time.monotonic()
    with Live() as live:
        answer = study(flags, config, live)
    keep(answer, [name, *argv], started)
    return 0 if answer.result.status == "complete" else 130


def finish(answer: Answer, argv: Sequence[str], started: float) -> dict[str, Any]:
    """Complete the answer's result with its command, config and findings. Returns its trace."""
    result = answer.result
    result.duration_s = round(time.monotonic() - started, 3)
    result.command = ["strobe", *argv]
    family = "model" if isinstance(answer.flags, ModelFlags) else "policy"
    result.config = {family: dataclasses.asdict(answer.flags), **plain(answer.config)}
    result.findings = advise(result, answer.config.thresholds)
    if answer.made_of is not None:
        answer.files |= answer.made_of(result)
    metadata = {"command": shlex.join(result.command)}
    return chrome_trace(answer.sections, profiled=answer.profiled, metadata=metadata)


def keep(answer: Answer, argv: Sequence[str], started: float) -> Path:
    """Draw the findings, write the run folder, show it. Returns the folder."""
    result = answer.result
    return keep_run(result, answer.config.output_dir, finish(answer, argv, started), answer.files)


def keep_run(result: Result, root: Path, trace: dict[str, Any], files: dict[str, bytes]) -> Path:
    """Write a folder for a finished result below ``root``, show it. Returns the folder."""
    folder = store.new_run(root, result.study, result.subject.name)
    store.save(result, folder, trace, files)
    store.replace(folder / store.REPORT, page(result).encode())
    show(result)
    print(f"\nreport   {folder / store.REPORT}")
    print(f"trace    {folder / store.TRACE}  (open in ui.perfetto.dev)")
    for line in told(folder, files):
        print(line)
    return folder


def show(answer: Any) -> None:
    """Print a result, or whatever else the console's report renders."""
    console = Console()
    if not console.is_terminal:  # a file has no width, and tables read better at this one than at rich's 80
        console = Console(width=120)
    console_report.render(document(answer), console)


def plain(config: Any) -> dict[str, Any]:
    """A config as JSON data."""
    return json.loads(json.dumps(dataclasses.asdict(config), default=str))


def latest(sections: Sequence[Section], root: str) -> list[Section]:
    """The sections of the last ``TRACED`` top-level ``root`` sections, so that a trace stays small enough to open."""
    starts = [section.start_ns for section in sections if section.path == (root,)]
    if len(starts) <= TRACED:
        return list(sections)
    begin = sorted(starts)[-TRACED]
    return [section for section in sections if section.start_ns >= begin]


def show_help(doc: str, config_class: type, argv: Sequence[str]) -> bool:
    """Print a command's help if it is asked for."""
    if not {"-h", "--help"} & set(argv):
        return False
    print(help_text(doc, config_class))
    print("\nPolicy flags: --policy.path, --policy.type, --policy.size=full|tiny, --policy.<any field of its config>")
    print(
        "Model flags:  --model.path, --model.type, --model.size, --model.img_size, --model.num_frames, --model.dtype,"
    )
    print("              --model.predictor, --model.<any field of its config>; --input.video=FILE")
    return True


def check_values(flags: SubjectFlags) -> None:
    """Build the subject's config, which checks the values of its overrides. Raises UserError."""
    from strobe.subjects import models, policies

    if isinstance(flags, ModelFlags):
        models.config_of(
            path=flags.path,
            kind=flags.type,
            size=flags.size,
            img_size=flags.img_size,
            num_frames=flags.num_frames,
            overrides=flags.overrides,
        )
    elif flags.type is not None:
        policies.config_from_type(flags.type, flags.overrides)
    else:
        policies.config_from_path(flags.path or "", flags.overrides)


__all__ = [
    "Answer",
    "RTCConfig",
    "RunConfig",
    "SubjectFlags",
    "check_phases",
    "check_recipe",
    "check_values",
    "finish",
    "keep",
    "latest",
    "load_subject",
    "options_of",
    "read_flags",
    "recipe_notes",
    "run_study",
    "rungs_of",
    "show",
]
