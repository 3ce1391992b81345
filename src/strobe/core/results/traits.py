"""Traits of a measurement: what ran, as studies, advice and tables decide by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from strobe.core.results.data import Data, Finite

Value = str | int | float | bool | None
Facts = dict[str, Value]

# How the first call makes what later ones run: torch.compile, an engine built for a part, a graph captured; "" where
# it makes nothing.
Builds = Literal["", "compiled", "built", "captured"]


class Record(Data):
    """Base of the records below: the JSON leaves out what is as by default. A field's title is its label in reports."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields = type(self).model_fields
        defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
        return {name: value for name, value in dump(self).items() if getattr(self, name) != defaults[name]}

    def labelled(self) -> Facts:
        """Return the plain values that are set, by their labels."""
        titles = {name: field.title for name, field in type(self).model_fields.items() if field.title}
        return {title: value for name, title in titles.items() if (value := getattr(self, name)) not in (None, "")}


class RealTimeChunking(Record):
    """How Real-Time Chunking guides a chunk towards the one before it."""

    execution_horizon: int | None = Field(default=None, title="rtc.execution_horizon", description="actions")
    inference_delay: int | None = Field(default=None, title="rtc.inference_delay", description="control ticks")
    max_guidance_weight: Finite | None = Field(default=None, title="rtc.max_guidance_weight")
    prefix_attention_schedule: str = Field(default="", title="rtc.prefix_attention_schedule")


class TreatmentTraits(Record):
    """A treatment that was on."""

    key: str = Field(description="as in `--variant` and in recipes, such as 'precision'")
    value: Value = Field(default=None, description="given with the key; of amp=auto the dtype that it came to")
    part: str = Field(default="", description="path of the module that it is on; '' for the whole")
    builds: Builds = ""
    settings: dict[str, Value] = Field(
        default_factory=dict, description="of the key 'policy': fields of the policy's config, with their values"
    )
    rtc: RealTimeChunking | None = Field(default=None, description="of the key 'rtc', where it is on")
    precision: str = Field(default="", description="that an engine computes in")
    build_s: Finite | None = Field(default=None, description="seconds that its engines took to build")
    from_cache: bool | None = Field(default=None, description="whether all of its engines had been built before")
    layers: int | None = Field(default=None, description="that were quantised")
    left_out: list[str] = Field(default_factory=list, description="layers that could not be quantised, with the reason")
    lerobot_flag: str = Field(default="", description="the flag of lerobot-train that does the same")
    notes: Facts = Field(
        default_factory=dict, description="shown only: what a treatment of another package says of itself"
    )

    def labelled(self) -> Facts:
        """Return its values by the labels that reports show."""
        return {**self._value(), **self._options(), **self.notes}

    def _value(self) -> Facts:
        match self.key:
            case "policy":
                return {f"policy.{name}": value for name, value in self.settings.items()}
            case "rtc":
                return {"rtc.enabled": self.value, **(self.rtc.labelled() if self.rtc else {})}
            case "guidance":
                return {"rtc.guidance": self.value}
            case "compile":
                return {"compiled": True, **({} if self.value is None else {"compile mode": self.value})}
            case "graph":
                return {"captured": True, f"graph.{self.value}": True}
            case "accumulate":
                return {"micro-batches": self.value}
            case "fused" | "foreach" | "forloop":
                return {"optimizer": self.key}
        return {} if self.value is None else {self.key: self.value}

    def _options(self) -> Facts:
        options: Facts = {
            f"{self.key}.part": self.part,
            "engine.precision": self.precision,
            "engine build s": self.build_s,
            "engine from cache": self.from_cache,
            f"{self.key} layers": self.layers,
            f"{self.key} not": ", ".join(self.left_out),
            f"{self.key} in lerobot-train": self.lerobot_flag,
        }
        return {label: value for label, value in options.items() if value not in (None, "")}


class DelayTraining(Record):
    """How a policy is trained for the delays of Real-Time Chunking."""

    way: str | None = Field(default=None, title="delay_training", description="sampled, expanded or packed")
    prefix_attention: str | None = Field(default=None, title="prefix_attention")
    delays: int | None = Field(default=None, title="delays", description="that a sample may be trained for")


class PolicyTraits(Record):
    """The work of one call of a policy."""

    chunk_size: int | None = Field(default=None, title="chunk size", description="actions")
    trainable_tensors: int | None = Field(default=None, title="tensors requiring grad")
    delay_training: DelayTraining | None = None
    denoising_steps: int | None = Field(default=None, title="denoising steps")
    max_tokens: int | None = Field(
        default=None, title="tokens at most", description="that a policy which decodes its actions may write"
    )
    executed_actions: int | None = Field(default=None, title="executed actions", description="of a chunk")


class BackboneTraits(Record):
    """The work of one call of a backbone."""

    frames_per_clip: int = Field(title="frames per clip", description="1 for images")
    image_size: int | None = Field(default=None, title="img size", description="pixels of a side")
    tokens: int | None = Field(default=None, title="tokens", description="that were returned for each clip")
    predictor: bool | None = Field(default=None, title="predictor", description="whether the predictor runs too")


class CallTraits(Record):
    """The work of one call of a function, or of an object in Python."""

    inputs: int = Field(title="inputs", description="that the calls take in turn")


