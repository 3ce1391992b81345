"""A policy with treatments on it: the one place that knows. What copies, loads, moves or trains it comes by here.

What treatments applied a policy belongs to its own modules and their weights: closures that a copy would
share, engines built of the weights, copies of them in 16 bits. So a copy is made of, weights are loaded into, and a
device is changed for the baseline: the treatments come off for it and go on again, when they make what they
need of the weights as they are then. What cannot be done so is refused in a line.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Protocol

from strobe.core.errors import UserError, error_line
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.treatment import Undo, Variant

if TYPE_CHECKING:
    from torch import Tensor, nn

CALLED = "predict_action_chunk"
CALLS = (CALLED, "sample_actions", "infer", "get_action")  # methods of a policy, or of a model in an object
ON_BASELINE = ("load_state_dict", "state_dict", "_apply")  # done to the baseline; `_apply` is what moves and casts
NUMBERS = 16  # of a tensor that are looked at, at even distances
SHARE, TURN = 4, 4  # each fourth call looks at four tensors: 20 to 40 µs a call on a busy machine


class OnTop(Protocol):
    """Something around the treated policy's call that stays where it is while the treatments go off and on."""

    def wait(self) -> None:
        """Return once nothing is under way that needs the weights as they are."""

    def note_reapplication(self) -> None:
        """Note that the treatments below were applied again."""


def find_treated(module: nn.Module) -> Treated | None:
    """Return what is on the policy that ``module`` is or belongs to; None for a baseline one."""
    return getattr(vars(module).get(ON_BASELINE[0]), "treated", None)


