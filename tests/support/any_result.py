"""Strategies for any valid result: pydantic's own bounds, hypothesis's imagination."""

from __future__ import annotations

from datetime import UTC

from hypothesis import strategies as st

from strobe.results import sweep
from strobe.results.agreement import Agreement, Check, DimensionAgreement, Yardstick
from strobe.results.answer import BreakdownResult, CompareResult, OptimizeResult, TrainResult, VerifyResult
from strobe.results.cadence import Cadence
from strobe.results.comparison import Comparison, Verdict
from strobe.results.data import Interval, Samples, Summary
from strobe.results.episodes import Episode, EpisodePair, PairedEpisodes
from strobe.results.evaluate import EvaluateResult
from strobe.results.evaluation import (
    CallTimes,
    Decision,
    EvaluatedVariant,
    LoopTimes,
    PairedRates,
    SuccessRate,
    VariantOnTask,
)
from strobe.results.finding import Finding
from strobe.results.in_time import InTime
from strobe.results.ladder import Ladder, Need, Rung, Try
from strobe.results.limit import Limit, Lower, PartLimit
from strobe.results.machine import Ceiling, Machine
from strobe.results.measurement import Component, Measurement, Memory, Span
from strobe.results.profiles import GapCause, Gaps, OperatorProfile, OperatorTime, PythonFunction, PythonProfile
from strobe.results.subject import SubjectInfo
from strobe.results.training import LoaderPart, LoaderWorker, Rank, Stall, Training
from strobe.results.traits import (
    BackboneTraits,
    DelayTraining,
    LoaderTraits,
    LoopTraits,
    PolicyTraits,
    RealTimeChunking,
    Traits,
    TreatmentTraits,
)

TEXT = st.text(max_size=20)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
TIME = st.floats(min_value=0, max_value=1e7)
COUNT = st.integers(min_value=0, max_value=2**60)
SCALAR = st.one_of(TEXT, st.booleans(), st.integers(-(2**53), 2**53), NUMBER, st.none())
NUMBERS = st.lists(TIME, max_size=5)
TEXTS = st.lists(TEXT, max_size=3)


def maybe(strategy):
    return st.none() | strategy


