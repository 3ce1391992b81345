"""A part of the subject in an engine: OpenVINO on CPUs, TensorRT on NVIDIA's GPUs.

The part is recorded in one real call, exported with torch.export for those shapes, built once, and kept in a cache.
Around a call the part's ``forward`` is the engine's, whose results have the classes, shapes and dtypes that torch's
had: neighbours in another dtype notice nothing. That was the fault of a pi0.5 whose vision tower ran in TensorRT in
half precision and its projector in bfloat16: "mat1 and mat2 must have the same dtype, but got Half and BFloat16".

An engine is compared with the part that it stands for before it is used, one from the cache too. What has been built is
a second copy of the part's weights. The inside of the part cannot be timed or counted, only the part as a whole.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from strobe.errors import UserError, nearest
from strobe.subjects.subject import Subject
from strobe.timeline.sections import note_unseen, recording, section
from strobe.treatments.engines.backends import ENGINES, Engine, Run
from strobe.treatments.numbers.precision import DTYPES, Precision, name_of
from strobe.treatments.parts import EXPERT, PREFIX, dominant, part_of, parts_of
from strobe.treatments.patch import put
from strobe.treatments.treatment import COMPILED, FOR_INFERENCE, Effect, Entry, Spec, Treatment, Undo

INSIDE = "runs inside an engine, where only the part as a whole can be timed"
SHAPES = 4  # that one part is built for, each an engine of its own
# Cosine between the engine's results and the part's own, on what was recorded.
LEAST = {"fp32": 0.999, "bf16": 0.99, "fp16": 0.99}
_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_CONSTANTS = (type(None), bool, int, float, str, torch.dtype)


@dataclass
class PartInEngine(Treatment):
    """The module at the path ``part`` in an engine.

    Args:
        engine: 'openvino' or 'tensorrt'.
        precision: 'fp32', 'bf16' or 'fp16', as the device has them; '' for that of the part's weights.
    """

    engine: str
    part: str
    precision: str = ""
    effect: Effect = field(default="rounding", init=False)
    _built: dict[Any, _Built] = field(default_factory=dict, init=False, repr=False)
    _weights: Any = field(default=None, init=False, repr=False)
    _names: list[str] = field(default_factory=list, init=False, repr=False)
    key = "engine"
    phases = FOR_INFERENCE
    builds = "built"

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UserError(f"engine={self.engine}: {nearest(self.engine, ENGINES)}")
        if not self.part:
            raise UserError("engine: say which part, such as engine.part=model.backbone")
        if self.precision:
            self.precision = name_of(self.precision)
            self.dtypes = (str(DTYPES[self.precision]).removeprefix("torch."),)
        self._engine: Engine = ENGINES[self.engine]()

    def facts(self) -> dict[str, str | int | float | bool | None]:
        facts: dict[str, str | int | float | bool | None] = {"engine": self.engine, "engine.part": self.part}
        if self.precision:
            facts["engine.precision"] = self.precision
        if self._built:
            built = list(self._built.values())
            facts["engine build s"] = round(sum(one.seconds for one in built), 2)
            facts["engine from cache"] = all(one.cached for one in built)
        return facts

    def apply(self, subject: Subject) -> Undo:
        self._engine.require(subject.device)
        part = part_of(subject.module, self.part)
        self._prepare(subject, part)
        inner = part.forward
        names = self._names

        # The engine is no torch code: a compiled region around it calls it as it is.
        @torch.compiler.disable
        def forward(*args: Any, **kwargs: Any) -> Any:
            call = _Call.of(args, kwargs, self.part)
            if call.key not in self._built:
                self._build(subject, part, inner, call)
            built = self._built[call.key]
            with _sections(names):
                return built.run(call.tensors)

        return put(part, "forward", forward)

    def _prepare(self, subject: Subject, part: nn.Module) -> None:
        weights = [*part.parameters(), *part.buffers()]
        state = [(weight.data_ptr(), weight._version, weight.dtype) for weight in weights]
        if state == self._weights:
            return
        self._built.clear()  # they were built of other weights
        _require_plain(part, self.part)
        self._precise(part)
        call = self._record(subject, part)
        self._build(subject, part, part.forward, call)
        self._weights = state
        inside = set(map(id, part.modules()))
        for hook in subject.hooks("inference", 3):
            if hook.owner is part and hook.attribute == "forward":
                self._names = list(dict.fromkeys([*self._names, hook.name]))
            elif id(hook.owner) in inside:
                note_unseen(hook.name, INSIDE)

    def _precise(self, part: nn.Module) -> None:
        able = self._engine.precisions()
        if not self.precision:
            sizes: dict[torch.dtype, int] = {}
            for weight in part.parameters():
                sizes[weight.dtype] = sizes.get(weight.dtype, 0) + weight.numel()
            held = _NAMES.get(max(sizes, key=lambda dtype: sizes[dtype]) if sizes else torch.float32, "fp32")
            self.precision = held if held in able else "fp32"
        if self.precision not in able:
            raise UserError(f"engine.precision={self.precision}: {self.engine} has {', '.join(able)} here")

    def _record(self, subject: Subject, part: nn.Module) -> _Call:
        """One real call of the part."""
        calls: list[_Call] = []
        inner = part.forward

        def watching(*args: Any, **kwargs: Any) -> Any:
            if not calls:
                calls.append(_Call.of(args, kwargs, self.part).copied())
            return inner(*args, **kwargs)

        undo = put(part, "forward", watching)
        try:
            with _apart():
                subject.call("inference", 1)(0)
        finally:
            undo()
        if not calls:
            raise UserError(f"'{self.part}' is not called as a module in an inference of {subject.info.name}")
        return calls[0]

    def _build(self, subject: Subject, part: nn.Module, inner: Callable[..., Any], call: _Call) -> None:
        if len(self._built) >= SHAPES:
            raise UserError(f"'{self.part}' is called with more than {SHAPES} shapes, and an engine takes one")
        own = vars(part).get("forward")
        undo = put(part, "forward", inner)  # a further shape is met while the engine's forward is on
        started = time.perf_counter()
        try:
            with _apart():
                wanted = inner(*call.args, **call.kwargs)
                template = _Results.of(wanted, self.part)
                self._built[call.key] = self._compared(subject, part, call, template)
        finally:
            undo()
            assert vars(part).get("forward") is own
        self._built[call.key].seconds = time.perf_counter() - started

    def _compared(self, subject: Subject, part: nn.Module, call: _Call, results: _Results) -> _Built:
        kept = self._kept(part, call, results)
        if kept.is_file():
            try:
                built = _Built(self._engine.load(kept, self.precision), call.dtypes, results, cached=True)
                if _cosine(built.run(call.tensors), results) >= LEAST[self.precision]:
                    return built
            except Exception:  # each engine has exceptions of its own for a file that it does not understand
                pass
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_name(f"{kept.stem}.{os.getpid()}{kept.suffix}")
        try:
            run = self._made(subject, part, call, results.places, partial)
            built = _Built(run, call.dtypes, results)
            agreed = _cosine(built.run(call.tensors), results)
            if agreed < LEAST[self.precision]:
                raise UserError(
                    f"'{self.part}' in {self.engine} in {self.precision} gives something else than in torch (cosine "
                    f"{agreed:.4f})"
                )
            partial.replace(kept)
        finally:
            partial.unlink(missing_ok=True)
        return built

    def _made(self, subject: Subject, part: nn.Module, call: _Call, places: Sequence[int], keep: Path) -> Run:
        undo = Precision(self._engine.exported(self.precision), self.part).apply(subject)
        try:
            flat = _Flat(part, call, places).eval()
            inputs = tuple(_outside(value) for value in call.tensors)
            program = torch.export.export(flat, inputs, strict=False)
            return self._engine.build(program, inputs, self.precision, keep)
        except Exception as error:
            if isinstance(error, torch.OutOfMemoryError | UserError):
                raise
            lines = " ".join(str(error).split())
            raise UserError(f"'{self.part}' cannot be built in {self.engine}: {lines[-200:].rstrip('.')}") from error
        finally:
            undo()

    def _kept(self, part: nn.Module, call: _Call, results: _Results) -> Path:
        """Where the engine of these weights, shapes and versions is kept."""
        digest = hashlib.blake2b(digest_size=16)
        said = [self.engine, self.precision, self._engine.versions(), _package(part), str(getattr(part, "config", ""))]
        said += [repr(part), repr(call.key), repr(call.dtypes), repr([tuple(t.shape) for t in results.tensors])]
        digest.update("\0".join(said).encode())
        for name, weight in [*part.named_parameters(), *part.named_buffers()]:
            digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
            digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return cache() / f"{digest.hexdigest()}{self._engine.suffix}"


def cache() -> Path:
    """Where engines are kept: below STROBE_CACHE, else in the user's cache directory. It may be deleted at any time."""
    if own := os.environ.get("STROBE_CACHE"):
        return Path(own) / "engines"
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "strobe" / "engines"


