"""The anatomy of ``lerobot-train``: its config, and LeRobot's own loop with sections around what a step consists of.

What the loop calls is probed. What stands in its body between two calls (turning images into floats, logging) is the
time from the one call to the next. Nothing that is computed changes.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import psutil
import torch
from accelerate import Accelerator
from lerobot.configs import parser
from lerobot.configs.train import TrainPipelineConfig
from lerobot.scripts import lerobot_train as loop
from torch import nn
from torch.utils.data import dataloader as torch_loader
from torch.utils.data._utils import worker as torch_worker
from typing_extensions import Self

from strobe.core.cli.runner import try_output
from strobe.core.devices.accelerators import DeviceMemory, find_device_memory
from strobe.core.errors import UserError
from strobe.core.families.registry import policy_family
from strobe.core.measure.compilations import CompileLog, CompileWatch
from strobe.core.subjects.subject import ITERATION
from strobe.core.timeline import Probe, Timeline, section
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Attached, Hook, resolve_hooks
from strobe.core.timeline.timeline import Mark
from strobe.lerobot.flags.lerobot_flags import join_flag_values, parse_config, patched_arguments
from strobe.lerobot.policies import lerobot_policies
from strobe.lerobot.policies.dataset_frames import locate_dataset
from strobe.loops.instrument import Instrument
from strobe.train import figures, loader_probes
from strobe.train.backward import Backward
from strobe.train.inputs import Inputs, resumed_run
from strobe.train.utilisation import CountedStep

# What would write or push, and what a measurement puts in its place.
_WRITES = {
    "output_dir": None,
    "save_checkpoint_to_hub": None,
    "policy.push_to_hub": "false",
    "reward_model.push_to_hub": "false",
}


def train_config(argv: Sequence[str], *, measuring: bool = False) -> TrainPipelineConfig:
    """The config that ``lerobot-train`` makes of ``argv``, as valid as it has it before it trains.

    Args:
        argv: lerobot-train's arguments, without its name: ``--dataset.repo_id=… --policy.type=…``, ``--policy.path``,
            ``--config_path``, plug-ins' ``--….discover_packages_path``.
        measuring: nothing will be trained, so flags that write or push are set aside: ``output_dir`` may exist, and
            ``policy.repo_id`` is not asked for.

    Raises:
        UserError: an unknown flag (with the nearest known one), a value of the wrong kind or that LeRobot refuses, no
            policy, no dataset or one that is not there, a device that this machine has not.
    """
    lerobot_policies.known_types()  # policies and plug-ins register themselves when they are imported
    arguments = join_flag_values(argv)
    _require_subject(arguments)
    if measuring:
        arguments = _disable_writing(arguments)
    with patched_arguments(arguments):
        try:
            config = parse_config(arguments, TrainPipelineConfig, TrainPipelineConfig.validate)
        except UserError as error:
            if "'repo_id' argument missing" not in str(error):
                raise
            raise UserError(
                "lerobot-train pushes the policy to the Hub by default: add --policy.push_to_hub=false to train "
                "without that, or --policy.repo_id=USER/NAME"
            ) from None
    for name, value, least in (("batch_size", config.batch_size, 1), ("num_workers", config.num_workers, 0)):
        if value < least:
            raise UserError(f"--{name}={value}: must be at least {least}")
    if not measuring and config.output_dir is not None:
        try_output(config.output_dir, "checkpoints", "--output_dir")
    if not config.dataset.streaming:
        locate_dataset(config.dataset.root, config.dataset.repo_id)
    return config


def _require_subject(arguments: Sequence[str]) -> None:
    """Raises UserError, before LeRobot's longer words, for what is missing and for a policy or device not there."""
    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    if "help" in given:
        raise UserError("`lerobot-train --help` lists its flags; Strobe's own flags come before the --")
    if "config_path" in given:
        return
    overrides = parser.get_cli_overrides("policy", arguments) or []
    brings_plugin = parser.parse_plugin_args(parser.PLUGIN_DISCOVERY_SUFFIX, arguments)
    if "policy.path" in given:
        lerobot_policies.config_from_path(given["policy.path"], overrides)
    elif "policy.type" in given:
        if not brings_plugin:  # it may bring the type, and is loaded by LeRobot's parser
            lerobot_policies.config_from_type(given["policy.type"], overrides)
    elif not any(name.startswith("reward_model.") for name in given):
        raise UserError(
            "name the policy: --policy.type=act (or another) for a new one, or --policy.path=FOLDER_OR_HUB_ID"
        )
    if "dataset.repo_id" not in given:
        example = "local/mine, whatever its name" if "dataset.root" in given else "OWNER/NAME"
        raise UserError(f"name the dataset: lerobot-train needs --dataset.repo_id={example}")