intervals = st.builds(Interval, low=NUMBER, high=NUMBER, level=st.floats(0.5, 0.999))
summaries = st.builds(
    Summary,
    n=COUNT,
    median=TIME,
    interval=maybe(intervals),
    mean=TIME,
    std=TIME,
    min=TIME,
    max=TIME,
    p95=TIME,
)
samples = st.builds(Samples, warmup=NUMBERS, values=NUMBERS, summary=summaries, notes=TEXTS)
components = st.builds(
    Component,
    path=st.lists(TEXT, min_size=1, max_size=4),
    other=st.booleans(),
    calls=TIME,
    values=NUMBERS,
    summary=summaries,
    share=st.floats(0, 1),
    host_ms=maybe(TIME),
    gflop=maybe(TIME),
    gflop_by_dtype=st.dictionaries(TEXT, TIME, max_size=2),
    moved_bytes=maybe(COUNT),
    ceiling_share=maybe(st.floats(0, 2)),
    weight_bytes=maybe(COUNT),
    kept_bytes=maybe(st.integers(-(2**60), 2**60)),
    peak_bytes=maybe(COUNT),
)
part_limits = st.builds(
    PartLimit,
    part=TEXT,
    ms=TIME,
    gflop=st.dictionaries(TEXT, TIME, max_size=2),
    moved_bytes=maybe(COUNT),
    compute_ms=TIME,
    memory_ms=TIME,
    least_ms=TIME,
    bound=st.sampled_from(["compute", "memory", ""]),
)
limits = st.builds(
    Limit,
    dtype=TEXT,
    parts=st.lists(part_limits, max_size=3),
    ceiling_share=st.floats(0, 2),
    least_ms=TIME,
    lower=st.lists(st.builds(Lower, dtype=TEXT, least_ms=TIME), max_size=2),
)
spans = st.builds(Span, name=TEXT, start_ms=TIME, duration_ms=TIME, depth=st.integers(0, 9), thread=TEXT)
treatments = st.builds(
    TreatmentTraits,
    key=TEXT | st.sampled_from(["rtc", "compile", "graph", "policy", "precision", "fused"]),
    value=SCALAR,
    part=TEXT,
    builds=st.sampled_from(["", "compiled", "built", "captured"]),
    settings=st.dictionaries(TEXT, SCALAR, max_size=2),
    rtc=maybe(st.builds(RealTimeChunking, execution_horizon=maybe(COUNT), max_guidance_weight=maybe(NUMBER))),
    precision=TEXT,
    build_s=maybe(TIME),
    from_cache=maybe(st.booleans()),
    layers=maybe(COUNT),
    left_out=TEXTS,
    lerobot_flag=TEXT,
    notes=st.dictionaries(TEXT, SCALAR, max_size=2),
)
traits = st.builds(
    Traits,
    recipe=TEXT,
    treatments=st.lists(treatments, max_size=3),
    device=TEXT,
    batch_size=maybe(COUNT),
    policy=maybe(
        st.builds(
            PolicyTraits,
            chunk_size=maybe(COUNT),
            delay_training=maybe(st.builds(DelayTraining, way=maybe(TEXT), delays=maybe(COUNT))),
            denoising_steps=maybe(COUNT),
        )
    ),
    backbone=maybe(st.builds(BackboneTraits, frames_per_clip=COUNT, image_size=maybe(COUNT), tokens=maybe(COUNT))),
    loader=maybe(st.builds(LoaderTraits, workers=COUNT, video_backend=maybe(TEXT))),
    loop=maybe(st.builds(LoopTraits, strategy=maybe(TEXT), fps=maybe(TIME), compiled=maybe(st.booleans()))),
    trained_share=maybe(st.floats(0, 1)),
    build_s=maybe(TIME),
    notes=st.dictionaries(TEXT, SCALAR, max_size=2),
)
memories = st.builds(Memory, weights=maybe(COUNT), peak_process=maybe(COUNT), peak_device=maybe(COUNT))
measurements = st.builds(
    Measurement,
    name=TEXT,
    phase=st.sampled_from(["inference", "training forward", "training step", "loading"]),
    clock=st.sampled_from(["host", "device"]),
    samples=samples,
    components=st.lists(components, max_size=4),
    memory=memories,
    spans=st.lists(spans, max_size=4),
    traits=traits,
    unseen=st.dictionaries(TEXT, TEXT, max_size=2),
    limit=maybe(limits),
    cadence=maybe(st.builds(Cadence, hz=TIME, ticks=COUNT, period_ms=TIME, calls=COUNT, late=COUNT)),
    notes=TEXTS,
)
verdicts = st.builds(
    Verdict,
    kind=st.sampled_from(["faster", "slower", "no difference shown", "too noisy"]),
    ratio=st.floats(0, 1e6),
    interval=intervals,
    pairs=COUNT,
    sentence=TEXT,
)
EFFECT = st.sampled_from(["exact", "rounding", "lossy"])
GUARDS = TEXT | st.sampled_from(["", "exact", "cosine>=0.999", "rms<=0.02, worst<=0.2, flips<=0"])
ERROR = st.one_of(NUMBER, st.sampled_from([0.0, 1e-300, 3e-7, 0.01, 0.5]))
dimension_agreements = st.builds(
    DimensionAgreement,
    name=TEXT,
    spread=ERROR,
    rms=ERROR,
    p99=ERROR,
    worst=ERROR,
    offset=ERROR,
    flips=maybe(ERROR),
    along=st.lists(ERROR, max_size=4),
)
DIMENSIONS = st.lists(dimension_agreements, max_size=9)
cosines = st.builds(Agreement, cosine=NUMBER, largest_error=NUMBER, mean_error=NUMBER, observations=COUNT, note=TEXT)
agreements = cosines | st.builds(
    Agreement,
    cosine=NUMBER,
    largest_error=NUMBER,
    mean_error=NUMBER,
    observations=COUNT,
    note=TEXT,
    not_finite=st.sampled_from([0, 0, 0, 3]),
    rms=maybe(ERROR),
    p99=maybe(ERROR),
    worst=maybe(ERROR),
    worst_dimension=TEXT,
    worst_at=TEXT,
    flips=maybe(ERROR),
    executed=maybe(COUNT),
    executed_rms=maybe(ERROR),
    executed_worst=maybe(ERROR),
    spread=TEXT,
    how=TEXT,
    dimensions=DIMENSIONS,
)
yardsticks = st.builds(
    Yardstick,
    name=st.sampled_from(["reordered sums", "another noise draw", "neighbouring frame", "another observation"]),
    about=TEXT,
    rms=ERROR,
    worst=ERROR,
    observations=COUNT,
    dimensions=DIMENSIONS,
)
YARDSTICKS = st.lists(yardsticks, max_size=4, unique_by=lambda yardstick: yardstick.name)
checks = st.builds(
    Check,
    name=TEXT,
    treatments=TEXTS,
    effect=EFFECT,
    guard=GUARDS,
    agreement=maybe(agreements),
    broken=st.just("") | TEXT,
)
comparisons = st.builds(
    Comparison,
    baseline=TEXT,
    candidate=TEXT,
    verdict=verdicts,
    difference=maybe(intervals),
    difference_ms=NUMBER,
    agreement=maybe(agreements),
    effect=maybe(EFFECT),
    guard=GUARDS,
    broken=st.just("") | TEXT,
)
findings = st.builds(
    Finding,
    rule=TEXT,
    level=st.sampled_from(["good", "info", "warning"]),
    title=TEXT,
    seen=TEXT,
    why=TEXT,
    do=TEXT,
    gain=TEXT,
    evidence=st.dictionaries(TEXT, st.one_of(NUMBER, TEXT, st.none()), max_size=2),
)
operator_times = st.builds(
    OperatorTime, name=TEXT, calls=COUNT, own_ms=TIME, total_ms=maybe(TIME), share=TIME, shapes=TEXT
)
gaps = st.builds(
    Gaps,
    span_ms=TIME,
    busy_ms=TIME,
    idle_ms=TIME,
    threshold_us=TIME,
    gaps=COUNT,
    gaps_ms=TIME,
    causes=st.lists(st.builds(GapCause, cause=TEXT, gaps=COUNT, ms=TIME), max_size=2),
    exposed=NUMBER,
)
operator_profiles = st.builds(
    OperatorProfile,
    measurement=TEXT,
    iteration_ms=TIME,
    operators=st.lists(operator_times, max_size=2),
    operator_calls=COUNT,
    operator_median_us=maybe(TIME),
    kernels=st.lists(operator_times, max_size=2),
    kernel_calls=COUNT,
    kernel_median_us=maybe(TIME),
    host=maybe(gaps),
    device=maybe(gaps),
)
python_profiles = st.builds(
    PythonProfile,
    tool=st.sampled_from(["cprofile", "pyinstrument", "line"]),
    measurement=TEXT,
    iterations=COUNT,
    iteration_ms=TIME,
    files=TEXTS,
    functions=st.lists(
        st.builds(
            PythonFunction,
            name=TEXT,
            where=TEXT,
            calls=maybe(TIME),
            own_ms=maybe(TIME),
            cumulative_ms=maybe(TIME),
            source=TEXT,
        ),
        max_size=2,
    ),
    host=maybe(gaps),
    device=maybe(gaps),
)
ceilings = st.builds(
    Ceiling, gflops=st.dictionaries(TEXT, TIME, max_size=2), vector_gflops=maybe(TIME), memory_gbps=maybe(TIME)
)
machines = st.builds(
    Machine,
    system=TEXT,
    cpu=TEXT,
    cores=COUNT,
    threads=COUNT,
    memory_bytes=COUNT,
    device=TEXT,
    device_name=TEXT,
    device_memory_bytes=maybe(COUNT),
    power=st.dictionaries(TEXT, TEXT, max_size=2),
    versions=st.dictionaries(TEXT, TEXT, max_size=2),
    ceiling=ceilings,
)
subjects = st.builds(
    SubjectInfo,
    name=TEXT,
    kind=TEXT,
    source=TEXT,
    size=st.sampled_from(["full", "tiny"]),
    parameters=COUNT,
    weight_bytes=COUNT,
    dtypes=st.dictionaries(TEXT, COUNT, max_size=2),
    inputs=TEXT,
    stand_ins=TEXTS,
    anatomy=TEXT,
    compilable=st.booleans(),
    mps_known=st.booleans(),
)
SHARE = st.floats(0, 1)
stalls = st.builds(Stall, cause=TEXT, steps=COUNT, each_ms=TIME, share=SHARE, planned_hours=maybe(TIME), sentence=TEXT)
loader_workers = st.builds(LoaderWorker, name=TEXT, batches=COUNT, batch_ms=TIME, busy=SHARE, cpu=TIME)
loader_parts = st.builds(LoaderPart, name=TEXT, ms=TIME, share=SHARE, waiting=maybe(SHARE))
ranks = st.builds(
    Rank,
    rank=COUNT,
    steps=COUNT,
    step_ms=TIME,
    own_ms=TIME,
    own_interval=maybe(intervals),
    communication_ms=TIME,
    exposed_ms=TIME,
    parts=st.dictionaries(TEXT, TIME, max_size=2),
)
trainings = st.builds(
    Training,
    batch_size=COUNT,
    processes=COUNT,
    workers=COUNT,
    steps=COUNT,
    run_steps=COUNT,
    planned_steps=COUNT,
    samples_per_s=TIME,
    samples_interval=maybe(intervals),
    planned_hours=TIME,
    hours=st.dictionaries(TEXT, TIME, max_size=2),
    bound=st.sampled_from(["data", "compute", "host", "memory", "interruptions"]),
    sentence=TEXT,
    data_share=SHARE,
    shares=st.dictionaries(st.sampled_from(["data", "compute", "host", "interruptions"]), SHARE),
    kernel_share=maybe(SHARE),
    idle=st.dictionaries(TEXT, SHARE, max_size=2),
    machine_cpu=maybe(SHARE),
    stalls=st.lists(stalls, max_size=2),
    loader=st.lists(loader_workers, max_size=3),
    loader_parts=st.lists(loader_parts, max_size=2),
    ranks=st.lists(ranks, max_size=3),
    losses=st.lists(NUMBER, max_size=2),
    overhead=SHARE,
    loader_overhead=maybe(SHARE),
    error=TEXT,
)
tries = st.builds(
    Try,
    treatment=TEXT,
    rung=COUNT,
    part=TEXT,
    parts=TEXTS,
    part_share=st.floats(0, 1),
    before_ms=TIME,
    outcome=st.sampled_from(["kept", "slower", "no difference shown", "guard", "does not apply", "not tried"]),
    reason=TEXT,
    verdict=maybe(verdicts),
    most_gain=maybe(NUMBER),
    on=TEXTS,
    agreement=maybe(agreements),
    build_s=maybe(TIME),
)
in_times = st.builds(
    InTime,
    within_ms=TIME,
    asked=st.floats(0.01, 0.99),
    chunks=st.integers(1, 2**40),
    on_time=st.integers(0, 2**40),
    low=st.floats(0, 1),
    high=st.floats(0, 1),
    level=st.floats(0.5, 0.999),
    outcome=st.sampled_from(["reached", "missed", "not judged"]),
    needed=maybe(COUNT),
)
needs = st.builds(
    Need,
    part=TEXT,
    ms=TIME,
    share=st.floats(0, 1),
    needed_ms=maybe(TIME),
    named_ms=maybe(TIME),
    treatments=TEXTS,
)
rungs = st.builds(
    Rung,
    name=TEXT,
    treatment=TEXT,
    treatments=st.lists(st.dictionaries(TEXT, SCALAR, max_size=2), max_size=2),
    effect=st.sampled_from(["exact", "rounding", "lossy"]),
    part=TEXT,
    build_s=maybe(TIME),
    parts=st.dictionaries(TEXT, TIME, max_size=3),
    guarded=st.booleans(),
    refused=TEXT,
)
episodes = st.builds(Episode, success=st.booleans(), reward=NUMBER, best_reward=NUMBER, ticks=COUNT)
episode_pairs = st.builds(
    EpisodePair,
    task=TEXT,
    seed=COUNT,
    baseline=episodes,
    candidate=episodes,
    same_ticks=COUNT,
    largest_error=NUMBER,
)
paired_episodes = st.builds(
    PairedEpisodes,
    baseline=TEXT,
    candidate=TEXT,
    environment=TEXT,
    planned=COUNT,
    pairs=st.lists(episode_pairs, min_size=1, max_size=4),
    kind=st.sampled_from(
        ["the same", "worse", "better", "not worse by more than the margin", "no difference shown", "too few"]
    ),
    margin=maybe(st.floats(0, 1)),
    decided=maybe(COUNT),
    by=st.sampled_from(["success", "reward"]),
    baseline_success=st.floats(0, 1),
    candidate_success=st.floats(0, 1),
    success=st.floats(-1, 1),
    success_interval=intervals,
    possible_drop=st.floats(0, 1),
    reward=NUMBER,
    reward_interval=maybe(intervals),
    broken=TEXT,
    sentence=TEXT,
)