class LoaderTraits(Record):
    """The data loader of a training."""

    workers: int = Field(title="workers")
    prefetched_batches: int | None = Field(default=None, title="prefetched batches per worker")
    start_method: str | None = Field(default=None, title="start method", description="of the workers")
    video_backend: str | None = Field(default=None, title="video backend")


class LoopTraits(Record):
    """The loop of a robot: of a rollout, of a remote client or server, of teleoperation."""

    leader: str | None = Field(default=None, title="leader", description="the arm that is moved by hand")
    strategy: str | None = Field(default=None, title="strategy")
    inference: str | None = Field(default=None, title="inference", description="rtc, or sync")
    aggregation: str | None = Field(default=None, title="aggregation", description="of overlapping chunks")
    fps: Finite | None = Field(default=None, title="fps", description="control ticks per second that were set")
    multiplier: int | None = Field(default=None, title="interpolation multiplier")
    queue_threshold: int | None = Field(default=None, title="queue threshold", description="actions")
    execution_horizon: int | None = Field(default=None, title="execution horizon", description="actions")
    compiled: bool | None = Field(default=None, title="torch.compile", description="by LeRobot's own flag")
    actions_per_chunk: int | None = Field(default=None, title="actions per chunk")
    chunk_size_threshold: Finite | None = Field(default=None, title="chunk size threshold", description="0 to 1")


class Traits(Record):
    """The run as rules and studies decide by it, in typed fields; None and '' for what does not apply."""

    recipe: str = Field(default="", title="recipe", description="file whose treatments are on")
    treatments: list[TreatmentTraits] = Field(
        default_factory=list, description="in the order in which they were put on"
    )
    device: str = Field(default="", title="device", description="torch's name of it")
    batch_size: int | None = Field(default=None, title="batch size")
    policy: PolicyTraits | None = None
    backbone: BackboneTraits | None = None
    call: CallTraits | None = None
    loader: LoaderTraits | None = None
    loop: LoopTraits | None = None
    trained_share: Finite | None = Field(
        default=None, title="trained share", description="of the policy's parameters, 0 to 1"
    )
    build_s: Finite | None = Field(
        default=None, title="build s", description="seconds of the first call beyond those of a later one"
    )
    notes: Facts = Field(default_factory=dict, description="shown only: what nothing above has a field for")

    def treatment(self, key: str) -> TreatmentTraits | None:
        """Return the treatment written ``key``; of several, the one that was put on last."""
        return next((treatment for treatment in reversed(self.treatments) if treatment.key == key), None)

    def setting(self, name: str) -> Value:
        """Return what a treatment set the policy's field ``name`` to; None where none did."""
        return next(
            (treatment.settings[name] for treatment in reversed(self.treatments) if name in treatment.settings), None
        )

    @property
    def compiled(self) -> bool:
        """Whether a treatment compiles the subject or a part of it."""
        return any(treatment.builds == "compiled" for treatment in self.treatments)

    @property
    def rtc(self) -> RealTimeChunking | None:
        """Real-Time Chunking, where a treatment has it on."""
        treatment = self.treatment("rtc")
        return treatment.rtc if treatment is not None else None

    @property
    def delay_training(self) -> DelayTraining | None:
        """How the policy's delays are trained; None where they are not."""
        return self.policy.delay_training if self.policy is not None else None

    @property
    def denoising_steps(self) -> int | None:
        """The policy's number of denoising steps; None where it has none."""
        return self.policy.denoising_steps if self.policy is not None else None

    @property
    def chunk_size(self) -> int | None:
        """Actions of a chunk; None where the policy has no chunks."""
        return self.policy.chunk_size if self.policy is not None else None

    def without(self, *keys: str) -> Traits:
        """Return what was given, without the treatments ``keys``: equal for two that differ in these alone.

        What a run finds by itself (how long a build took, whether it came from a cache) is left out.
        """
        unmeasured = {"build_s": None, "from_cache": None}
        given = [treatment.model_copy(update=unmeasured) for treatment in self.treatments if treatment.key not in keys]
        return self.model_copy(update={"treatments": given, "build_s": None})

    def labelled(self) -> Facts:
        """Return all values by the labels that reports show, in their order."""
        own = super().labelled()
        watched = [record for record in (self.loader, self.loop) if record is not None]
        work = (self.policy, self.delay_training, self.backbone, self.call)
        shown = {"recipe": self.recipe} if self.recipe else {}
        shown |= dict(self._of_treatments())
        shown |= {label: own[label] for label in ("device",) if label in own and not watched}
        shown |= {label: own[label] for label in ("batch size",) if label in own}
        for record in (*work, *watched):
            shown |= record.labelled() if record is not None else {}
        return {**shown, **own, **self.notes}

    def _of_treatments(self) -> Iterator[tuple[str, Value]]:
        """Yield each label once: values on several parts as one text; on one part the last counts."""
        by_label: dict[str, dict[str, Value]] = {}
        for treatment in self.treatments:
            for label, value in treatment.labelled().items():
                by_label.setdefault(label, {})[treatment.part] = value
        for label, by_part in by_label.items():
            values = list(dict.fromkeys(by_part.values()))
            yield label, values[0] if len(values) == 1 else ", ".join(map(str, values))