def _disable_writing(arguments: Sequence[str]) -> list[str]:
    others = [argument for argument in arguments if argument.removeprefix("--").split("=", 1)[0] not in _WRITES]
    subject = "reward_model" if any(argument.startswith("--reward_model.") for argument in others) else "policy"
    return [*others, *(f"--{name}={value}" for name, value in _WRITES.items() if value and name.startswith(subject))]


_PROBES = (
    Probe.function("torch.utils.data.dataloader:DataLoader.__iter__", figures.EPOCH),
    Probe.function("torch.utils.data.dataloader:_BaseDataLoaderIter.__next__", figures.WAIT),
    Probe.function("accelerate.data_loader:send_to_device", figures.TRANSFER),
    Probe.function("lerobot.processor.pipeline:DataProcessorPipeline.__call__", figures.PREPROCESSING),
    Probe.function("torch.nn.utils:clip_grad_norm_", figures.CLIPPING),
    Probe.function("accelerate.optimizer:AcceleratedOptimizer.step", figures.OPTIMIZER),
    Probe.function("accelerate.optimizer:AcceleratedOptimizer.zero_grad", figures.OPTIMIZER),
    Probe.function("accelerate.scheduler:AcceleratedScheduler.step", figures.SCHEDULER),
    # Before each forward pass the ranks agree on the policy's buffers; in a training alone it never runs.
    Probe.function("torch.nn.parallel.distributed:DistributedDataParallel._pre_forward", figures.OTHERS, optional=True),
)


