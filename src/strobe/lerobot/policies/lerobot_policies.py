"""Load a policy with its processors: from a checkpoint, or from a type with random weights."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import draccus
import torch
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION
from lerobot.utils.import_utils import register_third_party_plugins

from strobe.core.devices.accelerators import check_device, generators_restored
from strobe.core.errors import UserError, nearest
from strobe.core.families.capabilities import Construction, InputFacts
from strobe.core.families.registry import building, find_family, find_package, record_package, unregistered_modules
from strobe.core.results.subject import SubjectInfo
from strobe.core.subjects.subject import count
from strobe.lerobot.policies import checkpoints
from strobe.lerobot.policies.build import FastBuildError, build_fast, shrink
from strobe.lerobot.policies.inputs import Inputs
from strobe.lerobot.policies.standins import add_zoo_line, missing_zoo_line, stand_ins
from strobe.lerobot.processors import (
    POSTPROCESSOR,
    PREPROCESSOR,
    Difference,
    compare_steps,
    lacking_normalisation,
    refuse_unnormalised,
)
from strobe.lerobot.quiet import quiet
from strobe.lerobot.refusals import convert_errors, first_line, is_hub_error, make_refusal
from strobe.lerobot.versions import describe_untried

_BY_STROBE: ContextVar[bool] = ContextVar("by_strobe", default=False)


@contextlib.contextmanager
def mark_strobe_loading() -> Iterator[None]:
    """Mark checkpoints that are loaded inside as Strobe's own: its plug-in applies no recipe to them."""
    token = _BY_STROBE.set(True)
    try:
        yield
    finally:
        _BY_STROBE.reset(token)


def is_strobe_loading() -> bool:
    """Return whether Strobe itself is loading the policy."""
    return _BY_STROBE.get()


@dataclass
class Loaded:
    """A policy in eval mode on its device, with its preprocessor and postprocessor.

    Args:
        read: names of its weights as they were read from a checkpoint; None for random ones.
        differences: how a checkpoint's processors differ from those that LeRobot makes for its config.
    """

    policy: PreTrainedPolicy
    preprocessor: Any
    postprocessor: Any
    info: SubjectInfo
    notes: list[str] = field(default_factory=list)
    read: checkpoints.ReadNames | None = None
    differences: list[Difference] = field(default_factory=list)


def config_from_path(path: str | Path, overrides: Sequence[str] = (), revision: str | None = None) -> PreTrainedConfig:
    """Return the config of a checkpoint (a folder or a Hub id), with overrides as on LeRobot's command line.

    ``overrides`` are ``--name=value``. Raises UserError for a path without a checkpoint, an unknown type or override,
    and a missing device.
    """
    known_types()
    folder = checkpoints.locate(path, revision)
    check_device(_device(overrides))
    with quiet(), _parsing(f"{path}/config.json"):
        config = checkpoints.read_config(folder)
        if overrides:
            _check_names(type(config), overrides)
            config = checkpoints.read_config(folder, overrides)
    config.pretrained_path = folder
    return config


@add_zoo_line
def config_from_type(kind: str, overrides: Sequence[str] = ()) -> PreTrainedConfig:
    """Return the config of a policy type, LeRobot's own or a plug-in's, with overrides as on LeRobot's command line.

    Raises UserError for an unknown type or override, and a missing device.
    """
    if kind not in known_types():
        raise UserError(f"no policy type '{kind}': {nearest(kind, known_types())}")
    check_device(_device(overrides))
    choice = PreTrainedConfig.get_choice_class(kind)
    _check_names(choice, overrides)
    named = {override.partition("=")[0] for override in overrides}
    fields = {f"--{field.name}" for field in dataclasses.fields(choice)}
    flags = [
        flag
        for flag in Construction.from_family(find_family(kind)).flags
        if (name := flag.partition("=")[0]) not in named and name.partition(".")[0] in fields
    ]
    with quiet(), _parsing(f"--policy.type={kind}"):
        return draccus.parse(choice, args=[*flags, *overrides])


def known_types() -> list[str]:
    """Return the policy types of LeRobot and the installed plug-ins."""
    _register_plugins()
    return sorted(PreTrainedConfig.get_known_choices())


@functools.cache
def _register_plugins() -> None:
    """Register LeRobot's plug-ins, once, because that reads the metadata of every installed package."""
    with quiet():
        register_third_party_plugins()


