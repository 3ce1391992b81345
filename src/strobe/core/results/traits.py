"""Traits of a measurement: what ran, as studies, advice and tables decide by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from strobe.core.results.data import Data, Finite, many, mapping, optional
from strobe.core.results.units import count

Value = str | int | float | bool | None
Facts = dict[str, Value]

# How the first call makes what later ones run: torch.compile, an engine built for a part, a graph captured; "" where
# it makes nothing.
Builds = Literal["", "compiled", "built", "captured"]


class Record(Data):
    """Base of the records below: the JSON leaves out what is as by default. A field's title is its label in reports."""

    @model_serializer(mode="wrap")
    def _drop_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields = type(self).model_fields
        defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
        return {name: value for name, value in dump(self).items() if getattr(self, name) != defaults[name]}

    def labelled_values(self) -> Facts:
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

    key: str = Field(description="key in `--variant` and in recipes, such as 'precision'")
    value: Value = optional("value of the key; for amp=auto the resulting dtype")
    part: str = Field(default="", description="path of the treated module; '' for the whole")
    builds: Builds = ""
    settings: dict[str, Value] = mapping("for the key 'policy': changed fields of the policy's config")
    rtc: RealTimeChunking | None = optional("settings of RTC, for the key 'rtc'")
    precision: str = Field(default="", description="dtype in which an engine computes")
    build_s: Finite | None = optional("seconds to build its engines")
    from_cache: bool | None = optional("all engines came from the cache")
    engines: int | None = optional("number of TensorRT engines that it was cut into")
    torch_partitions: int | None = optional("parts between these engines that torch computes")
    torch_operators: list[str] = many("torch's operators in these, each once")
    captures: int | None = optional("CUDA graphs captured so far: one for each shape of inputs")
    capture_s: Finite | None = optional("seconds of these captures with their warm-ups")
    layers: int | None = optional("number of quantised layers")
    left_out: list[str] = many("layers that could not be quantised, with the reason")
    lerobot_flag: str = Field(default="", description="the flag of lerobot-train that does the same")
    package: str = Field(default="", description="name and version of the package of others that brings it")
    notes: Facts = mapping("for display only: notes of a treatment from another package")

    def labelled_values(self) -> Facts:
        """Return its values by the labels that reports show."""
        return {**self._value(), **self._options(), **self.notes}

    def _value(self) -> Facts:
        match self.key:
            case "policy":
                return {f"policy.{name}": value for name, value in self.settings.items()}
            case "rtc":
                return {"rtc.enabled": self.value, **(self.rtc.labelled_values() if self.rtc else {})}
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
            "engine partitions": self._partitions(),
            "graph captures": self.captures,
            "graph capture s": self.capture_s,
            f"{self.key} layers": self.layers,
            f"{self.key} not": ", ".join(self.left_out),
            f"{self.key} in lerobot-train": self.lerobot_flag,
            f"{self.key} from": self.package,
        }
        return {label: value for label, value in options.items() if value not in (None, "")}

    def _partitions(self) -> str | None:
        """Return the engines and what torch computes between them, in words; None if nothing was cut."""
        if self.engines is None:
            return None
        engines = count(self.engines, "engine")
        if not self.torch_partitions:
            return f"{engines}, nothing in torch"
        return f"{engines}, {count(self.torch_partitions, 'partition')} in torch ({', '.join(self.torch_operators)})"


class DelayTraining(Record):
    """How a policy is trained for the delays of Real-Time Chunking."""

    way: str | None = Field(default=None, title="delay_training", description="sampled, expanded or packed")
    prefix_attention: str | None = Field(default=None, title="prefix_attention")
    delays: int | None = Field(default=None, title="delays", description="delays that a sample may be trained for")


class PolicyTraits(Record):
    """The work of one call of a policy."""

    chunk_size: int | None = Field(default=None, title="chunk size", description="number of actions in a chunk")
    trainable_tensors: int | None = Field(default=None, title="tensors requiring grad")
    delay_training: DelayTraining | None = None
    denoising_steps: int | None = Field(default=None, title="denoising steps")
    max_tokens: int | None = Field(
        default=None, title="tokens at most", description="most tokens that such a policy may write"
    )
    executed_actions: int | None = Field(default=None, title="executed actions", description="actions of a chunk")
    tensor_float: bool | None = Field(
        default=None, title="TF32", description="products of float32 of a training step are in TF32; None off CUDA"
    )
    cudnn_benchmark: bool | None = Field(
        default=None, title="cudnn.benchmark", description="cuDNN tries its algorithms for a training step"
    )

    @property
    def settings(self) -> str | None:
        """The process settings of a training step, in words."""
        if self.tensor_float is None:
            return None
        on = {True: "on", False: "off", None: "off"}
        return (
            f"in the training step TF32 for products of float32 is {on[self.tensor_float]} and cudnn.benchmark "
            f"{on[self.cudnn_benchmark]}: lerobot-train has both on, a rollout neither"
        )


class BackboneTraits(Record):
    """The work of one call of a backbone."""

    frames_per_clip: int = Field(title="frames per clip", description="frames in a clip; 1 for images")
    image_size: int | None = Field(default=None, title="img size", description="pixels of a side")
    tokens: int | None = Field(default=None, title="tokens", description="tokens returned for each clip")
    predictor: bool | None = Field(default=None, title="predictor", description="the predictor runs too")


class CallTraits(Record):
    """The work of one call of a function, or of an object in Python."""

    inputs: int = Field(title="inputs", description="number of inputs that the calls take in turn")