success_rates = st.builds(SuccessRate, episodes=COUNT, successes=COUNT, rate=st.floats(0, 1), interval=intervals)
decisions = st.builds(
    Decision,
    kind=st.sampled_from(["worse", "better", "not worse by more than the margin", "undecided"]),
    interval=intervals,
    margin=maybe(st.floats(0, 1)),
    within_margin=st.booleans(),
    pairs=maybe(COUNT),
)
paired = st.builds(
    PairedRates,
    both=COUNT, lost=COUNT, won=COUNT, neither=COUNT,
    difference=st.floats(-1, 1), interval=intervals, p=st.floats(0, 1), decision=decisions,
)  # fmt: skip
firsts = st.builds(VariantOnTask, success=success_rates, reward=NUMBER, paired=st.none())
others = st.builds(VariantOnTask, success=success_rates, reward=NUMBER, paired=paired)
evaluated = {
    "name": TEXT,
    "steps": maybe(st.integers(1, 1000)),
    "recipe": TEXT,
    "calls": st.builds(CallTimes, calls=COUNT, median_ms=TIME, p95_ms=TIME, hz=TIME),
    "loop": st.builds(LoopTimes, reset_ms=TIME, step_ms=TIME, render_ms=maybe(TIME), policy_ms=TIME),
}