@add_zoo_line
def load(
    config: PreTrainedConfig,
    inputs: Inputs,
    *,
    size: Literal["full", "tiny"] = "full",
    seed: int = 0,
    rename: dict[str, str] | None = None,
) -> Loaded:
    """Build the policy of ``config``, or read it from its ``pretrained_path``, and fit it to ``inputs``.

    With random weights the features are those of the inputs, the weights depend on ``seed`` alone, and the processors
    use the inputs' statistics. ``rename`` maps the inputs' names to the policy's. ``config`` is changed to match the
    policy. Raises UserError if inputs and policy do not match, an extra is not installed, or the checkpoint is
    incomplete.
    """
    kind, tiny = config.type, size == "tiny"
    family = find_family(kind)
    random = config.pretrained_path is None
    notes = [*filter(None, [describe_untried(), missing_zoo_line(kind)]), *inputs.notes]
    if tiny:
        shrink(config)
    _fit_features(config, inputs, rename or {}, notes)
    if random and getattr(config, "pretrained_backbone_weights", None):
        notes.append("the backbone's pretrained weights were not loaded: all weights are random")
        config.pretrained_backbone_weights = None  # pyright: ignore[reportAttributeAccessIssue]
    with (
        quiet() as warned,
        stand_ins(kind, random_weights=random, tiny=tiny) as stood_in,
        convert_errors(kind),
        building(config, tiny) if random or tiny else contextlib.nullcontext() as made_up,
    ):
        policy, read = _construct(config, inputs, seed, notes)
        preprocessor, postprocessor = _processors(config, inputs)
        differences = [] if random else compare_processors(config, preprocessor, postprocessor)
        Construction.from_family(family).settle(policy, preprocessor)
    unregistered = unregistered_modules(policy)
    for step in preprocessor.steps:
        if rename and hasattr(step, "rename_map"):
            step.rename_map = dict(rename)
    for module in (policy, *unregistered):
        module.eval()
    info = SubjectInfo(
        name=kind if config.pretrained_path is None else checkpoints.source(config.pretrained_path).split("/")[-1],
        kind=kind,
        source="random weights" if random else checkpoints.source(Path(str(config.pretrained_path))),
        size=size,
        inputs=inputs.description,
        stand_ins=_group_notes([*stood_in, *(made_up or ())]),
        **facts_of_type(config),
        **count(policy, *unregistered),
    )
    notes += [n for n in warned if n not in notes]
    notes += refuse_unnormalised(differences, info.source)
    return Loaded(policy, preprocessor, postprocessor, info, notes, read, differences)


def adopt(policy: PreTrainedPolicy, path: str | Path | None, inputs: Inputs | None = None) -> Loaded:
    """Return a policy that was built already, with the processors of the checkpoint at ``path``.

    None for ``path``: of the checkpoint that its config names, else with those that LeRobot makes for ``inputs``.
    Raises UserError without processors.
    """
    config: Any = policy.config
    path = path or config.pretrained_path
    with quiet() as warned, stand_ins(config.type, random_weights=path is None), convert_errors(config.type):
        assert path is not None or inputs is not None
        made = _saved_processors(config, path) if path is not None else _processors(config, inputs)  # type: ignore[arg-type]
    source = checkpoints.source(Path(path)) if path is not None else "an object in Python"
    info = SubjectInfo(
        name=source.split("/")[-1] if path is not None else config.type,
        kind=config.type,
        source=source,
        inputs="none",
        stand_ins=[],
        **facts_of_type(config),
        **count(policy, *unregistered_modules(policy)),
    )
    return Loaded(policy, *made, info, list(warned))


def _construct(
    config: PreTrainedConfig, inputs: Inputs, seed: int, notes: list[str]
) -> tuple[PreTrainedPolicy, checkpoints.ReadNames | None]:
    """Return the policy, and the names of its weights in its checkpoint; None for random weights."""
    choice: Any = get_policy_class(config.type)
    folder, family = config.pretrained_path, find_family(config.type)
    make: Callable[[], Any]
    read: list[checkpoints.ReadNames | None] = [None]
    if folder is None:
        arguments = _accepted_arguments(choice, {"dataset_stats": inputs.stats, "dataset_meta": inputs.meta})

        def make() -> Any:
            policy = choice(config=config, **arguments)
            Construction.from_family(family).settle(policy, None)  # before its weights are made: they must fit
            return policy

    elif config.use_peft:
        raise UserError(f"{folder} is a PEFT adapter; merge it into its base policy and use that folder")
    else:

        def make() -> Any:
            with mark_strobe_loading(), checkpoints.watch_loading(choice, Path(folder)) as read[0]:
                return choice.from_pretrained(folder, config=config)

    try:
        built: Any = build_fast(
            make, config.device or "cpu", seed, outside=unregistered_modules, known=family is not None
        )
        return built, read[0]
    except FastBuildError as error:
        notes.append(f"built in the usual, slower way: {error}")
        with generators_restored(torch.device(config.device or "cpu")):
            torch.manual_seed(seed)
            return make().to(config.device), read[0]


