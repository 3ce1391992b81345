"""strobe optimize: a ladder to a target rate, and proof that the robot still acts the same.

Climbs from the baseline. At each rung it measures where the time goes, and tries treatments for the part that
costs most: exact ones before rounding ones, those that are quick to build before slow ones. It runs the current best
and the current best plus the candidate in alternation, and judges the paired ratio. It accepts what is shown to be
faster. All accepted treatments together must hold the guard against the baseline, on the same observations with
the same noise. One interleaved run of all rungs gives the ladder's figures. The ladder ends with the best rung of that
run, and recipe.yaml in the run's folder lists its treatments.

The target is reached when enough chunks are shown to be in time, 95 % of them by default (--in-time). A robot waits for
each late chunk, even if the median is short. The climb and its answer use the same rule. The answer rests on a run of
only the last rung.

It skips dtypes that are slower on this machine (bfloat16 on some CPUs) and treatments that save too little when the
target is far. The report counts them. If the arithmetic alone takes longer than the target, the command says so at once
and stops.

The guard knows what a treatment may do. An exact treatment must agree with the baseline as well as that policy
agrees with itself when its sums are taken in another order. The others may move each action dimension by at most 0.02
of its spread (RMS) and 0.2 at any single action, and may flip no decision (a gripper's). --guard sets other limits.
Strobe checks the last rung more closely: other prompts, missing cameras, earlier observations again, calls with
Real-Time Chunking.

A try ends as soon as it is clear which side is faster. First Strobe tries all treatments together that the last ladder
of this machine and this kind of policy accepted, and judges them like any other. It does not try what earlier ladders
of the same checkpoint, inputs and guard have shown to be slower, to save less than 3 %, or to break the guard. --fresh
ignores earlier ladders.

If chunks take too long for single tries (about 1 s on a CPU, unless you raise --time_limit), all exact treatments are
one rung and all rounding ones the next, and the closing run judges them.

Hz are chunks per second of inference, 1000 / ms. A target of 20 Hz means that a chunk is ready within 50 ms, one tick
of a control loop of 20 Hz. A robot that executes several actions of each chunk, or runs asynchronously, needs less
(`strobe budget`).

With --pace=HZ Strobe times everything with gaps between the calls, as on a robot of that control rate. Gaps take time
(a call every 333 ms leaves room for 240 calls in 80 s), so raise --time_limit.

Rounding treatments are tried by default, and lossy ones (fewer denoising steps) only with --allow=lossy, always under
the guard.

With --eval.n_episodes Strobe also plays the resulting policy against the baseline in the simulator of --env.*:
pairs of episodes from the same starts with the same noise. It judges after each pair, as `strobe evaluate` does. The
episodes end as soon as they show that the policy does worse, better, or not worse by more than 10 points. Before it
measures, the command prints what so many episodes can decide. If a rung does worse, the ladder ends below it. With
success_drop<=0.1 in the guard the ladder ends below a rung if the episodes do not show that it loses less than that.

Examples:
  strobe optimize --policy.path=FOLDER --dataset.root=DATASET --target-hz 20
  strobe optimize --policy.type=pi05 --policy.device=cuda --target-hz 50 --guard "rms<=0.01, worst<=0.1"
  strobe optimize --policy.type=diffusion --target-hz 10 --allow lossy
  strobe optimize --policy.path=FOLDER --env.type=pusht --eval.n_episodes=50 --guard "success_drop<=0.1" --allow lossy
  strobe optimize --policy.type=smolvla --candidate policy.num_steps=5 --start 'precision=bf16' --all
  strobe optimize --policy.type=pi05 --rtc.execution_horizon=20     with Real-Time Chunking on, its guidance included
  strobe optimize --policy.type=act --only precision,channels_last --time_limit 60
  strobe optimize --policy.type=act --policy.n_action_steps=10 --pace 30 --time_limit 300
  strobe optimize --model.type=vjepa2 --target-hz 5                  a backbone: its features are guarded
  strobe optimize --policy.factory=FILE.py:make --target-hz 20       a policy of another project

With --policy.factory the limits are on the policy's outputs: 0.02 σ RMS and 0.2 σ at any single number. σ is the spread
of each column of an output, over its rows and all calls. It takes 8 different rows. With fewer, give more observations,
or limits in the output's own units: --guard "largest_error<=0.001". strobe.put_on puts the recipe on the policy in your
program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from strobe.core.cli.bounds import exclusive_minimum_bound, minimum_bound, open_interval_bound
from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import take_repeated
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError, nearest
from strobe.lerobot.flags import run_flags
from strobe.lerobot.flags.run_flags import GuidanceFlags, InputFlags, SamplingFlags, SubjectFlags, read_flags
from strobe.lerobot.flags.subject import build_study_answer, load_subject, measurement_options
from strobe.lerobot.flags.subject_flags import ModelFlags
from strobe.lerobot.policies.options import FactoryOptions

if TYPE_CHECKING:
    from strobe.core.measure.guard import Guards
    from strobe.core.results.agreement import Effect
    from strobe.core.treatments.treatment import Spec, Treatment
    from strobe.ladder.results import OptimizeResult
    from strobe.ladder.settings import Aim


REFUSED = {
    f"--{name}": f"--{name} is for a single measurement: give it to `strobe breakdown`"
    for name in run_flags.ProfilerFlags.__dataclass_fields__
} | {
    "--recipe": "strobe optimize writes a recipe and reads none: give the first treatments with "
    "--start='precision=bf16, …'"
}


@dataclass
class EpisodeFlags:
    """Episodes that confirm a ladder."""

    # The most paired episodes per task in the simulator of --env.*, one at a time, starting with --seed; 0 for none.
    n_episodes: int = field(default=0, metadata=minimum_bound(0))


@dataclass
class OptimizeConfig(OutputFlags, SamplingFlags, GuidanceFlags, InputFlags):
    """Flags of `strobe optimize`."""

    # The target, in chunks per second: a chunk must be ready within 1/target s.
    target_hz: float = field(default=20.0, metadata=exclusive_minimum_bound(0, finite=True))
    # Share of chunks that must be ready within that time to reach the target: 0.95 is 95 %.
    in_time: float = field(default=0.95, metadata=open_interval_bound(0, 1))
    # Limits on the distance of the actions to the baseline's, e.g. rms<=0.02, worst<=0.2, flips<=0 (in σ, the
    # spread of each action dimension, and the share of flipped decisions); also p99 in σ, cosine>=0.999,
    # largest_error<=0.01, mean_error<=0.005 (errors in the action's own units). Separate them by commas; all must hold.
    # By default exact treatments must agree as well as reordered sums do, and the others hold the first three. With
    # paired episodes also success_drop<=0.1: the episodes must show that the success rate falls by no more than 0.1.
    guard: str = ""
    # Paired episodes, as in lerobot-eval: --eval.n_episodes=50. If you also give --dataset.*, the observations of the
    # climb come from there. The episodes take their time after --time_limit.
    eval: EpisodeFlags = field(default_factory=EpisodeFlags)
    # Try all candidates, also after the target is reached, and also those that can save little, or nothing by the
    # measured speeds of this machine.
    all: bool = False
    # Seconds for the climb and the closing run together; by default 80 on a CPU and 300 elsewhere, or the time of 45
    # chunks if that is more. If three tries of 25 chunks do not fit, treatments of one effect are tried together. The
    # closing run always takes its rounds.
    time_limit: float | None = field(default=None, metadata=exclusive_minimum_bound(0, finite=True))
    # Also try these effects: lossy.
    allow: str = ""
    # Which effects to try: exact,rounding,lossy (default: exact,rounding).
    effects: str = ""
    # Only these treatments: their keys, separated by commas.
    only: str = ""
    # Not these treatments: their keys, separated by commas.
    skip: str = ""
    # Treatments of your own to try, as in --variant: 'policy.num_inference_steps=5'; may be repeated. --effects does
    # not exclude them.
    candidate: list[str] = field(default_factory=list)
    # Treatments that every rung has, also the first, as in --variant: 'precision=bf16, channels_last=true'.
    start: str = ""
    # Ignore earlier ladders of this machine and this kind of policy. Without this flag Strobe first tries, in one try,
    # what the last ladder accepted. It does not try what a ladder of the same checkpoint, inputs and guard has shown to
    # gain too little (with --all: it tries that last).
    fresh: bool = False
    # How narrow the closing run's intervals must be: this fraction to either side of each rung's ratio to the untouched
    # policy, or half of the smallest gain of a rung, if that is less.
    interval: float = field(default=0.1, metadata=exclusive_minimum_bound(0))
    # Also write the recipe there.
    recipe_out: Path | None = None

    @property
    def plays(self) -> bool:
        return self.eval.n_episodes > 0


def read(argv: Sequence[str]) -> tuple[SubjectFlags, OptimizeConfig]:
    """Return the command's flags, checked. Raises UserError."""
    texts, rest = take_repeated(argv, "--candidate")
    flags, config = read_flags(OptimizeConfig, rest, extra=["--candidate"], refused=REFUSED)
    config.candidate = texts
    _check_words(config)
    _check_episodes(flags, config)
    if config.recipe_out is not None and config.recipe_out.is_dir():
        raise UserError(f"--recipe_out={config.recipe_out} is a folder: name a file")
    if config.candidate or config.start:
        with importing():
            parse_aim(config)  # makes their treatments
    return flags, config


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