@st.composite
def evaluations(draw):
    """Any result of `strobe evaluate`: the first variant, where one was played, is judged against nothing."""
    tasks = draw(st.lists(TEXT, min_size=1, max_size=3, unique=True))
    first = st.builds(EvaluatedVariant, **evaluated, together=firsts, tasks=st.fixed_dictionaries({}))
    other = st.builds(
        EvaluatedVariant,
        **evaluated,
        together=others,
        tasks=st.dictionaries(st.sampled_from(tasks), others, max_size=3),
        times=maybe(TIME),
    )
    variants = [draw(first), *draw(st.lists(other, max_size=3))] if draw(st.integers(0, 3)) else []
    return draw(
        st.builds(
            EvaluateResult,
            **ENVELOPE,
            subject=subjects,
            machine=machines,
            environment=TEXT,
            tasks=st.just(tasks),
            planned=COUNT,
            margin=st.floats(0.001, 0.999),
            foresight=TEXT,
            variants=st.just(variants),
        )
    )


@st.composite
def ladders(draw, names):
    """A ladder over measurements of these names, or now and then over others."""
    found = [
        draw(rungs).model_copy(update={"name": name} if draw(st.integers(0, 9)) else {})
        for name in draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
    ]
    chosen = draw(st.sampled_from([rung.name for rung in found])) if found else ""
    return Ladder(
        target_hz=draw(st.floats(0.01, 1e5)), target_ms=draw(st.floats(0.01, 1e5)), guard=draw(TEXT),
        met=draw(st.booleans()), in_time=draw(maybe(in_times)), alone=draw(maybe(samples)),
        ended=draw(TEXT), interleaved=draw(st.booleans()), chosen=chosen, rungs=found,
        tries=draw(st.lists(tries, max_size=3)), needs=draw(st.lists(needs, max_size=3)),
    )  # fmt: skip


