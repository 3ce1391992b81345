"""strobe optimize: which treatments make the policy fast enough, with the same actions?

Searches for treatments (ways to make a policy faster, such as bfloat16, fused kernels or an inference engine) until a
chunk is ready in time for --target-hz. It applies one candidate at a time, runs it in alternation with the best so far,
and accepts it if it is shown to be faster and the actions stay within the limits (--guard). Exact and rounding
treatments are tried by default, lossy ones, such as fewer denoising steps, with --allow=lossy.

The answer says whether the target is reached, what each accepted treatment gains, and what else could help. The run's
folder gets a recipe.yaml with the accepted treatments, for --recipe and for the robot. Needs a policy; --dataset.* or
--env.* give it real observations. Takes 80 s on a CPU and 300 s elsewhere, up to three times as long for slow chunks:
--time_limit.

Examples:
  strobe optimize --policy.path=FOLDER --dataset.root=DATASET --target-hz 20
  strobe optimize --policy.path=FOLDER --env.type=pusht --eval.n_episodes=50 --guard "success_drop<=0.1" --allow lossy

More:
Hz are chunks per second of inference, 1000 / ms. At 20 Hz a chunk must be ready within 50 ms, one control tick at that
rate. A robot that executes several actions of each chunk, or runs asynchronously, needs less (`strobe budget`). The
target is reached if enough chunks are shown to be in time, 95 % by default (--in-time). A robot waits for each late
chunk, even if the median is short. The verdict comes from a run of the last step alone.

The search measures where the time goes, and tries candidates for the costliest part first: exact ones before rounding
ones, quick builds before slow ones. It skips dtypes that are slower on this machine (bfloat16 on some CPUs), and
candidates that save too little while the target is far. The report counts them, and --all tries them. If the arithmetic
alone takes longer than the target, the command says so at once. One closing run of all steps in alternation gives the
figures, and the recipe ends with the best step of that run.

An exact treatment must agree with the baseline up to floating-point noise (another summation order). The others may
change each action dimension by at most 0.02 σ (RMS) and 0.2 σ in any single action, and may flip no decision (a
gripper's). σ is the spread of that action dimension. --guard sets other limits. Strobe checks the last step on more
observations: other prompts, missing cameras, earlier observations again, calls with Real-Time Chunking.

A measurement ends once the faster side is clear. Strobe first tries everything together that the last
search on this machine accepted for this kind of policy. It skips candidates that earlier searches with the same
checkpoint, inputs and limits showed to be slower, to save less than 3 %, or to exceed the limits. --fresh ignores
earlier searches. If chunks take too long for single candidates (about 1 s on a CPU), all exact treatments are one step
and all rounding ones the next, and the closing run judges them.

With --eval.n_episodes Strobe also plays the result against the baseline in the simulator of --env.*: pairs of episodes
from the same start with the same noise, judged after each pair as `strobe evaluate` does. They end as soon as they show
that the policy does worse, better, or not worse by more than 10 points. If a step does worse, the recipe ends below it.
With success_drop<=0.1 in --guard, the episodes must show that the success rate falls by no more than 0.1.

With --pace=HZ all calls have gaps, as on a robot of that control rate. Gaps take time: a call every 333 ms leaves room
for 240 calls in 80 s, so raise --time_limit.

  strobe optimize --policy.type=pi05 --policy.device=cuda --target-hz 50 --guard "rms<=0.01, worst<=0.1"
  strobe optimize --policy.type=smolvla --candidate policy.num_steps=5 --start 'precision=bf16' --all
  strobe optimize --policy.type=pi05 --rtc.execution_horizon=20     with Real-Time Chunking, its guidance included
  strobe optimize --policy.type=act --policy.n_action_steps=10 --pace 30 --time_limit 300
  strobe optimize --model.type=vjepa2 --target-hz 5                 a backbone: the limits hold for its features
  strobe optimize --policy.factory=FILE.py:make --target-hz 20      a policy of another project

With --policy.factory the limits are on the policy's outputs: 0.02 σ RMS and 0.2 σ at any single number. σ is the spread
of each column of an output, over its rows and all calls. It takes 8 different rows. With fewer, give more observations,
or limits in the output's own units: --guard "largest_error<=0.001". `strobe.apply_recipe` applies the recipe in
your program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from strobe.core.cli.bounds import exclusive_minimum_bound, minimum_bound, open_interval_bound
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import take_repeated
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError, nearest
from strobe.lerobot.policies.options import FactoryOptions
from strobe.policy_cli import run_flags
from strobe.policy_cli.run_flags import GuidanceFlags, InputFlags, SamplingFlags, read_flags
from strobe.policy_cli.subject import build_study_answer, load_subject, measurement_options
from strobe.policy_cli.subject_flags import ModelFlags

if TYPE_CHECKING:
    from strobe.core.measure.guard import Guards
    from strobe.core.results.agreement import Effect
    from strobe.core.treatments.treatment import Spec, Treatment
    from strobe.ladder.results import OptimizeResult
    from strobe.ladder.settings import Aim


REFUSED = {
    f"--{name}": f"--{name} needs a single measurement: use `strobe breakdown`"
    for name in run_flags.ProfilerFlags.__dataclass_fields__
} | {
    "--recipe": "strobe optimize writes a recipe and reads none: use --start='precision=bf16, …' for the first "
    "treatments"
}


@dataclass
class EpisodeFlags:
    """Episodes that confirm a ladder."""

    # Maximum of paired episodes per task in the simulator of --env.*, one at a time, from --seed on; 0 for none.
    n_episodes: int = field(default=0, metadata=minimum_bound(0))


@dataclass
class OptimizeConfig(SamplingFlags, GuidanceFlags, InputFlags):
    """Flags of `strobe optimize`."""

    # The target, in chunks per second: a chunk must be ready within 1/target s.
    target_hz: float = field(default=20.0, metadata=exclusive_minimum_bound(0, finite=True))
    # Share of chunks that must be ready within that time to reach the target: 0.95 is 95 %.
    in_time: float = field(default=0.95, metadata=open_interval_bound(0, 1))
    # Limits on action drift from the baseline, separated by commas: rms<=0.02, worst<=0.2, p99<=0.1 (in σ, the spread
    # of each action dimension), flips<=0 (share of flipped decisions), cosine>=0.999, largest_error<=0.01,
    # mean_error<=0.005 (in the action's units), and with paired episodes success_drop<=0.1. Default:
    # floating-point noise for exact treatments, rms<=0.02, worst<=0.2, flips<=0 for others.
    guard: str = ""
    # Paired episodes, as in lerobot-eval: --eval.n_episodes=50. They come after --time_limit. With --dataset.* too, the
    # search takes its observations from the dataset.
    eval: EpisodeFlags = field(default_factory=EpisodeFlags)
    # Try all candidates, also after the target is reached, and also those that can save little on this machine.
    all: bool = False
    # Seconds for the search and the closing run; default: 80 on a CPU, 300 elsewhere, or 75 chunks if that is longer.
    # If nine tries of 25 chunks do not fit, all treatments of one effect are tried together.
    time_limit: float | None = field(default=None, metadata=exclusive_minimum_bound(0, finite=True))
    # More effects to try: lossy.
    allow: str = ""
    # Effects to try: exact,rounding,lossy; default: exact,rounding.
    effects: str = ""
    # The only treatments to try: their keys, separated by commas.
    only: str = ""
    # Treatments not to try: their keys, separated by commas.
    skip: str = ""
    # A candidate of your own, as in --variant: 'policy.num_inference_steps=5'; may be repeated. --effects does not
    # exclude it.
    candidate: list[str] = field(default_factory=list)
    # Treatments in every step, also the first, as in --variant: 'precision=bf16, channels_last=true'.
    start: str = ""
    # Ignore earlier searches on this machine for this kind of policy. Without this flag Strobe first tries everything
    # that the last one accepted, and skips candidates that it rejected (same checkpoint, inputs and limits).
    fresh: bool = False
    # Half-width of the closing run's intervals, as a fraction of each ratio to the baseline; less if a step gains less
    # than twice that.
    interval: float = field(default=0.1, metadata=exclusive_minimum_bound(0))
    # File for another copy of the recipe.
    recipe_out: Path | None = None

    @property
    def plays(self) -> bool:
        return self.eval.n_episodes > 0


def read(argv: Sequence[str]) -> OptimizeConfig:
    """Return the command's flags, checked. Raises UserError."""
    texts, rest = take_repeated(argv, "--candidate")
    config = read_flags(OptimizeConfig, rest, extra=["--candidate"], refused=REFUSED)
    config.candidate = texts
    _check_words(config)
    _check_episodes(config)
    if config.recipe_out is not None and config.recipe_out.is_dir():
        raise UserError(f"--recipe_out={config.recipe_out} is a folder: name a file")
    if config.candidate or config.start:
        with importing():
            parse_aim(config)  # makes their treatments
    return config