@dataclass
class _Call:
    """Arguments of a part's forward, flat: tensors, and all that is no tensor."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    spec: TreeSpec
    key: Any

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any], part: str) -> _Call:
        leaves, spec = tree_flatten((args, kwargs))
        _require_known(leaves, part, "takes")
        # Not the dtypes: what comes in another one is converted.
        key = (tuple(tuple(leaf.shape) if isinstance(leaf, Tensor) else repr(leaf) for leaf in leaves), repr(spec))
        return cls(args, kwargs, leaves, spec, key)

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    @property
    def dtypes(self) -> list[torch.dtype]:
        return [tensor.dtype for tensor in self.tensors]

    def copied(self) -> _Call:
        leaves = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return _Call(args, kwargs, leaves, self.spec, self.key)


@dataclass
class _Results:
    """What the part returned in torch, as a mould for what the engine returns."""

    leaves: list[Any]
    spec: TreeSpec
    places: list[int]  # of the tensors, each once: a last layer's states may be there under two names

    @classmethod
    def of(cls, value: Any, part: str) -> _Results:
        leaves, spec = tree_flatten(value)
        _require_known(leaves, part, "gives")
        first = {id(leaf): place for place, leaf in reversed([*enumerate(leaves)]) if isinstance(leaf, Tensor)}
        return cls(leaves, spec, sorted(first.values()))

    @property
    def tensors(self) -> list[Tensor]:
        return [self.leaves[place] for place in self.places]

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """``tensors`` in the place of the recorded ones, in their dtypes."""
        given = {id(own): new.to(own.dtype) for own, new in zip(self.tensors, tensors, strict=True)}
        return tree_unflatten([given.get(id(leaf), leaf) for leaf in self.leaves], self.spec)


@dataclass
class _Built:
    """An engine for one call's shapes."""

    call: Run
    dtypes: list[torch.dtype]
    results: _Results
    cached: bool = False
    seconds: float = 0.0

    def run(self, tensors: Sequence[Tensor]) -> Any:
        # By way of the dtype that was recorded: a mask of another kind means another thing.
        inputs = [_outside(value.to(dtype)) for value, dtype in zip(tensors, self.dtypes, strict=True)]
        return self.results.filled(self.call(inputs))


