"""The flags that commands share, as mix-ins of their configs, and the checks of a measuring command's flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from strobe.core.cli.bounds import exclusive_minimum_bound, minimum_bound
from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.live import importing
from strobe.core.cli.parse import parse
from strobe.core.devices.untried import KEY
from strobe.core.errors import UserError, nearest
from strobe.lerobot.flags.lazy_flags import lerobot_placeholder
from strobe.lerobot.policies.options import FactoryOptions, PolicyOptions, check_dataset, find_device
from strobe.policy_cli.subject_flags import (
    MODEL_NAMES,
    POLICY_NAMES,
    ModelFlags,
    SubjectFlags,
    check_device_name,
    check_model,
    check_overrides,
    require_subject,
    split_subject,
    subject_fields,
)

if TYPE_CHECKING:
    from lerobot.configs.default import DatasetConfig
    from lerobot.envs.configs import EnvConfig
    from lerobot.policies.rtc.configuration_rtc import RTCConfig
else:
    DatasetConfig = lerobot_placeholder("lerobot.configs.default:DatasetConfig")
    EnvConfig = lerobot_placeholder("lerobot.envs.configs:EnvConfig")
    RTCConfig = lerobot_placeholder("lerobot.policies.rtc.configuration_rtc:RTCConfig")

C = TypeVar("C", bound="InputFlags")


NO_TRAINING_RECIPE = {"--recipe": "--recipe is for inference: use `strobe breakdown` or `strobe compare`"}


@dataclass
class VideoFlags:
    """A video as the inputs of a model."""

    # A video file, decoded as LeRobot decodes. The decoding is part of the measurement.
    video: Path | None = None


@dataclass
class InputFlags(OutputFlags):
    """The inputs of the policy or model, and its device; and where the answer goes."""

    # Frames of a LeRobotDataset as inputs: --dataset.root=FOLDER (or --dataset.repo_id=ID from the Hub or its cache).
    dataset: DatasetConfig | None = None
    # Observations of an environment as inputs: --env.type=pusht, metaworld, libero …
    env: EnvConfig | None = None
    # Clips of a video file as inputs of a model, decoded in every iteration: --input.video=FILE
    input: VideoFlags = field(default_factory=VideoFlags)
    # Names in the inputs → names that the policy knows, as in lerobot-train: '{"observation.image": "observation.x"}'.
    rename_map: dict[str, str] = field(default_factory=dict)
    # Height and width of synthetic cameras' images, before any preprocessing, e.g. 240x320 (default: 480x640).
    image_size: str | None = None
    # Number of synthetic cameras (default: 2).
    cameras: int | None = field(default=None, metadata=minimum_bound(1))
    # Number of values in the synthetic robot's state (default: 6, or the number that the policy's kind takes).
    state_dim: int | None = field(default=None, metadata=minimum_bound(1))
    # Number of values in an action of the synthetic robot (default: 6, or the number that the policy's kind takes).
    action_dim: int | None = field(default=None, metadata=minimum_bound(1))
    # Device to run on (cpu, cuda, cuda:1, mps); the same as --policy.device.
    device: str | None = field(default=None, metadata={KEY: ("the clock and memory of a device",)})
    # torch's threads on the CPU; by default as torch chooses.
    threads: int | None = field(default=None, metadata=minimum_bound(1))
    # Seed of weights, inputs and noise.
    seed: int = 0
    subject: SubjectFlags = field(init=False, default_factory=PolicyOptions)  # the policy or model: see split_subject

    @property
    def plays(self) -> bool:
        """Whether --env is where episodes are played; then --dataset may give the inputs all the same."""
        return False


@dataclass
class GuidanceFlags:
    """Real-Time Chunking."""

    # Real-Time Chunking, as in lerobot-rollout: --rtc.execution_horizon=20, --rtc.max_guidance_weight=10 …
    rtc: RTCConfig | None = None
    # For RTC: control ticks from the observation to the first action of the chunk that is executed.
    inference_delay: int = field(default=4, metadata=minimum_bound(0))


@dataclass
class RecipeFlags:
    """A recipe to run with."""

    # A file of treatments for the inference of the policy or model, from `strobe optimize` or written by hand.
    recipe: Path | None = None


@dataclass
class SamplingFlags:
    """How often a subject is run, and how closely it is looked at."""

    # How often Strobe runs each thing. By default until its interval is narrow enough (see --interval).
    iterations: int | None = field(default=None, metadata=minimum_bound(1))
    # Time to spend on sampling each phase, in seconds (default: 30; with --iterations no limit). Comparisons of the
    # actions, counting and profilers come after it. breakdown and compare end their work within four times this and a
    # minute for each phase, plus the call that is running, also on a busy machine. The answer names what did not fit.
    # Three rounds (without the flag six) and 28 calls take their time even so. Loading and compiling come on top.
    seconds: float | None = field(default=None, metadata=exclusive_minimum_bound(0))
    # Stop when the half-width of the 95 % interval is below this fraction of the median.
    interval: float = field(default=0.01, metadata=exclusive_minimum_bound(0))
    # 1: the anatomy's parts; 2: their blocks and the processors' steps; 3: the inside of blocks. A model's blocks are
    # its parts, so for a model 2 is the inside of blocks.
    depth: int = field(default=1, metadata=minimum_bound(1))
    # Samples in a training batch (default: 8; a policy's inference is always one observation), or a model's clips at
    # once (default: 1).
    batch_size: int | None = field(default=None, metadata=minimum_bound(1))
    # The robot's control rate in Hz. Strobe then spaces the calls as on a robot of that rate, not back to back. It
    # calls the policy once every policy.n_action_steps ticks (with --rtc.* every rtc.execution_horizon ticks, a model
    # in every tick). At --pace=30 and 10 steps a call begins every 333 ms, and the machine idles in between.
    pace: float | None = field(default=None, metadata=exclusive_minimum_bound(0, finite=True))
    # Synchronise the device around every part. Each part's host time is then true, but nothing overlaps, and the whole
    # is slower.
    serialised: bool = False
    # Do not count FLOP and memory, and do not measure this machine's ceiling.
    skip_counting: bool = False

    @property
    def samples(self) -> int:
        """Samples in a training batch."""
        return self.batch_size or 8


@dataclass
class ProfilerFlags:
    """Closer looks: ranges for another tool while calls are timed, profilers once everything is measured."""

    # An NVTX range with the part's name around each call of a part, for Nsight Systems (CUDA only).
    nvtx: bool = field(default=False, metadata={KEY: ("NVTX ranges",)})
    # One more iteration under torch.profiler. It shows the top operators and kernels and the gaps, and adds all of them
    # to the trace.
    operators: bool = False
    # Record each allocation of that iteration too: its trace shows memory over time. It switches --operators on.
    memory: bool = False
    # Switch --operators off.
    skip_detailed: bool = False
    # More iterations under a profiler of Python: cprofile, pyinstrument or line (line_profiler).
    python_profile: str | None = None
    # What --python_profile=line times: module:function, module:Class.method or module:Class, separated by commas
    # (default: the methods of the policy's own classes).
    profile_functions: str | None = None
    # Keep every allocation of one more iteration with its stack, for pytorch.org/memory_viz (CUDA only).
    memory_snapshot: bool = field(default=False, metadata={KEY: ("memory snapshots",)})


@dataclass
class RunConfig(ProfilerFlags, SamplingFlags, RecipeFlags, GuidanceFlags, InputFlags):
    """All flags of a command that measures, in the order in which its help has them."""


@dataclass
class RayFlags:
    """The Ray cluster to run on."""

    # The cluster: 'auto' or HOST:PORT. Without it: a cluster that is found here, or a new one of this machine only.
    address: str | None = None


def check_launcher(launcher: str, ray: RayFlags) -> None:
    """Raises UserError for the address of a cluster that nothing runs on."""
    if ray.address is not None and launcher != "ray":
        raise UserError("--ray.address needs --launcher=ray")


def check_pace(config: SamplingFlags, phases: Sequence[str]) -> None:
    """Raises UserError for a pace where nothing is called as on a robot."""
    if config.pace is not None and "inference" not in phases:
        raise UserError(f"--pace is for inference, as on a robot, not for '{phases[0]}': remove it")


def read_flags(
    config_class: type[C],
    argv: Sequence[str],
    extra: Sequence[str] = (),
    refused: Mapping[str, str] | None = None,
) -> C:
    """Parse a measuring command's flags, before anything heavy is loaded.

    Args:
        extra, refused: as `parse` takes them.

    Raises:
        UserError: wrong flags, or flags that exclude each other.
    """
    flags, rest = split_subject(argv)
    names = [argument.split("=", 1)[0] for argument in rest]
    if "--dataset.root" in names and "--dataset.repo_id" not in names:
        root = next(argument.split("=", 1)[1] for argument in rest if argument.startswith("--dataset.root="))
        rest.append(f"--dataset.repo_id=local/{Path(root).name}")
    offered = [*extra, *POLICY_NAMES, *MODEL_NAMES]
    config = parse(config_class, rest, extra=offered, exact=subject_fields(flags), refused=refused)
    config.subject = flags
    require_subject(flags)
    if isinstance(flags, FactoryOptions):
        _check_factory_inputs(config)
    elif isinstance(flags, ModelFlags):
        _check_model_inputs(config)
        check_model(flags)
    elif config.input.video is not None:
        raise UserError("--input.video is for models (--model.type, --model.path); for a policy use --dataset or --env")
    else:
        check_overrides(flags, config.device)
    if config.dataset is not None and config.env is not None and not config.plays:
        raise UserError("inputs come from --dataset or from --env, not both")
    if config.dataset is not None and config.dataset.root is not None:
        check_dataset(config.dataset.root)
    if config.image_size is not None:
        parse_image_size(config.image_size)
    made_up = [name for name in ("image_size", "cameras", "state_dim", "action_dim") if getattr(config, name)]
    if made_up and (config.dataset or config.env):
        raise UserError(
            f"--{made_up[0]} is for synthetic inputs: remove it, because the dataset or environment has its own"
        )
    if isinstance(config, SamplingFlags) and config.batch_size is None and not isinstance(flags, PolicyOptions):
        config.batch_size = 1
    if isinstance(config, ProfilerFlags):
        _check_profilers(config)
        if (config.nvtx or config.memory_snapshot) and (device := find_device(flags, config.device)) is not None:
            from strobe.traces.operators import check_tools

            check_tools(device, nvtx=config.nvtx, memory_snapshot=config.memory_snapshot)
    return config


def _check_model_inputs(config: InputFlags) -> None:
    """Raises UserError for inputs that mean nothing to a backbone."""
    rtc = config.rtc if isinstance(config, GuidanceFlags) else None
    unfit = {"env": config.env, "rtc": rtc, "rename_map": config.rename_map, "cameras": config.cameras}
    unfit |= {"state_dim": config.state_dim, "action_dim": config.action_dim}
    for name, value in unfit.items():
        if value:
            raise UserError(f"--{name} is for policies: for a model use --input.video, --dataset or synthetic clips")
    if config.input.video is not None and config.dataset is not None:
        raise UserError("clips come from --input.video or from --dataset, not both")
    if config.input.video is not None and not config.input.video.is_file():
        raise UserError(f"no video file {config.input.video}")
    if config.input.video is not None and config.image_size is not None:
        raise UserError("--image_size shapes synthetic frames; a video has its own")


def _check_factory_inputs(config: InputFlags) -> None:
    """Raises UserError for flags that need a policy of LeRobot."""
    unfit = {
        "dataset": config.dataset,
        "env": config.env,
        "input.video": config.input.video,
        "rename_map": config.rename_map,
        "image_size": config.image_size,
        "cameras": config.cameras,
        "state_dim": config.state_dim,
        "action_dim": config.action_dim,
        "rtc": config.rtc if isinstance(config, GuidanceFlags) else None,
        "batch_size": config.batch_size if isinstance(config, SamplingFlags) else None,
        "pace": config.pace if isinstance(config, SamplingFlags) else None,
    }
    for name, value in unfit.items():
        if value:
            raise UserError(
                f"--{name} works with LeRobot policies only: a --policy.factory function brings its own observations"
            )
    if config.device is not None:
        check_device_name(config.device)


def _check_profilers(config: ProfilerFlags) -> None:
    """Raises UserError for a profiler that is unknown or not installed, or functions that nothing times."""
    if config.python_profile is None and config.profile_functions is None:
        return
    from strobe.traces.python_profile import TOOLS, require_tool

    tool = config.python_profile
    if tool is not None:
        if tool not in TOOLS:
            raise UserError(f"--python_profile={tool}: {nearest(tool, TOOLS)}")
        require_tool(tool)
    if config.profile_functions is not None and tool != "line":
        raise UserError("--profile_functions needs --python_profile=line")


def check_phases(subject: SubjectFlags, phases: Sequence[str]) -> None:
    """Raises UserError if what has no loss that is known is to be trained."""
    for phase in phases:
        if phase == "inference" or isinstance(subject, PolicyOptions):
            continue
        if isinstance(subject, FactoryOptions):
            raise UserError(f"'{phase}' needs a policy of LeRobot: one of --policy.factory can run inference")
        raise UserError(f"a model without a policy has no loss: it can run inference, not '{phase}'")


def check_recipe(subject: SubjectFlags, path: Path | None, phases: Sequence[str], device: str | None) -> None:
    """Raises UserError for a recipe that cannot be read, is for another type, or is to be trained with."""
    if path is None:
        return
    for phase in phases:
        if phase != "inference":
            raise UserError(f"a recipe is for inference, not for '{phase}': remove {path.name}, or that phase")
    check_recipe_file(subject, path, device)


def check_recipe_file(subject: SubjectFlags, path: Path, device: str | None) -> None:
    """Raises UserError for a recipe that cannot be read, is for another type, or for another device.

    What the file says is checked first; only its treatments' own checks import torch.
    """
    from strobe.core.results.recipe import require_kind
    from strobe.core.runs import recipe_file
    from strobe.core.treatments.known import check_words

    read = recipe_file.load(path)
    if subject.type is not None:
        require_kind(subject.type, read, path.name)
    for number, spec in enumerate(read.treatments, 1):
        try:
            check_words(spec)
        except UserError as error:
            raise UserError(f"{path}: treatments.{number}: {error}") from None
    with importing():
        from strobe.core.treatments import recipe

        recipe.check_device(recipe.load(path), find_device(subject, device))


def parse_image_size(text: str) -> tuple[int, int]:
    """Height and width in pixels from ``'240x320'``. Raises UserError."""
    height, times, width = text.lower().partition("x")
    if not (times and height.isdecimal() and width.isdecimal() and int(height) > 0 and int(width) > 0):
        raise UserError(f"--image_size={text}: must be HEIGHTxWIDTH, such as 240x320")
    return int(height), int(width)