@dataclass
class TrainingWatch(Instrument):
    """Watches one run of ``lerobot-train`` in this process, inside ``with TrainingWatch(…) as watch:``.

    Args:
        depth: levels of the policy's parts, forward and backward.
        most_steps: after so many steps the probes come off and the run goes on by itself.
        serialised: see `Timeline`.
        progress: called with the number of steps done, and of all.
        used: returns the process's use of a resource so far; the difference over each step is kept in ``uses``.
        before_loading: given the DataLoader before its workers start; what it raises ends the run.

    Attributes:
        peak_device: the most memory in use on the device in the steps recorded, in bytes; None if it is unknown.
    """

    depth: int = 1
    most_steps: int = 1000
    serialised: bool = False
    progress: Callable[[int, int], None] | None = None
    used: Callable[[], object] = time.process_time_ns
    before_loading: Callable[[TrainPipelineConfig], None] | None = None
    config: Any = field(default=None, init=False)
    policy: nn.Module | None = field(default=None, init=False)
    dataset: Any = field(default=None, init=False)
    device: torch.device = field(default=torch.device("cpu"), init=False)
    timeline: Timeline | None = field(default=None, init=False)
    losses: list[float] = field(default_factory=list, init=False)
    uses: list[Any] = field(default_factory=list, init=False)
    communication_ms: list[float] = field(default_factory=list, init=False)
    broken: list[dict[str, object]] = field(default_factory=list, init=False)
    peak_device: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__init__()
        self._parts: list[Hook] = []
        self._step: Mark | None = None
        self._training_loader: object = None
        self._cores: object = None  # their times when recording began
        self.machine_cpu: float | None = None  # busy share of all cores over the steps recorded
        self._used: Any = None
        self._between: tuple[str, Mark] | None = None
        self._memory: DeviceMemory | None = None
        self._compiling, self.compiles = CompileWatch(), CompileLog()
        self.inputs = Inputs()
        self.counted = CountedStep()

    def __enter__(self) -> Self:
        self._wrap(loop, "make_train_eval_datasets", self._datasets)
        self._wrap(loop, "make_pre_post_processors", self._processors)
        self._wrap(loop, "make_optimizer_and_scheduler", self._make_optimizer)
        self._wrap(loop, "cycle", self._cycle)
        self._wrap(loop, "tqdm", self._bar)
        return self

    def __exit__(self, *exception: object) -> None:
        self._step = self._between = None  # a step that did not end is not one
        super().__exit__(*exception)
        self._training_loader = None  # it holds the workers, which report when they end

    @property
    def parts(self) -> set[str]:
        """Names of the policy's parts that are timed."""
        return {hook.name for hook in self._parts}

    @property
    def steps(self) -> int:
        """Steps recorded."""
        return len(self.uses)

    # What the loop calls before its first step.

    def _datasets(self, inner: Call, config: TrainPipelineConfig) -> object:
        self.config = config
        self.counted.steps = min(config.steps, self.most_steps)
        datasets = inner(config)
        self.dataset = datasets[0]
        self.inputs.resumed = resumed_run(config) if config.resume else None
        return datasets

    def _processors(self, inner: Call, *args: object, **kwargs: object) -> object:
        made = inner(*args, **kwargs)
        self.inputs.look_at_statistics(made[0], self.dataset)
        return made

    def _make_optimizer(self, inner: Call, config: object, policy: nn.Module) -> object:
        made = inner(config, policy)
        self.policy = policy
        self.device = next(policy.parameters()).device
        self.inputs.look_at_adapter(policy, self.config)
        self._attach(policy)
        return made

    def _attach(self, policy: nn.Module) -> None:
        timeline = Timeline(self.device, serialised=self.serialised)
        unwrap: Any = getattr(policy, "get_base_model", lambda: policy)  # PEFT's wrapper
        base = unwrap()
        family = policy_family(base, self.config.trainable_config.type)
        self._parts = family.hooks(base, training=True, depth=self.depth)
        self._backward_parts = Backward(timeline)
        self.attach_probes()
        self._cores = psutil.cpu_times()
        self._memory = find_device_memory(self.device)
        if self._memory is not None:
            self._memory.reset_peak()
        self.timeline = timeline.start()

    def attach_probes(self) -> None:
        """Attach every probe to the loop and the policy."""
        policy, stack = self.policy, self._probes
        own = [Hook(policy, "forward", figures.FORWARD)]
        if hasattr(policy, "update"):
            own.append(Hook(policy, "update", "policy update"))
        stack.enter_context(Attached([*resolve_hooks(_PROBES, None), *self._parts, *own]))
        stack.enter_context(self._backward_parts.attach(self._parts))
        stack.enter_context(mock.patch.object(torch_worker, "_worker_loop", loader_probes.worker_main))
        if self.config.num_workers == 0:
            stack.callback(loader_probes.attach_loader(lambda broken: self.broken.append(broken)))
        self._wrap(Accelerator, "backward", self._backward, stack)
        self._wrap(torch_loader._MultiProcessingDataLoaderIter, "__init__", self._workers, stack)
        self._wrap(loop, "update_policy", self._update, stack)
        self._wrap(loop, "save_checkpoint", functools.partial(self._interruption, figures.CHECKPOINT), stack)
        self._wrap(loop, "eval_policy_all", functools.partial(self._interruption, figures.ROLLOUTS), stack)
        pipeline = [probe for probe in _PROBES if probe.name == figures.PREPROCESSING]
        stack.enter_context(
            Attached(resolve_hooks(pipeline, None), lambda inner, _, __: self._entering(inner, {figures.FLOATS}))
        )
        stack.enter_context(Attached([Hook(policy, "train", "train")], lambda inner, _, __: self._turning(inner)))

    # What it calls in every step.

    def _cycle(self, inner: Call, dataloader: Any) -> Iterator[object]:
        self._training_loader = dataloader
        if self.before_loading is not None:
            self.before_loading(dataloader)
        batches = inner(dataloader)
        while True:
            self._next_step()
            with section(figures.DATA):
                batch = next(batches)
            if self._step is not None:
                self.inputs.see(batch)
            self._open(figures.FLOATS)
            yield batch

    def _workers(self, inner: Call, iterator: object, dataloader: object) -> None:
        # Workers are started in here, and take over the environment.
        ours = getattr(self._training_loader, "base_dataloader", self._training_loader)
        os.environ[loader_probes.LOADER] = "training" if dataloader is ours else "evaluation"
        inner(iterator, dataloader)

    def _update(self, inner: Call, tracker: Any, policy: object, *args: object, **kwargs: object) -> object:
        self._close({figures.FLOATS})
        self._look_at_memory()
        step = self.steps if self._step is not None else -1
        output = self.counted.run(step, self.compiles, lambda: inner(tracker, policy, *args, **kwargs))
        if self._step is not None:
            self.losses.append(tracker.metrics["loss"].val)
            self.inputs.rate = tracker.metrics["lr"].val
            self._record_communication(policy)
        self._open(figures.LOGGING)
        return output

    def _backward(self, inner: Call, accelerator: Any, *args: object, **kwargs: object) -> None:
        self.inputs.accumulation = accelerator.gradient_accumulation_steps
        self.inputs.precision = accelerator.mixed_precision
        start = self._mark()
        with section(figures.BACKWARD):
            inner(accelerator, *args, **kwargs)
            if start is not None and (end := self._mark()) is not None:
                self._backward_parts.sections(start, end)
        if self.policy is not None and self.counted.counter is not None and self.inputs.gradients is None:
            self.inputs.look_at_gradients(self.policy)

    def _interruption(self, name: str, inner: Call, *args: object, **kwargs: object) -> object:
        self._close({figures.LOGGING})
        with section(name):
            result = inner(*args, **kwargs)
        self._open(figures.LOGGING)
        return result

    def _record_communication(self, policy: Any) -> None:
        # DistributedDataParallel times its own all-reduce.
        if isinstance(policy, nn.parallel.DistributedDataParallel):
            if not self.communication_ms:
                policy._set_ddp_runtime_logging_sample_rate(1)
            times: dict[str, Any] = dict(policy._get_ddp_logging_data())
            hidden = times.get("backward_compute_comm_overlap_time", 0)  # behind the rest of the backward pass
            self.communication_ms.append(max(0.0, float(times.get("backward_comm_time", 0)) - float(hidden)) / 1e6)

    def _look_at_memory(self) -> None:
        # LeRobot's update_policy resets the peak in every step, to log its own.
        peak = self._memory.peak() if self._memory is not None and self._step is not None else None
        if peak is not None:
            self.peak_device = max(self.peak_device or 0, peak)

    # The step's ends, and what lies between two calls.

    def _next_step(self) -> None:
        self._end_step()
        if self.timeline is None:
            return
        if self.steps >= self.most_steps:
            self.let_go()
            return
        self._step, self._used = self._mark(), self.used()

    def _end_step(self) -> None:
        if self._step is None or self.timeline is None:
            return
        self._close(None)
        self.timeline.record_span(ITERATION, self._step, self.timeline.mark())
        self._look_at_memory()
        self.uses.append(self.used() - self._used)
        self.machine_cpu = _busy(self._cores, psutil.cpu_times())
        self._compiling.look(self.compiles, self.steps - 1)
        self._step = None
        if self.progress is not None:
            self.progress(self.steps, self.config.steps)

    def _bar(self, inner: Call, *args: Any, **kwargs: Any) -> object:
        bar = inner(*args, **kwargs)
        close = bar.close

        def closing() -> None:  # the first thing after the last step
            self._end_step()
            close()

        bar.close = closing
        return bar

    def let_go(self) -> None:
        """Take every probe off, and record no more."""
        if self.timeline is not None:
            self.timeline.pause()
        super().let_go()

    def _mark(self) -> Mark | None:
        return self.timeline.mark() if self.timeline is not None else None

    def _open(self, name: str) -> None:
        if self._step is not None and (mark := self._mark()) is not None:
            self._between = (name, mark)

    def _close(self, names: set[str] | None) -> None:
        if self._between is None or self.timeline is None or (names is not None and self._between[0] not in names):
            return
        name, start = self._between
        self.timeline.record_span(name, start, self.timeline.mark())
        self._between = None

    def _entering(self, inner: Call, leave: set[str]) -> Call:
        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._close(leave)
            return inner(*args, **kwargs)

        return call

    def _turning(self, inner: Call) -> Call:
        @functools.wraps(inner)
        def call(mode: bool = True) -> Any:
            result = inner(mode)
            leave, enter = (figures.EVALUATION, figures.LOGGING) if mode else (figures.LOGGING, figures.EVALUATION)
            if self._between is not None and self._between[0] == leave:
                self._close({leave})
                self._open(enter)
            return result

        return call


def _busy(before: object, after: Any) -> float | None:
    spent = {
        name: getattr(after, name) - getattr(before, name) for name in after._fields if not name.startswith("guest")
    }
    whole = sum(spent.values())
    return 1 - (spent["idle"] + spent.get("iowait", 0.0)) / whole if whole > 0 else None