def _accepted_arguments(choice: type, arguments: Mapping[str, object]) -> dict[str, Any]:
    parameters = inspect.signature(choice).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(arguments)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in arguments.items() if name in names}


def _processors(config: PreTrainedConfig, inputs: Inputs) -> tuple[Any, Any]:
    if config.pretrained_path is None:
        return make_pre_post_processors(config, dataset_stats=inputs.stats, dataset_meta=inputs.meta)
    return _saved_processors(config, config.pretrained_path)


def _saved_processors(config: PreTrainedConfig, folder: str | Path) -> tuple[Any, Any]:
    try:
        return make_pre_post_processors(
            config,
            pretrained_path=str(folder),
            preprocessor_overrides={"device_processor": {"device": str(config.device)}},
        )
    except (FileNotFoundError, KeyError) as error:
        raise UserError(
            f"the processors of {checkpoints.source(Path(folder))} cannot be read "
            f"({first_line(error)}); a checkpoint has policy_preprocessor.json and policy_postprocessor.json"
        ) from error


def compare_processors(config: PreTrainedConfig, preprocessor: Any, postprocessor: Any) -> list[Difference]:
    """Return how a checkpoint's processors differ from those that LeRobot makes for its config.

    Where LeRobot cannot make them without the Hub or the data, their normalisation alone is compared.
    """
    own = {PREPROCESSOR: _steps(preprocessor), POSTPROCESSOR: _steps(postprocessor)}
    sides = {"input_features": config.input_features, "output_features": config.output_features}
    modes = getattr(config, "normalization_mapping", None) or {}
    asked = {
        "normalization_mapping": {_text(kind): _text(mode) for kind, mode in modes.items()},
        **{side: {name: {"type": _text(each.type)} for name, each in (features or {}).items()}
           for side, features in sides.items()},
    }  # fmt: skip
    found = [each for place, steps in own.items() for each in lacking_normalisation(asked, place, steps)]
    try:
        made = make_pre_post_processors(config)
    except Exception:
        return found
    for (place, steps), pipeline in zip(own.items(), made, strict=True):
        found += compare_steps(place, steps, _steps(pipeline))
    return found


def _text(value: object) -> str:
    return str(getattr(value, "value", value))


def _steps(pipeline: Any) -> list[tuple[str, Mapping[str, Any]]]:
    listed = pipeline.get_config()["steps"]
    return [(str(each.get("registry_name") or each.get("class")), each.get("config") or {}) for each in listed]


def _fit_features(config: PreTrainedConfig, inputs: Inputs, rename: dict[str, str], notes: list[str]) -> None:
    if config.pretrained_path is None:
        features = {rename.get(key, key): feature for key, feature in inputs.features.items()}
        actions = {key: feature for key, feature in features.items() if feature.type is FeatureType.ACTION}
        config.output_features = config.output_features or actions
        if not config.input_features:
            config.input_features = {key: feature for key, feature in features.items() if key not in actions}
        _describe_dataset(config, inputs.meta)
    with convert_errors(config.type):
        config.validate_features()
    notes += check_features(config, inputs, rename)


def check_features(config: PreTrainedConfig, inputs: Inputs, rename: dict[str, str] | None = None) -> list[str]:
    """Return, in words, differences of ``inputs`` from the policy's features that still work.

    Raises UserError for a missing feature or a wrong shape.
    """
    notes: list[str] = []
    offered = {(rename or {}).get(key, key): feature for key, feature in inputs.features.items()}
    fills = InputFacts.from_family(find_family(config.type)).fills_cameras
    has_camera = any(key in offered for key in config.image_features)
    for key, needed in ((config.input_features or {}) | (config.output_features or {})).items():
        if key in offered:
            _check_shape(config, key, needed, offered[key], inputs, notes)
        elif needed.type is FeatureType.VISUAL and fills and has_camera:
            notes.append(f"{key} is not among the inputs: the policy gets an empty image instead")
        else:
            candidates = [k for k, feature in offered.items() if feature.type is needed.type]
            raise UserError(
                f"the policy needs '{key}', which {inputs.description} lack"
                + (f"; use --rename_map to rename one of {', '.join(candidates)}" if candidates else "")
            )
    return notes