def _check_words(config: OptimizeConfig) -> None:
    """Check what needs no torch: keys of treatments, effects. Raises UserError."""
    from strobe.commands.variant_text import check_treatments
    from strobe.core.treatments.known import known_words

    for flag, texts in (("candidate", config.candidate), ("start", [config.start])):
        for text in texts:
            try:
                check_treatments(text)
            except UserError as error:
                raise UserError(f"--{flag} '{text}': {error}") from None
    keys = [entry.key for entry in known_words()]
    for flag, text in (("only", config.only), ("skip", config.skip)):
        for name in _names(text):
            _key(flag, name, keys)
    _effects(config)


def _guards(config: OptimizeConfig) -> Guards:
    from strobe.core.measure.guard import Guards

    try:
        return Guards.parse(config.guard)
    except UserError as error:
        raise UserError(f"--guard={error}") from None


def _check_episodes(config: OptimizeConfig) -> None:
    """Raises UserError for paired episodes that cannot be played, or a guard that lacks them."""
    guards, count = _guards(config), config.eval.n_episodes
    if guards.requested is not None:
        try:
            of = "outputs" if isinstance(config.subject, FactoryOptions) else "actions"
            guards.requested.require_figures("features" if isinstance(config.subject, ModelFlags) else of)
        except UserError as error:
            raise UserError(f"--guard={error}") from None
    if not count:
        if guards.success_drop is not None:
            raise UserError(f"--guard={config.guard}: success_drop needs episodes: add --eval.n_episodes=50")
        return
    if isinstance(config.subject, FactoryOptions):
        raise UserError("--eval.n_episodes needs a policy of LeRobot: remove it, or use --policy.path")
    if isinstance(config.subject, ModelFlags):
        raise UserError("--eval.n_episodes needs a policy: a model has no actions")
    if config.env is None:
        raise UserError("--eval.n_episodes needs a simulator: --env.type=pusht, metaworld, libero …")
    if config.rtc is not None:
        raise UserError("--eval.n_episodes plays chunk after chunk, as lerobot-eval does: remove --rtc.*")