ENVELOPE = {
    "strobe_version": TEXT,
    "title": TEXT,
    "command": TEXTS,
    "config": st.dictionaries(TEXT, st.one_of(SCALAR, TEXTS, st.dictionaries(TEXT, SCALAR, max_size=2)), max_size=3),
    "started": st.datetimes(timezones=st.just(UTC)),
    "duration_s": TIME,
    "status": st.sampled_from(["complete", "interrupted", "failed"]),
    "findings": st.lists(findings, max_size=2),
    "notes": TEXTS,
}
MEASURED = ENVELOPE | {
    "subject": subjects,
    "machine": machines,
    "measurements": st.lists(measurements, max_size=3, unique_by=lambda m: m.name),
}
PROFILED = {"operators": maybe(operator_profiles), "python": maybe(python_profiles)}
JUDGED = {"comparisons": st.lists(comparisons, max_size=2), "yardsticks": YARDSTICKS}


@st.composite
def optimized(draw):
    """Any result of `strobe optimize`; most have a ladder over their measurements."""
    result = draw(
        st.builds(
            OptimizeResult, **MEASURED, **JUDGED, episodes=st.lists(paired_episodes, max_size=2), ladder=st.none()
        )
    )
    if result.measurements and draw(st.integers(0, 3)):
        result.ladder = draw(ladders([m.name for m in result.measurements]))
    return result