def _check_episodes(flags: SubjectFlags, config: OptimizeConfig) -> None:
    """Raises UserError for paired episodes that cannot be played, or a guard that lacks them."""
    guards, count = _guards(config), config.eval.n_episodes
    if guards.requested is not None:
        try:
            of = "outputs" if isinstance(flags, FactoryOptions) else "actions"
            guards.requested.require_figures("features" if isinstance(flags, ModelFlags) else of)
        except UserError as error:
            raise UserError(f"--guard={error}") from None
    if not count:
        if guards.success_drop is not None:
            raise UserError(f"--guard={config.guard}: success_drop needs episodes: add --eval.n_episodes=50")
        return
    if isinstance(flags, FactoryOptions):
        raise UserError("--eval.n_episodes needs a policy of LeRobot: leave it out with --policy.factory")
    if isinstance(flags, ModelFlags):
        raise UserError("--eval.n_episodes is for policies: a model has no actions")
    if config.env is None:
        raise UserError("--eval.n_episodes needs a simulator: --env.type=pusht, metaworld, libero …")
    if config.rtc is not None:
        raise UserError("--eval.n_episodes plays chunk after chunk, as lerobot-eval does: leave out --rtc.*")


def study(flags: SubjectFlags, config: OptimizeConfig, live: Live) -> Studied:
    """Load the subject and climb. Raises UserError; KeyboardInterrupt before the first measurement."""
    subject = load_subject(flags, config, live)
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
    return build_study_answer(result, flags, config, [sections], made_of=partial(recipe_files, copy=config.recipe_out))


def parse_aim(config: OptimizeConfig) -> Aim:
    """Return the target, the guard and the candidates of a climb. Raises UserError."""
    from strobe.core.treatments import catalogue
    from strobe.ladder.candidates import Choice
    from strobe.ladder.settings import Aim

    own = []
    for text in config.candidate:
        own.append(tuple(_treatments("candidate", text)))
        if not own[-1]:
            raise UserError(f"--candidate '{text}': write KEY=VALUE, such as policy.num_inference_steps=5")
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
    """Return the recipe that a finished ladder ends in, for the run's folder; nothing where nothing was accepted.

    Args:
        copy: where the recipe is written as well. What goes wrong there is a note: the run must not be lost for it.
    """
    from strobe.core.runs import recipe_file
    from strobe.ladder.answer import build_recipe

    made = build_recipe(result)
    if made is None:
        if copy is not None:
            result.notes.append(f"no recipe was written to {copy}: nothing made the policy faster")
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
)