def _check_shape(
    config: PreTrainedConfig,
    key: str,
    needed: PolicyFeature,
    offered: PolicyFeature,
    inputs: Inputs,
    notes: list[str],
) -> None:
    want, have = tuple(needed.shape), tuple(offered.shape)
    if needed.type is FeatureType.VISUAL:
        if want[0] != have[0]:
            raise UserError(f"'{key}': the policy needs {want[0]} channels, {inputs.description} have {have[0]}")
        if want != have:
            notes.append(f"{key} is {_format_shape(have)} in the inputs; the policy expects {_format_shape(want)}")
        return
    if want != have:
        raise UserError(
            f"'{key}': the policy needs {_format_shape(want)} values, {inputs.description} have {_format_shape(have)}"
        )
    most = getattr(config, "max_action_dim" if key == ACTION else "max_state_dim", None)
    if most is not None and have[0] > most:
        raise UserError(f"'{key}' has {have[0]} values, more than the policy's limit of {most}; increase that limit")


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _describe_dataset(config: PreTrainedConfig, meta: Any) -> None:
    # As LeRobot's make_policy does for a new policy.
    if hasattr(config, "action_feature_names"):
        names = meta.features.get(ACTION, {}).get("names")
        config.action_feature_names = list(names) if names else None  # pyright: ignore[reportAttributeAccessIssue]
    describe = getattr(config, "set_dataset_feature_metadata", None)
    if callable(describe):
        describe(meta.features)


def facts_of_type(config: Any) -> dict[str, Any]:
    """Return facts about a type of policy, fields of `SubjectInfo`: what findings need, and where it comes from."""
    return {"compilable": hasattr(config, "compile_model"), "packages": packages_of_type(config.type)}


def packages_of_type(kind: str) -> dict[str, str]:
    """Return distribution → version of the packages of others that bring the type ``kind`` and its record."""
    config = PreTrainedConfig.get_known_choices().get(kind)
    found = find_package(config.__module__) if config is not None else None
    return dict([found] if found is not None else []) | record_package(kind)


def _group_notes(notes: Sequence[str]) -> list[str]:
    """Join notes that differ in the first word: 'config X: why', 'tokenizer X: why' → 'config and tokenizer X: why'."""
    by_rest: dict[str, list[str]] = {}
    for note in notes:
        what, _, rest = note.partition(" ")
        by_rest.setdefault(rest, []).append(what)
    return [f"{' and '.join(whats)} {rest}" for rest, whats in by_rest.items()]


def _device(overrides: Sequence[str]) -> str | None:
    named = [o.partition("=")[2] for o in overrides if o.startswith("--device=")]
    return named[-1] if named and named[-1].lower() not in ("null", "none", "") else None


def _check_names(choice: type, overrides: Sequence[str]) -> None:
    names = [f.name for f in dataclasses.fields(choice)]
    for override in overrides:
        name, _, value = override.removeprefix("--").partition("=")
        if not override.startswith("--") or not value:
            raise UserError(f"'{override}' must be --name=value")
        if name.partition(".")[0] not in names:
            raise UserError(f"no flag --policy.{name}: {nearest(name.partition('.')[0], names)}")


@contextlib.contextmanager
def _parsing(what: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        match = re.search(r"Policy type '([^']*)'", str(error))
        if match:
            raise UserError(f"{what} is of an unknown type '{match[1]}': {nearest(match[1], known_types())}") from error
        if is_hub_error(error):
            raise make_refusal(error, what) from error
        # draccus wraps errors of the config's own checks and its class.
        cause = error.__cause__ if isinstance(error.__cause__, (ValueError, TypeError, NotImplementedError)) else error
        missing = re.search(r"Missing required field\(s\) `(\w+)`", str(cause))
        how = f"; give --policy.{missing[1]}=" if missing else ""
        raise UserError(f"{what} cannot be read as a policy's config: {first_line(cause)}{how}") from error