def study(config: OptimizeConfig, live: Live) -> Studied:
    """Load the subject and climb. Raises UserError; KeyboardInterrupt before the first measurement."""
    subject = load_subject(config, live)
    from strobe.ladder.run import optimize
    from strobe.treatments.flow.rtc import RealTimeChunking, WithoutRealTimeChunking, require

    aim = parse_aim(config)
    base: list[Treatment] = []
    if config.rtc is not None:
        require(subject)
        off = not config.rtc.enabled
        base.append(WithoutRealTimeChunking() if off else RealTimeChunking(config.rtc, config.inference_delay))
    options = measurement_options(config)
    options.batch_size = config.batch_size or 1
    result, sections = optimize(subject, aim, options, base, live, "ignored" if config.fresh else "used")
    return build_study_answer(result, config, [sections], made_of=partial(recipe_files, copy=config.recipe_out))


def parse_aim(config: OptimizeConfig) -> Aim:
    """Return the target, the guard and the candidates of a climb. Raises UserError."""
    from strobe.core.treatments import catalogue
    from strobe.ladder.candidates import Choice
    from strobe.ladder.settings import Aim

    own = []
    for text in config.candidate:
        own.append(tuple(_treatments("candidate", text)))
        if not own[-1]:
            raise UserError(f"--candidate '{text}': use KEY=VALUE, such as policy.num_inference_steps=5")
    keys = [entry.key for entry in catalogue.entries()]
    return Aim(
        target_hz=config.target_hz,
        in_time=config.in_time,
        guards=_guards(config),
        choice=Choice(
            effects=_effects(config),
            only=tuple(_key("only", name, keys) for name in _names(config.only)),
            skip=tuple(_key("skip", name, keys) for name in _names(config.skip)),
            own=tuple(own),
        ),
        start=tuple(_treatments("start", config.start)),
        everything=config.all,
        time_limit=config.time_limit,
        env=config.env if config.plays else None,
        episodes=config.eval.n_episodes,
    )


