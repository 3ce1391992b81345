"""The same policy in several Python environments: what is carried there, and what each is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.measure.agreement import agree
from strobe.core.measure.guard import Guard
from strobe.core.measure.memory import available_bytes
from strobe.core.results.agreement import ActionScale, Agreement, Check, Effect, Yardstick
from strobe.core.results.comparison import Comparison, GradientAgreement
from strobe.core.studies.shared.action_check import ActionCheck
from strobe.core.studies.shared.progress import Reporter, Steps
from strobe.environments import first_difference
from strobe.environments.parcel import CHECKS, Parcel, pack
from strobe.environments.results import Environment, PassDifference
from strobe.environments.side import EnvironmentWorker, SideFailedError, SideOptions
from strobe.lerobot.policies.action_scale import measure_action_scale
from strobe.lerobot.policies.inputs import Inputs
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.sampling import denoising_steps

LOAD_S, CALL_S = 1800.0, 600.0  # limits of one order
OTHER_ORDER = "the first side's own sums: shuffled, on one thread, by torch's kernels, with attention by its formula"
GUARDED: Effect = "rounding"  # what another environment may do to the actions
LOOK_CALLS = 4  # approximate calls of the sides per observation of a look
PARTS = ("preprocessing", "policy", "postprocessing")
# After a call torch's threads look for more work for a moment before they sleep; the other side begins after that.
PAUSE_S = 0.003


@dataclass(frozen=True)
class SidesOptions:
    """Which environments, and how the policy runs in each.

    Args:
        sides: the first one is compared with the others.
        threads: of torch in each; 0 for its own choice.
        overridden: whether flags change the config of a checkpoint.
        batch_size: of the training step.
    """

    sides: Sequence[SideOptions]
    seed: int = 0
    threads: int = 0
    overridden: bool = False
    batch_size: int = 2


@dataclass(frozen=True)
class Carried:
    """Facts of the policy that stay here, once its weights are gone from this process.

    Args:
        scale: chunks of the first side, (1, chunk, action dim) each → the spread of the actions.
    """

    parcel: Parcel
    scale: Callable[[Sequence[Tensor]], ActionScale | None]
    executed: int | None
    steps: int | None
    device: str


def carry(subject: PolicySubject, folder: Path, options: SidesOptions, checks: int = CHECKS) -> Carried:
    """Pack what is carried. The caller lets ``subject`` go afterwards. Raises UserError."""
    config: Any = subject.policy.config
    parcel = pack(
        subject,
        folder,
        overridden=options.overridden,
        tiny=subject.info.size == "tiny",
        batch_size=options.batch_size,
        checks=checks,
    )
    scale = partial(_scale, subject.postprocessor, subject.inputs)
    return Carried(parcel, scale, subject.executed_actions, denoising_steps(config), str(subject.device))


def _scale(postprocessor: object, inputs: Inputs, chunks: Sequence[Tensor]) -> ActionScale | None:
    stats = inputs.stats if inputs.kind == "data" else {}
    return measure_action_scale(postprocessor, stats, inputs.action_names, inputs.description, chunks)


@dataclass
class Sides:
    """The processes, one for each environment, with the policy loaded in each. The first is compared with the others.

    Raises:
        UserError: an environment cannot read the policy, or a process ends.
    """

    carried: Carried
    options: SidesOptions
    reporter: Reporter
    weight_bytes: int
    environments: list[Environment] = field(default_factory=list)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)  # side → setting → value

    def __post_init__(self) -> None:
        self._stack = ExitStack()
        self.sides: dict[str, EnvironmentWorker] = {}
        count = len(self.options.sides)
        needed = count * self.weight_bytes
        if self.carried.device == "cpu" and needed > available_bytes():
            raise UserError(
                f"{count} environments hold the weights at once, {needed / 2**30:.0f} GiB, and "
                f"{available_bytes() / 2**30:.0f} GiB are free: take a narrower dtype, or --policy.size=tiny"
            )

    def __enter__(self) -> Sides:
        try:
            names = " and ".join(f"'{options.name}'" for options in self.options.sides)
            self.reporter.stage(f"loading the policy in {names}")
            for number, options in enumerate(self.options.sides):  # all at once: each imports LeRobot first
                self._begin(options, self.carried.parcel.folder / f"side_{number}.log")
            for side in self.sides.values():
                self._describe_side(side)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _begin(self, options: SideOptions, log: Path) -> None:
        side = self.sides[options.name] = self._stack.enter_context(EnvironmentWorker(options, log))
        side.order(
            "load",
            parcel=str(self.carried.parcel.folder),
            device=self.carried.device,
            threads=self.options.threads,
            seed=self.options.seed,
        )

    def _describe_side(self, side: EnvironmentWorker) -> None:
        options, facts = side.options, side.answer(LOAD_S)
        if options.lerobot and Path(facts["lerobot"]).resolve().parent != options.source():
            raise UserError(
                f"'{options.name}' imports LeRobot from another place than {options.lerobot}: {facts['lerobot']}"
            )
        self.settings[options.name] = facts["settings"]
        self.environments.append(
            Environment(
                name=options.name,
                python=facts["python"],
                packages=facts["packages"],
                checkout=options.checkout or "",
                threads=facts["threads"],
            )
        )

    @property
    def names(self) -> list[str]:
        """Their names, the first one first."""
        return list(self.sides)

    def chunk(self, name: str, index: int, *, reordered: bool = False) -> Tensor:
        """Return a side's chunk for a check observation, (1, chunk, action dim). Raises UserError."""
        file = self.carried.parcel.folder / "chunk.npy"
        self.sides[name].ask("chunk", CALL_S, index=index, to=str(file), reordered=reordered)
        return torch.from_numpy(np.load(file))

    def timed_call(self, name: str) -> Callable[[int], dict[str, float]]:
        """Return a side's timed call: index → milliseconds of each part, in which no other side does anything."""
        side = self.sides[name]

        def call(index: int) -> dict[str, float]:
            time.sleep(PAUSE_S)
            return dict(zip(PARTS, side.ask("call", CALL_S, index=index)["ms"], strict=True))

        return call

    def stages(self, name: str, index: int, *, reordered: bool = False) -> list[first_difference.Entry]:
        """Return the record of a side's pass for a check observation. Raises UserError."""
        file = self.carried.parcel.folder / "stages.npz"
        self.sides[name].ask("stages", CALL_S, index=index, to=str(file), reordered=reordered)
        return first_difference.read(file)

    def gradient(self, name: str) -> tuple[float, list[first_difference.Entry]]:
        """Return a side's loss and a record of its gradient. Raises UserError."""
        file = self.carried.parcel.folder / "gradient.npz"
        loss = self.sides[name].ask("train", CALL_S, to=str(file))["loss"]
        return loss, first_difference.read(file)