class _Flat(nn.Module):
    """The part as a function from tensors to tensors, floating ones as float32, which every engine takes."""

    def __init__(self, part: nn.Module, call: _Call, places: Sequence[int]) -> None:
        super().__init__()
        self.part = part
        self._call, self._places = call, places

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter([value.to(dtype) for value, dtype in zip(tensors, self._call.dtypes, strict=True)])
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self._call.leaves]
        args, kwargs = tree_unflatten(leaves, self._call.spec)
        results = tree_flatten(self.part(*args, **kwargs))[0]
        return tuple(_outside(results[place]) for place in self._places)


@contextmanager
def _apart() -> Iterator[None]:
    """Around recording and building: not on the timeline, without gradients, with the random numbers put back."""
    eager = torch.compiler.set_stance("force_eager")
    with recording(None), torch.no_grad(), torch.random.fork_rng(), eager, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export about torch's own code
        yield


class _sections:
    """Sections of all ``names``, one in the other: the probes on the part are hidden by the engine's forward."""

    def __init__(self, names: Sequence[str]) -> None:
        self._open = [section(name) for name in names]

    def __enter__(self) -> None:
        for one in self._open:
            one.__enter__()

    def __exit__(self, *exception: Any) -> None:
        for one in reversed(self._open):
            one.__exit__(*exception)


def _outside(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() else value


def _cosine(got: Any, results: _Results) -> float:
    """The least over the results' tensors; a result of zeros has none and is not asked."""
    least = 1.0
    for ours, theirs in zip(_Results.of(got, "").tensors, results.tensors, strict=True):
        a, b = ours.double().flatten(), theirs.double().flatten()
        if b.norm() > 0:
            least = min(least, float(a @ b / (a.norm() * b.norm()).clamp(min=1e-300)))
    return least if least == least else 0.0


def _package(part: nn.Module) -> str:
    from importlib.metadata import PackageNotFoundError, version

    kind = type(part)
    package = kind.__module__.split(".")[0]
    try:
        return f"{kind.__module__}.{kind.__qualname__} {version(package)}"
    except PackageNotFoundError:
        return f"{kind.__module__}.{kind.__qualname__}"


def _require_known(leaves: Sequence[Any], part: str, does: str) -> None:
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, *_CONSTANTS)):
            kind = type(leaf).__name__
            raise UserError(f"'{part}' {does} a {kind}, and an engine knows tensors only: take a part without it")


def _require_plain(part: nn.Module, path: str) -> None:
    if any(type(weight) not in (nn.Parameter, Tensor) for weight in part.parameters()):
        raise UserError(f"'{path}' holds quantised weights, and an engine is built of floating ones: take one of both")


def _make(spec: Spec) -> PartInEngine:
    engine = str(spec["engine"])
    return PartInEngine(engine, str(spec.get("engine.part", "")), str(spec.get("engine.precision", "")))


def _candidates(subject: Subject) -> list[Spec]:
    """Each part that time goes to and that works on tensors alone: those with a key-value cache do not."""
    engine = {"cpu": "openvino", "cuda": "tensorrt"}.get(subject.device.type)
    if engine is None:
        return []
    try:
        made = ENGINES[engine]()
        made.require(subject.device)
        able = made.precisions()
    except UserError:
        return []
    precisions = [name for name in (("fp16", "bf16") if engine == "tensorrt" else ("bf16", "fp32")) if name in able]
    paths = [path for path in dominant(subject) if not {PREFIX, EXPERT} & set(parts_of(subject, [path]))]
    return [
        {"engine": engine, "engine.part": path, "engine.precision": precision}
        for path in paths
        for precision in precisions
    ]


ENTRY = Entry(
    "engine",
    "openvino (CPU) or tensorrt (CUDA) for engine.part=PATH, with engine.precision=fp32, bf16 or fp16",
    "rounding",
    COMPILED - 1,  # a compiled region goes around it
    _make,
    options=("part", "precision"),
    candidates=_candidates,
    parts=lambda subject, spec: parts_of(subject, [str(spec.get("engine.part", ""))]),
)
