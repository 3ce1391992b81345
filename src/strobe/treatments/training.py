"""A training step computed otherwise: in micro-batches or mixed precision, with checkpoints or another optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from strobe.core.errors import UserError, error_line, nearest
from strobe.core.results.traits import Facts, TreatmentTraits
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import entry
from strobe.core.treatments.treatment import FOR_TRAINING, Entry, Spec, Treatment, Undo
from strobe.core.treatments.words import BATCH_NORM, FORMS
from strobe.lerobot.config_fields import require_policy
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.quiet import quiet

# Gradient accumulation: the batch in equal micro-batches, one optimizer step for all of them.
# The memory of activations is a micro-batch's, the gradient that of the whole batch where the loss is a mean over
# samples. ACT's is a mean over the actions that are not padding, so there it is the same where micro-batches hold
# equally many.


@dataclass
class Accumulate(Treatment, key="accumulate"):
    """``micro_batches`` parts of the batch, one after the other; each draws noise of its own."""

    micro_batches: int
    _batch_norms: int = field(default=0, init=False, repr=False)
    phases = FOR_TRAINING

    def __post_init__(self) -> None:
        if isinstance(self.micro_batches, bool) or not isinstance(self.micro_batches, int) or self.micro_batches < 2:
            raise UserError(f"accumulate={self.micro_batches}: a whole number of micro-batches, at least 2")

    def traits(self) -> TreatmentTraits:
        notes: Facts = {BATCH_NORM: self._batch_norms} if self._batch_norms else {}
        return TreatmentTraits(key=self.key, value=self.micro_batches, notes=notes)

    def apply(self, subject: Subject) -> Undo:
        self._batch_norms = sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in subject.module.modules())
        training = require_policy(subject).training
        before, training.micro_batches = training.micro_batches, self.micro_batches

        def undo() -> None:
            training.micro_batches = before

        return undo


def _make_accumulate(spec: Spec) -> Accumulate:
    value = str(spec["accumulate"])
    if not value.isdecimal():
        shown = "?" if spec["accumulate"] is True else value
        raise UserError(f"accumulate={shown}: a whole number of micro-batches, such as accumulate=4")
    return Accumulate(int(value))


ACCUMULATE = entry("accumulate", _make_accumulate)


# Gradient checkpointing: the same numbers, less memory for activations, and most of a second forward pass.

_FIELD = "gradient_checkpointing"
_ENABLE = (("model", f"{_FIELD}_enable"), ("", f"_enable_{_FIELD}"))  # LeRobot's methods; Diffusion reads its config
_LIVE = f"use_{_FIELD}"  # FastWAM's, which its modules have as an attribute and read in every forward pass
_BY_ITSELF = f"enable_{_FIELD}"  # EVO-1's, on by default, which leaves hooks in its backbone


@dataclass
class Checkpointing(Treatment, key="checkpointing"):
    """LeRobot's own ``gradient_checkpointing`` of a policy, which its constructor reads; set after it here.

    FastWAM's field is called ``use_gradient_checkpointing``. Policies of LeRobot 0.6.1 have no common way back: all
    attributes of that name are put back.
    """

    _on: list[dict[str, Any]] | None = field(default=None, init=False, repr=False)
    _policy: Any = field(default=None, init=False, repr=False)
    _field: str = field(default=_FIELD, init=False, repr=False)  # of the policy's config
    phases = FOR_TRAINING

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=True, lerobot_flag=f"--policy.{self._field}=true")

    def apply(self, subject: Subject) -> Undo:
        policy: Any = require_policy(subject).policy
        if hasattr(policy.config, _BY_ITSELF):
            raise UserError(
                f"checkpointing: {policy.config.type} has it on by itself where it trains its backbone. For its price "
                f"compare two runs, one of them with --policy.{_BY_ITSELF}=false"
            )
        self._field = next((name for name in (_FIELD, _LIVE) if hasattr(policy.config, name)), _FIELD)
        if not hasattr(policy.config, self._field):
            raise UserError(f"checkpointing: {policy.config.type} has no --policy.{_FIELD}")
        if getattr(policy.config, self._field):
            raise UserError(f"checkpointing: --policy.{self._field}=true has it on in every variant already")
        places = [vars(policy.config), *map(vars, policy.modules())]
        before = [_select_fields(place) for place in places]
        if self._on is None or self._policy is not policy:  # once: some make a function of their own in every call
            for place in places if self._field == _LIVE else places[:1]:
                if self._field in place:
                    place[self._field] = True
            owners = ((getattr(policy, path, None) if path else policy, name) for path, name in _ENABLE)
            enable = next((getattr(owner, name) for owner, name in owners if hasattr(owner, name)), None)
            if enable is not None:
                with quiet():
                    enable()
            self._on, self._policy = [_select_fields(place) for place in places], policy
        _write(places, self._on)
        return lambda: _write(places, before)


def _select_fields(place: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in place.items() if _FIELD in name}


def _write(places: list[dict[str, Any]], values: list[dict[str, Any]]) -> None:
    for place, own in zip(places, values, strict=True):
        for name in _select_fields(place).keys() - own.keys():
            del place[name]
        place.update(own)


CHECKPOINTING = entry("checkpointing", lambda _: Checkpointing())


# The same optimizer, computed otherwise: in one kernel for all weights, in one per operator, or weight by weight.


@dataclass
class OptimizerForm(Treatment):
    """The policy's optimizer with ``form``; its moments are shared by all variants, only their counters move.

    torch reads the form from the parameter groups at every step, so it is exchanged there. A fused step on CUDA counts
    on the device, the others on the host.
    """

    form: str = "fused"
    _checked: bool = field(default=False, init=False, repr=False)
    effect = "rounding"
    phases = frozenset({"training step"})

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise UserError(f"optimizer={self.form}: {nearest(self.form, FORMS)}")
        self.key = self.form

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=True)

    def apply(self, subject: Subject) -> Undo:
        optimizer = require_policy(subject).training.optimizer
        self._check(optimizer)
        before = [(group, {key: group[key] for key in ("fused", "foreach")}) for group in optimizer.param_groups]
        for group, _ in before:
            group.update(fused=self.form == "fused", foreach=self.form == "foreach")
        if self.form == "fused":
            _move_counters(optimizer, lambda parameter: parameter.device)

        def undo() -> None:
            for group, own in before:
                group.update(own)
            if self.form == "fused" and not any(own["fused"] for _, own in before):
                _move_counters(optimizer, lambda _: torch.device("cpu"))

        return undo

    def _check(self, optimizer: torch.optim.Optimizer) -> None:
        if self._checked:
            return
        kind = type(optimizer)
        if self.form != "forloop" and any(self.form not in group for group in optimizer.param_groups):
            raise UserError(f"{kind.__name__} has no {self.form} form")
        if self.form == "fused":
            first: Tensor = optimizer.param_groups[0]["params"][0]
            try:  # torch says at construction whether the device has it
                make: Any = kind
                make([torch.nn.Parameter(torch.zeros(1, dtype=first.dtype, device=first.device))], fused=True)
            except (RuntimeError, TypeError, ValueError) as error:
                reason = error_line(error, 200)
                raise UserError(f"{kind.__name__} has no fused form on {first.device.type}: {reason}") from None
        self._checked = True


def _move_counters(optimizer: torch.optim.Optimizer, where: Call) -> None:
    moving: dict[tuple[torch.device, torch.device], list[dict[str, Any]]] = {}
    for parameter, state in optimizer.state.items():
        step = state.get("step")
        if isinstance(step, Tensor) and step.device != where(parameter):
            moving.setdefault((step.device, where(parameter)), []).append(state)
    for (_, target), states in moving.items():
        steps = torch.stack([state["step"] for state in states]).to(target)
        for state, step in zip(states, steps, strict=True):
            state["step"] = step.clone()


def _entry(form: str) -> Entry:
    return entry(form, lambda _: OptimizerForm(form))


FUSED, FOREACH, FORLOOP = map(_entry, FORMS)


# Automatic mixed precision: autocast around the forward pass, as accelerate has it in lerobot-train; in inference
# around a policy's call or a backbone's. Weights stay as they are, and every call casts them: precision= casts once.

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
AUTO = "auto"


@dataclass
class MixedPrecision(Treatment, key="amp"):
    """Autocast to ``dtype``: bf16, fp16 (with a loss scaler), or auto for what ``policy.use_amp`` is on the device."""

    dtype: str = AUTO
    _used: str | None = field(default=None, init=False, repr=False)
    _kind: str = field(default="", init=False, repr=False)  # of device
    _flag: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        if self.dtype not in (*DTYPES, AUTO):
            raise UserError(f"amp={self.dtype}: {nearest(self.dtype, (*DTYPES, AUTO))}")
        if self.dtype != AUTO:  # else the device decides, when it is applied
            self.dtypes = (str(DTYPES[self.dtype]).removeprefix("torch."),)

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self._used or self.dtype, lerobot_flag=self._flag)

    def apply(self, subject: Subject) -> Undo:
        if self._used is None:
            self._kind = subject.device.type
            own = torch.get_autocast_dtype(self._kind)
            used = self.dtype if self.dtype != AUTO else next(n for n, dtype in DTYPES.items() if dtype is own)
            _require_one_format(subject, used)
            self._used = used
            self.dtypes = (str(DTYPES[used]).removeprefix("torch."),)
            self._flag = _flag(require_policy(subject), DTYPES[used]) if subject.acting is not None else ""
        patches = Patches()
        for name in ("forward",) if subject.acting is None else ("predict_action_chunk", "select_action"):
            if hasattr(subject.module, name):
                patches.wrap(subject.module, name, self._casting)
        if subject.acting is not None:
            training = subject.acting.training
            patches.register_undo(partial(setattr, training, "autocast", training.autocast))
            training.autocast = DTYPES[self._used]
        return patches.undo

    def _casting(self, call: Call) -> Call:
        """Return ``call`` under autocast; a tensor that it returns comes back in float32."""

        def cast(*args: object, **kwargs: object) -> object:
            dtype = DTYPES[self._used or ""]
            with torch.autocast(self._kind, dtype):
                made = call(*args, **kwargs)
            return made.float() if isinstance(made, Tensor) and made.dtype is dtype else made

        return cast


def _require_one_format(subject: Subject, used: str) -> None:
    """Raise UserError where weights are in the other format of 16 bits: autocast joins no tensors of both.

    Source: ``prioritize`` in ATen's ``autocast_mode.h``, which SmolVLA's bfloat16 backbone meets in ``torch.cat``.
    """
    held = {parameter.dtype for parameter in subject.module.parameters()}
    for name, dtype in DTYPES.items():
        if name != used and dtype in held:
            where = f"{subject.info.name} has weights in {name}"
            raise UserError(f"amp={used}: {where}, and autocast joins no tensors of both: amp={name}")


def _flag(subject: PolicySubject, dtype: torch.dtype) -> str:
    """Return the flag or command with which ``lerobot-train`` does the same; else empty.

    See `subjects.training.own_autocast`.
    """
    config: Any = subject.policy.config
    device, name = subject.device.type, str(dtype).removeprefix("torch.")
    if device == "cpu" and dtype is torch.float16:  # accelerate refuses it there
        return ""
    if hasattr(config, "dtype"):
        return f"--policy.dtype={name}" if name == "bfloat16" else ""
    if dtype is torch.get_autocast_dtype(device):
        return "--policy.use_amp=true"
    short = next(short for short, known in DTYPES.items() if known is dtype)
    return f"accelerate launch --mixed_precision={short} $(which lerobot-train)"


def _make_amp(spec: Spec) -> MixedPrecision:
    return MixedPrecision(AUTO if spec["amp"] is True else str(spec["amp"]))


AMP = entry("amp", _make_amp)