@dataclass
class Looked(ActionCheck):
    """How far the sides' actions are apart: the agreement of each with the first one, and the yardstick.

    Args:
        worst: side → the check observation whose chunks differ most.
    """

    worst: dict[str, int] = field(default_factory=dict)

    def judge(self, judged: Comparison | Check, name: str, guard: Guard) -> None:
        """Write into ``judged`` how ``guard`` judges the side ``name``."""
        if name not in self.agreements:
            self.unseen.setdefault(name, "it was stopped before the actions were compared")
        super().judge(judged, name, guard)


def look(sides: Sides, count: int, reporter: Reporter) -> Looked:
    """Compare the chunks of all sides on ``count`` check observations, with the same noise.

    A side whose call fails, or that gives chunks of another shape, is broken.

    Raises:
        UserError: the first side's call fails, or a side ended.
    """
    first, *others = sides.names
    looked = Looked()
    reporter.stage("the same actions?")
    steps = Steps(reporter, "observations")
    own, moved = list[Tensor](), list[Tensor]()
    chunks: dict[str, list[Tensor]] = {name: [] for name in others}
    for index in range(count):
        own.append(sides.chunk(first, index))
        for name in others:
            if name not in looked.failed:
                _add_chunk(sides, name, own[-1], chunks[name], looked)
        if len(moved) == index:
            try:
                moved.append(sides.chunk(first, index, reordered=True))
            except SideFailedError as error:
                looked.notes.append(f"how far sums in another order move the actions was not measured: {error}")
        steps(index + 1, count)
    scale = sides.carried.scale(own)
    for name in others:
        if name not in looked.failed:
            looked.agreements[name] = agree(own, chunks[name], scale, executed=sides.carried.executed)
            apart = [float((a - b).abs().nan_to_num(torch.inf).max()) for a, b in zip(own, chunks[name], strict=True)]
            looked.worst[name] = int(np.argmax(apart))
    if len(moved) == len(own):
        looked.yardsticks = _yardsticks(agree(own, moved, scale))
    return looked


