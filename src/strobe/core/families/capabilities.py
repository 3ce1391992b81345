"""Capabilities of a family of policies or backbones: a record for each one that others need to know.

A family lists those that it has. `Family.get` returns one, or None. A `Facts` has usual values where a record says
nothing: its ``of`` returns these for a family without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from typing_extensions import Self

from strobe.core.timeline.probe import Hook

if TYPE_CHECKING:
    from torch import Tensor

Method = tuple[str, str]  # path of an object under the policy, name of its method
Around = tuple[Any, str, Callable[[Any], Any]]  # owner, name of its method, method → what runs in its place
C = TypeVar("C", bound="Capability")


class Capability:
    """One thing that a family has or has not."""


class SupportsCapabilities(Protocol):
    """A family, which has capabilities."""

    def get(self, kind: type[C]) -> C | None:
        """Return its capability of this kind; None without one."""


class Facts(Capability):
    """Facts about a family, with usual values for what its record does not say."""

    @classmethod
    def from_family(cls, family: SupportsCapabilities | None) -> Self:
        """Return those of ``family``; the usual ones for one without them, and where a type has no record."""
        return (family.get(cls) if family is not None else None) or cls()


@dataclass(frozen=True)
class Parts(Facts):
    """Which modules work in which parts.

    Args:
        seeing: part → path of its module, for the parts that process images; the costliest first.
        working: a step of a module's path, or a path of several steps that it begins with → the parts in which that
            module works, where parts are methods.
        caching: path of a module that takes or gives a key-value cache and is called as a module → the parts that it
            computes.
        sampling: path of a module that is called in each denoising step, or holds all that is → path of the method that
            runs all steps.
    """

    seeing: Mapping[str, str] = field(default_factory=dict)
    working: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    caching: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sampling: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LiveFields(Facts):
    """Fields of the config that are read on every call, so that a treatment may change them.

    Args:
        steps: the one that holds the number of denoising steps, or an empty name.
        objectives: the config's ``objective`` → such a field, where each objective has its own.
        every_step: the field that holds the number where ``steps`` is None.
        live: further fields, and ``live_in_training`` those that only the training phases read.
    """

    steps: str = ""
    objectives: Mapping[str, str] = field(default_factory=dict)
    every_step: str = ""
    live: tuple[str, ...] = ()
    live_in_training: tuple[str, ...] = ()

    def steps_field(self, config: object) -> str:
        """Return the field of ``config`` that holds the number of denoising steps, or an empty name."""
        return self.objectives.get(getattr(config, "objective", ""), self.steps)


@dataclass(frozen=True)
class Arm:
    """The synthetic robot that feeds a family's policies, if that cannot be one with two cameras and six joints.

    Args:
        cameras: names of its images, whole (``observation.image``); () for ``observation.images.front`` and so on.
        most: the largest number of cameras; None for any number.
        image: height and width of its images, and ``tiny_image`` those of a tiny policy; None for the usual ones.
        state, action: their numbers of values.
        instead: whether its cameras replace those that the config makes up without given ones.
    """

    cameras: tuple[str, ...] = ()
    most: int | None = None
    image: tuple[int, int] | None = None
    tiny_image: tuple[int, int] | None = None
    state: int = 6
    action: int = 6
    instead: bool = False


@dataclass(frozen=True)
class HubNeed:
    """Something that LeRobot fetches from the Hub by ``from_pretrained`` while it makes a policy, and its stand-in.

    Args:
        name: the repository on the Hub.
        what: the word for it in notes, e.g. 'tokenizer'.
        module, attribute: the module of LeRobot that loads it, and the class there that it loads with.
        make: whether the policy is tiny → the stand-in.
    """

    name: str
    what: str
    module: str
    attribute: str
    make: Callable[[bool], object]

    @property
    def site(self) -> tuple[str, str]:
        """Module and attribute."""
        return self.module, self.attribute


@dataclass(frozen=True)
class Backbone(Capability):
    """Facts about a backbone of transformers, for `subjects.models` and `ModelSubject`.

    Args:
        sizes: ``--model.size`` → fields of the config.
        usual: the default size.
        frames: default number of frames of a clip; None for the config's own.
        predictor: the option that leaves the predictor out when it is true.
        preprocessing: the model → its own preprocessing and the probes on its steps. It makes of frames the pixels,
            or, for a model with more inputs than them, all arguments of the model by name.
        tower: the type → the class of the vision tower, where transformers has no ``AutoModel`` for it.
        weights: pattern of the prefix that the tower's weights have in a checkpoint of the whole model.
        resized: module, side in pixels, side of a patch → (owner, attribute, value) for each thing that holds the
            image's size; None if the size is built in.
    """

    sizes: Mapping[str, Mapping[str, Any]]
    usual: str
    frames: int | None = None
    predictor: str | None = None
    preprocessing: Callable[[Any], tuple[Callable[[Any], Any], list[Hook]]] | None = None
    tower: Callable[[str], Any] | None = None
    weights: str = ""
    resized: Callable[[Any, int, int], list[tuple[object, str, object]]] | None = None


@dataclass(frozen=True)
class InputFacts(Facts):
    """The inputs of a policy.

    Args:
        arm: the synthetic robot that feeds it.
        reads_words: whether it makes tokens of the task itself, or in a step of its preprocessor that is no tokenizer.
        fills_cameras: whether it uses an empty image for a missing camera, so that one camera is enough.
        any_image_size: whether its images go through a convolutional net alone, which takes any size.
        image_size: the field of the config with the size, (height, width), that its vision tower is built for.
        stacked: whether observations have a dimension of ticks even where it looks at one: its ``predict_action_chunk``
            takes the batch as ``select_action``'s queues stack it.
    """

    arm: Arm = Arm()
    reads_words: bool = False
    fills_cameras: bool = False
    any_image_size: bool = False
    image_size: str = ""
    stacked: bool = False


@dataclass(frozen=True)
class Construction(Facts):
    """How a policy with random weights is made without the Hub.

    Args:
        hub: its needs from the Hub, with their stand-ins.
        flags: settings of the config, as on LeRobot's command line (``--name=value``), that it needs if the user gives
            none; those unknown to the installed LeRobot are left out.
        building: config and whether the policy is tiny → a context in which the policy and its processors are made; it
            may yield notes on stand-ins, as in `SubjectInfo.stand_ins`.
        settle: policy, preprocessor → None: loads what LeRobot would load at the first chunk, while ``building`` and
            the stand-ins are there. It is called once where the policy is made, without a preprocessor, then with one.
    """

    hub: tuple[HubNeed, ...] = ()
    flags: tuple[str, ...] = ()
    building: Callable[[Any, bool], AbstractContextManager[Sequence[str] | None]] | None = None
    settle: Callable[[Any, Any], None] = lambda _, __: None


@dataclass(frozen=True)
class Calls(Facts):
    """How a policy is called.

    Args:
        chunk: policy, preprocessed batch, options of ``predict_action_chunk`` → one chunk, (B, chunk, action dim),
            where that method alone does not give one.
        untrained: why the policy has no training forward pass.
        seldom_looks: whether its ``select_action``, which somebody has read, takes queued actions, and looks at an
            observation only in a call of the model: at the newest one, or at those that its queues hold.
    """

    chunk: Callable[[Any, dict[str, Any], Mapping[str, Any]], Tensor] | None = None
    untrained: str | None = None
    seldom_looks: bool = False


@dataclass(frozen=True)
class Unregistered(Facts):
    """The state of a policy besides its parameters and buffers.

    Args:
        outside: policy → modules that it holds but does not register: they are filled with weights and counted as its
            own are, and put in eval mode.
        memos: policy → owner and attribute of each value that it keeps from one call to the next and made with its
            weights; None stands for no such value.
    """

    outside: Callable[[Any], Sequence[Any]] = lambda _: ()
    memos: Callable[[Any], Sequence[tuple[object, str]]] = lambda _: ()