results = st.one_of(
    st.builds(BreakdownResult, **MEASURED, **PROFILED, gap=maybe(comparisons)),
    st.builds(CompareResult, **MEASURED, **PROFILED, **JUDGED),
    st.builds(TrainResult, **MEASURED, training=trainings, python=maybe(python_profiles)),
    optimized(),
    evaluations(),
    st.builds(
        VerifyResult,
        **ENVELOPE,
        subject=subjects,
        machine=machines,
        recipe=TEXT,
        guard=GUARDS,
        checks=st.lists(checks, max_size=3),
        yardsticks=YARDSTICKS,
    ),
)


STATUSES = st.sampled_from(["done", "out of memory", "timed out", "crashed", "invalid", "not run"])
FIGURE = st.floats(-1e12, 1e12)
fitted = st.builds(Interval, low=FIGURE, high=FIGURE, level=st.floats(0.5, 0.999))
axes = st.builds(
    sweep.Axis,
    name=TEXT,
    values=TEXTS,
    numbers=maybe(st.lists(NUMBER, max_size=3)),
    unit=st.sampled_from(["", "steps"]),
)
figures = st.builds(
    sweep.PartFigure,
    path=st.lists(TEXT, min_size=1, max_size=3),
    other=st.booleans(),
    ms=TIME,
    share=st.floats(0, 1),
)
rows = st.builds(
    sweep.Row,
    measurement=TEXT,
    phase=st.sampled_from(["inference", "training forward", "training step", "loading"]),
    batch=st.integers(0, 2**20),
    ms=summaries,
    repeats=NUMBERS,
    throughput=TIME,
    memory_bytes=maybe(COUNT),
    activation_bytes=maybe(COUNT),
    gflop=maybe(TIME),
    parts=st.lists(figures, max_size=3),
    verdict=maybe(verdicts),
    agreement=maybe(agreements),
)
cell_runs = st.builds(
    sweep.CellRun,
    repeat=st.integers(1, 9),
    status=STATUSES,
    reason=TEXT,
    folder=TEXT,
    started=maybe(st.datetimes(timezones=st.just(UTC))),
    duration_s=maybe(TIME),
    machine=maybe(st.integers(0, 2)),
    node=TEXT,
)
scalings = st.builds(
    sweep.Scaling,
    measurement=TEXT,
    figure=st.sampled_from(["time", "memory", "activations"]),
    axis=TEXT,
    unit=TEXT,
    exponent=FIGURE,
    interval=maybe(fitted),
    slope=FIGURE,
    slope_interval=maybe(fitted),
    fixed=FIGURE,
    points=COUNT,
    groups=COUNT,
    curved=st.booleans(),
    sentence=TEXT,
)
bests = st.builds(
    sweep.Best,
    asked=TEXT,
    key=maybe(TEXT),
    settings=st.dictionaries(TEXT, TEXT, max_size=2),
    measurement=TEXT,
    ties=st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2),
    sentence=TEXT,
)


@st.composite
def sweeps(draw: st.DrawFn) -> sweep.Sweep:
    """Any sweep; most of its cells have a value for each of its axes."""
    varied = draw(st.lists(axes, max_size=3, unique_by=lambda axis: axis.name))
    settings = st.fixed_dictionaries(
        {}, optional={axis.name: st.sampled_from(axis.values) if axis.values else TEXT for axis in varied}
    )
    cells = st.builds(
        sweep.Cell,
        key=TEXT,
        settings=settings,
        status=STATUSES,
        reason=TEXT,
        runs=st.lists(cell_runs, max_size=2),
        rows=st.lists(rows, max_size=2),
    )
    return draw(
        st.builds(
            sweep.Sweep,
            **ENVELOPE,
            of=TEXT,
            axes=st.just(varied),
            repeats=st.integers(1, 9),
            cells=st.lists(cells, max_size=5),
            machines=st.lists(machines, max_size=2),
            scaling=st.lists(scalings, max_size=2),
            best=st.lists(bests, max_size=2),
        )
    )


def small() -> BreakdownResult:
    subject = SubjectInfo(
        name="act", kind="act", source="random weights", parameters=1, weight_bytes=4, inputs="synthetic"
    )
    machine = Machine(
        system="Linux", cpu="cpu", cores=2, threads=2, memory_bytes=2**30, device="cpu", device_name="cpu"
    )
    values = [1.5, 1.25]
    summary = Summary(n=2, median=1.375, mean=1.375, std=0.18, min=1.25, max=1.5, p95=1.5)
    taken = Samples(values=values, summary=summary)
    return BreakdownResult(
        strobe_version="0.1.0",
        title="a small one",
        subject=subject,
        machine=machine,
        measurements=[Measurement(name="inference", phase="inference", samples=taken)],
    )