def _add_chunk(sides: Sides, name: str, own: Tensor, chunks: list[Tensor], looked: Looked) -> None:
    try:
        chunk = sides.chunk(name, len(chunks))
    except SideFailedError as error:
        looked.failed[name] = str(error)
        return
    if chunk.shape == own.shape:
        chunks.append(chunk)
    else:
        shapes = f"{tuple(chunk.shape)} against {tuple(own.shape)}"
        looked.failed[name] = f"'{name}' gives chunks of another shape: {shapes}"


def _yardsticks(moved: Agreement) -> list[Yardstick]:
    if moved.rms is None or moved.worst is None:
        return []
    return [
        Yardstick(
            name="reordered sums",
            about=OTHER_ORDER,
            rms=moved.rms,
            worst=moved.worst,
            observations=moved.observations,
            dimensions=moved.dimensions,
        )
    ]


def passes(sides: Sides, worst: Mapping[str, int], reporter: Reporter) -> list[PassDifference]:
    """Return where the pass of each side first differs from the first one's.

    Args:
        worst: side → check observation to look at; the first one for a side that is not in it.

    Raises:
        SideEndedError: a side ended.
    """
    first, *others = sides.names
    found: list[PassDifference] = []
    records: dict[int, tuple[list[first_difference.Entry], list[first_difference.Entry]]] = {}
    for name in others:
        index = worst.get(name, 0)
        reporter.stage(f"where '{name}' first differs")
        difference = PassDifference(
            candidate=name,
            observation=index + 1,
            compared=0,
            settings=first_difference.settings(sides.settings[first], sides.settings[name]),
        )
        found.append(difference)
        try:
            if index not in records:
                records[index] = sides.stages(first, index), _reordered_stages(sides, first, index)
            own, moved = records[index]
            compared = first_difference.compare(own, sides.stages(name, index), moved, sides.carried.steps)
        except SideFailedError as error:
            difference.note = f"where the passes differ was not looked at: {error}"
        else:
            difference.stages, difference.compared = compared.stages, compared.count
            difference.inside, difference.unmatched = compared.inside, compared.unmatched
    return found


def _reordered_stages(sides: Sides, name: str, index: int) -> list[first_difference.Entry]:
    try:
        return sides.stages(name, index, reordered=True)
    except SideFailedError:  # a kernel that cannot do without another library: the dtypes' floors count alone
        return []


def training(sides: Sides, found: Sequence[PassDifference], reporter: Reporter) -> dict[str, GradientAgreement]:
    """Compare the loss and the gradient of a training batch. What could not be compared is noted in ``found``.

    Returns:
        For each side but the first, how far it is from the first.

    Raises:
        SideEndedError: a side ended.
    """
    first, *others = sides.names
    why = sides.carried.parcel.untrained
    if not why and sides.weight_bytes > available_bytes():
        why = f"a gradient takes {sides.weight_bytes / 2**30:.0f} GiB, which are not free"
    if why:
        return _note_untrained(found, why)
    reporter.stage("the same training step?")
    agreements: dict[str, GradientAgreement] = {}
    try:
        loss, gradient = sides.gradient(first)
    except SideFailedError as error:
        return _note_untrained(found, str(error))
    for name, difference in zip(others, found, strict=True):
        try:
            other_loss, other = sides.gradient(name)
        except SideFailedError as error:
            _note_untrained([difference], str(error))
            continue
        difference.training = first_difference.compare(gradient, other).stages
        agreements[name] = first_difference.compare_gradients(loss, gradient, other_loss, other)
    return agreements


def _note_untrained(found: Sequence[PassDifference], why: str) -> dict[str, GradientAgreement]:
    for difference in found:
        notes = [difference.note, f"a training step was not compared: {why}"]
        difference.note = "; ".join(filter(None, notes))
    return {}