class LoaderTraits(Record):
    """The data loader of a training."""

    workers: int = Field(title="workers")
    prefetched_batches: int | None = Field(default=None, title="prefetched batches per worker")
    start_method: str | None = Field(default=None, title="start method", description="how workers are started")
    video_backend: str | None = Field(default=None, title="video backend")


class LoopTraits(Record):
    """The loop of a robot: of a rollout, of a remote client or server, of teleoperation."""

    leader: str | None = Field(default=None, title="leader", description="arm that a person moves by hand")
    strategy: str | None = Field(default=None, title="strategy")
    inference: str | None = Field(default=None, title="inference", description="rtc, or sync")
    aggregation: str | None = Field(default=None, title="aggregation", description="way to combine overlapping chunks")
    fps: Finite | None = Field(default=None, title="fps", description="requested control ticks per second")
    multiplier: int | None = Field(default=None, title="interpolation multiplier")
    queue_threshold: int | None = Field(default=None, title="queue threshold", description="number of actions")
    execution_horizon: int | None = Field(default=None, title="execution horizon", description="number of actions")
    compiled: bool | None = Field(default=None, title="torch.compile", description="compiled by LeRobot's own flag")
    actions_per_chunk: int | None = Field(default=None, title="actions per chunk")
    chunk_size_threshold: Finite | None = Field(default=None, title="chunk size threshold", description="0 to 1")


class Traits(Record):
    """The run as rules and studies decide by it, in typed fields; None and '' for what does not apply."""

    recipe: str = Field(default="", title="recipe", description="file of the applied treatments")
    treatments: list[TreatmentTraits] = many("treatments, in the order in which they were applied")
    device: str = Field(default="", title="device", description="torch's name of the device")
    batch_size: int | None = Field(default=None, title="batch size")
    policy: PolicyTraits | None = None
    backbone: BackboneTraits | None = None
    call: CallTraits | None = None
    loader: LoaderTraits | None = None
    loop: LoopTraits | None = None
    trained_share: Finite | None = Field(
        default=None, title="trained share", description="share of the policy's parameters that is trained, 0 to 1"
    )
    build_s: Finite | None = Field(default=None, title="build s", description="extra seconds of the first call")
    notes: Facts = mapping("for display only: what no field above holds")

    def treatment(self, key: str) -> TreatmentTraits | None:
        """Return the treatment written ``key``; of several, the one that was applied last."""
        return next((treatment for treatment in reversed(self.treatments) if treatment.key == key), None)

    def setting(self, name: str) -> Value:
        """Return what a treatment set the policy's field ``name`` to; None if none did."""
        return next(
            (treatment.settings[name] for treatment in reversed(self.treatments) if name in treatment.settings), None
        )

    @property
    def is_compiled(self) -> bool:
        """Whether a treatment compiles the subject or a part of it."""
        return any(treatment.builds == "compiled" for treatment in self.treatments)

    @property
    def rtc(self) -> RealTimeChunking | None:
        """Real-Time Chunking, where a treatment has it on."""
        treatment = self.treatment("rtc")
        return treatment.rtc if treatment is not None else None

    @property
    def delay_training(self) -> DelayTraining | None:
        """How the policy's delays are trained; None if they are not."""
        return self.policy.delay_training if self.policy is not None else None

    @property
    def denoising_steps(self) -> int | None:
        """The policy's number of denoising steps; None if it has none."""
        return self.policy.denoising_steps if self.policy is not None else None

    @property
    def chunk_size(self) -> int | None:
        """Actions of a chunk; None if the policy has no chunks."""
        return self.policy.chunk_size if self.policy is not None else None

    @property
    def tensor_float(self) -> bool:
        """Whether a training step's products of float32 were in TF32."""
        return self.policy is not None and bool(self.policy.tensor_float)

    def drop_treatments(self, *keys: str) -> Traits:
        """Return what was given, without the treatments ``keys``: equal for two that differ in these alone.

        What a run finds by itself (how long a build took, whether it came from a cache) is left out, and so is what the
        treatments make of the process.
        """
        unmeasured = {"build_s": None, "from_cache": None, "captures": None, "capture_s": None}
        given = [treatment.model_copy(update=unmeasured) for treatment in self.treatments if treatment.key not in keys]
        unset = {"tensor_float": None, "cudnn_benchmark": None}
        policy = self.policy.model_copy(update=unset) if self.policy is not None else None
        return self.model_copy(update={"treatments": given, "build_s": None, "policy": policy})

    def labelled_values(self) -> Facts:
        """Return all values by the labels that reports show, in their order."""
        own = super().labelled_values()
        watched = [record for record in (self.loader, self.loop) if record is not None]
        work = (self.policy, self.delay_training, self.backbone, self.call)
        shown = {"recipe": self.recipe} if self.recipe else {}
        shown |= dict(self._treatment_values())
        shown |= {label: own[label] for label in ("device",) if label in own and not watched}
        shown |= {label: own[label] for label in ("batch size",) if label in own}
        for record in (*work, *watched):
            shown |= record.labelled_values() if record is not None else {}
        return {**shown, **own, **self.notes}

    def _treatment_values(self) -> Iterator[tuple[str, Value]]:
        """Yield each label once: values on several parts as one text; on one part the last counts."""
        by_label: dict[str, dict[str, Value]] = {}
        for treatment in self.treatments:
            for label, value in treatment.labelled_values().items():
                by_label.setdefault(label, {})[treatment.part] = value
        for label, by_part in by_label.items():
            values = list(dict.fromkeys(by_part.values()))
            yield label, values[0] if len(values) == 1 else ", ".join(map(str, values))