def recipe_files(result: OptimizeResult, copy: Path | None) -> dict[str, bytes]:
    """Return the recipe of a finished ladder, for the run's folder; nothing if nothing was accepted.

    Args:
        copy: file for another copy. An error there is a note, so that the run is not lost.
    """
    from strobe.core.runs import recipe_file
    from strobe.ladder.answer import build_recipe

    made = build_recipe(result)
    if made is None:
        if copy is not None:
            result.notes.append(f"no recipe was written to {copy}: no treatment made the policy faster")
        return {}
    if copy is not None:
        try:
            recipe_file.dump(made, copy)
        except UserError as error:
            result.notes.append(str(error))
    return {recipe_file.NAME: recipe_file.text(made, recipe_file.NAME).encode()}


def _effects(config: OptimizeConfig) -> tuple[Effect, ...]:
    from strobe.core.results.agreement import Effect

    effects: tuple[Effect, ...] = get_args(Effect)
    wanted = [*(_names(config.effects) or ["exact", "rounding"]), *_names(config.allow)]
    for name in wanted:
        if name not in effects:
            flag = "effects" if name in _names(config.effects) else "allow"
            raise UserError(f"--{flag}={getattr(config, flag)}: no effect '{name}': {nearest(name, effects)}")
    return tuple(effect for effect in effects if effect in wanted)


def _treatments(flag: str, text: str) -> list[Spec]:
    from strobe.core.treatments import catalogue

    try:
        specs = catalogue.parse(text)
        catalogue.compose(specs)
    except UserError as error:
        raise UserError(f"--{flag} '{text}': {error}") from None
    return specs


def _key(flag: str, name: str, keys: Sequence[str]) -> str:
    """Return the key of the catalogue that ``name`` is, or begins with. Raises UserError."""
    for key in keys:
        if name == key or (key.endswith(".") and (name.startswith(key) or name == key[:-1])):
            return key
    raise UserError(f"--{flag}: no treatment '{name}': {nearest(name, keys, many=len(keys))}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


run = Command(
    "optimize",
    __doc__,
    OptimizeConfig,
    read,
    study,
    subject="policy or model",
    treatments=True,
    heavy="timed",
    common={
        "Policy and data": ("policy.path", "policy.type", "policy.size", "dataset", "env", "device"),
        "Target and limits": ("target_hz", "in_time", "guard", "eval"),
        "Search": ("time_limit", "allow", "only", "skip", "candidate", "start", "all", "fresh"),
        "Output": ("recipe_out", "output_dir"),
    },
)