class Treated:
    """``variant`` on ``subject``, until `off`.

    Attributes:
        let_go: whether the original weights are there no longer: then nothing brings the baseline back.
        on_top: what is around its call, or None.

    Raises:
        UserError: a treatment does not apply, or others are on; nothing of it is on then.
    """

    def __init__(self, subject: Subject, variant: Variant) -> None:
        self.subject, self.variant = subject, variant
        self.let_go = False
        self.on_top: OnTop | None = None
        self._undo: Undo | None = None
        self._baseline: Samples | None = None
        self._samples: list[Samples] = []
        self._call: Any = None
        if (other := find_treated(subject.module)) is not None:
            raise UserError(f"{other.variant.name} is on this policy already: revert it, or load another policy")
        self._apply_treatments()

    def revert(self) -> None:
        """Take the treatments off; once is enough."""
        undo, self._undo = self._undo, None
        for samples in self._samples:
            samples.raise_counts()
        if undo is not None:
            import torch

            with torch.inference_mode(False), torch.no_grad():  # what is called may be in that mode; weights never are
                undo()

    @contextmanager
    def restore_baseline(self, what: str) -> Iterator[None]:
        """Inside, the policy has no treatments, for ``what``. No call of it may be under way.

        Where they cannot be applied again, they stay off with a warning; or, without the original weights, UserError.
        """
        if self._undo is None:
            yield
            return
        if self.on_top is not None:
            self.on_top.wait()
        held = vars(self.subject.module)
        top = held.get(CALLED)
        above = top is not None and top is not self._call  # of ours, or of the program's
        if above:
            del held[CALLED]
        self.revert()
        try:
            yield
        finally:
            self._reapply_treatments(what)
            if above:
                if self.on_top is not None:
                    self.on_top.note_reapplication()
                held[CALLED] = top

    def _apply_treatments(self) -> None:
        stack = ExitStack()
        try:
            import torch

            module = self.subject.module
            before = list(module.parameters())
            if self._baseline is not None:
                self._baseline.raise_counts()
            self._baseline = Samples([*before, *module.buffers()])
            with torch.inference_mode(False), torch.no_grad():
                stack.callback(self.variant.apply(self.subject))
            patches = Patches()
            stack.callback(patches.undo)
            for each in module.modules():
                self._watch_over(each, patches)
            patches.wrap(module, "forward", self._training)
            self._watch_weights(patches, before)
        except BaseException:
            stack.close()
            raise
        self._call = vars(self.subject.module).get(CALLED)
        self._undo = stack.close

    def _reapply_treatments(self, what: str) -> None:
        try:
            self._follow()
            self._apply_treatments()
        except Exception as error:  # whatever it is, a program that has moved its policy goes on
            line = f"{self.variant.name} cannot be applied again after {what}: {error_line(error, 200)}"
            if self.let_go:
                raise UserError(f"{line}; load the policy again, without it") from error
            warnings.warn(f"{line}; the policy runs unchanged", stacklevel=4)

    def _follow(self) -> None:
        weight = next(self.subject.module.parameters(), None)
        config: Any = getattr(self.subject.module, "config", None)
        if weight is not None and weight.device.type != self.subject.device.type and hasattr(config, "device"):
            config.device = str(weight.device)

    def _watch_over(self, module: nn.Module, patches: Patches) -> None:
        patches.put(module, "__deepcopy__", lambda memo: self._copy_baseline(module, memo))
        no_pickle = ("cannot be pickled, nor copied by copy.copy", "send its state_dict, or use copy.deepcopy")
        patches.put(module, "__reduce_ex__", lambda _: self._refuse(*no_pickle))
        patches.put(module, "train", lambda mode=True: self._train(module, mode))
        for name in ON_BASELINE:
            patches.put(module, name, self._wrap_as_baseline(module, name))

    def _watch_weights(self, patches: Patches, before: Sequence[Tensor]) -> None:
        """Refuse a call after the weights, or those ``before``, were changed or replaced: treatments hold copies.

        Each call looks at the counts of all, some in turn at samples of some and at who their modules' weights are.
        """
        import torch

        top = self.subject.module
        each = {id(one): one for one in (*before, *top.parameters()) if not one.is_inference()}
        weights, counts = list(each.values()), [one._version for one in each.values()]
        held = [held for module in top.modules() for held in (module._parameters, module._modules)]
        places = [(among, name, one) for among in held for name, one in among.items()]
        if isinstance(self.subject, CallableSubject) and "" not in self.subject.target.modules:
            target = self.subject.target
            places += [(vars(target.owner), name, one) for name, one in target.modules.items()]
        turns = len(weights) // SHARE + 1
        self._samples = [Samples(weights[at::turns]) for at in range(turns)]
        shares = cycle([(places[at::turns], samples) for at, samples in enumerate(self._samples)])
        calls, inside, replaced = count(), False, False

        def check_weights(inner: Call) -> Call:
            def call(*args: Any, **kwargs: Any) -> Any:
                nonlocal inside, replaced
                if inside or torch.compiler.is_compiling():  # inside, a graph may be captured
                    return inner(*args, **kwargs)
                if next(calls) % TURN == 0:
                    those, samples = next(shares)
                    samples.raise_counts()
                    replaced = any(among.get(name) is not one for among, name, one in those)
                instead = "revert it first, or load them with load_state_dict"
                if [one._version for one in weights] != counts:
                    self._refuse("was given other weights in place", instead)
                if replaced:
                    self._refuse("was given other modules or parameters", instead)
                inside = True
                try:
                    return inner(*args, **kwargs)
                finally:
                    inside = False

            return call

        below = list(top.children())
        for module in (top, *below):
            for name in CALLS:
                if callable(getattr(type(module), name, None)):
                    patches.wrap(module, name, check_weights)
        # An object's modules are called one by one.
        for module in below if type(top).forward is torch.nn.Module.forward else [top]:
            patches.wrap(module, "forward", check_weights)

    def _wrap_as_baseline(self, module: nn.Module, name: str) -> Call:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "load_state_dict" and (kwargs.get("assign") or any(args[2:])):
                self._refuse("is given weights in place", "leave out assign=True")
            with self.restore_baseline("to()" if name == "_apply" else f"{name}()"):
                return getattr(module, name)(*args, **kwargs)

        call.treated = self  # type: ignore[attr-defined]
        return call

    def _copy_baseline(self, module: nn.Module, memo: dict[int, object]) -> object:
        if self.let_go:
            instead = "load it once more, or with watch=0.01, which keeps them"
            self._refuse("cannot be copied, as its original weights were let go", instead)
        with self.restore_baseline("deepcopy()"):
            return copy.deepcopy(module, memo)

    def _train(self, module: nn.Module, mode: bool) -> nn.Module:
        if mode:
            self._refuse("is for inference", "train the policy without it")
        return type(module).train(module, False)

    def _training(self, forward: Call) -> Call:
        def call(*args: Any, **kwargs: Any) -> Any:
            import torch

            if torch.is_grad_enabled() and any(weight.requires_grad for weight in self.subject.module.parameters()):
                self._refuse("is for inference", "train the policy without it, or ask for the loss under torch.no_grad")
            return forward(*args, **kwargs)

        return call

    def _refuse(self, why: str, instead: str) -> object:
        raise UserError(f"a policy with {self.variant.name} on it {why}: {instead}")


class Samples:
    """Numbers of each of ``tensors`` when they were last read; quantised weights, of a class of their own, have none.

    torch counts the changes of a tensor, but none that goes by its `.data` or by memory that NumPy shares.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors, self._last = tensors, _sample(tensors)

    def raise_counts(self) -> None:
        """Count one more change of each tensor if a sample has changed: whatever goes by the counts notices."""
        from torch.autograd.graph import increment_version

        now = _sample(self._tensors)
        if now.keys() == self._last.keys() and all(now[key].equal(self._last[key]) for key in now):
            return
        self._last = now
        for tensor in self._tensors:
            if not tensor.is_inference():
                increment_version(tensor)


def _sample(tensors: Sequence[Tensor]) -> dict[object, Tensor]:
    import torch

    alike: dict[object, list[Tensor]] = {}
    with torch.no_grad():
        for tensor in tensors:
            if type(tensor.data) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_meta:
                count = tensor.numel()
                numbers = tensor if tensor.is_contiguous() else tensor.flatten()
                sample = numbers.as_strided((min(count, NUMBERS),), (max(1, count // NUMBERS),))
                alike.setdefault((tensor.dtype, tensor.device), []).append(sample)
        return {key: torch.cat(samples).view(torch.uint8) for key, samples in alike.items()}  # a NaN equals itself
