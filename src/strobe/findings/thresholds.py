"""The numbers at which rules fire."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Shares are of 1, times in milliseconds, rates per second.

    'The toolkit' is the RTC profiling toolkit, 'the delay benchmark' the forward-pass benchmark of ACT Relative RTC,
    'the guide' the profiling guide of V-JEPA 2; these numbers are their rules of thumb, the others are Strobe's own.
    """

    # Backbone's share of a training forward from which training by batch expansion pays (the delay benchmark's).
    backbone_dominates: float = 0.7
    # Backbone's share of a training forward under which it should be reconsidered (the delay benchmark's).
    backbone_small: float = 0.5
    # Delays that batch expansion evaluates at once where the policy does not say (the delay benchmark's rtc_max_delay).
    delays: int = 10
    # Cost of a training step over all delays, over one with a random delay, up to which it is cheap.
    delays_cheap: float = 1.5
    # Preprocessing's share of inference above which it is heavy (the toolkit's experience).
    preprocessing_heavy: float = 0.2
    # The policy's share of inference below which the rest is worth a look (the toolkit: 70 to 90 % is usual).
    policy_low: float = 0.7
    # RTC's overhead over base denoising up to which it is as expected (the toolkit: 10 to 30 %).
    rtc_expected: float = 0.3
    # RTC's overhead over base denoising above which it is poor (the toolkit's experience).
    rtc_poor: float = 0.5
    # RTC's autograd correction over base denoising above which it is more than expected (the toolkit: 5 to 15 %).
    autograd_expected: float = 0.15
    # Growth of base denoising under RTC above which a recorded autograd graph is named as its cause.
    graph_growth: float = 0.05
    # The robot's control rate, in actions per second.
    control_hz: float = 30.0
    # Policy inference on MPS up to which it is good, in milliseconds (the toolkit, pi0 and pi0.5).
    mps_policy_good: float = 150.0
    # Policy inference on MPS above which it is poor, in milliseconds (the toolkit, pi0 and pi0.5).
    mps_policy_poor: float = 250.0
    # Preprocessing on MPS up to which it is good, in milliseconds (the toolkit's experience).
    mps_preprocessing_good: float = 20.0
    # Preprocessing on MPS above which it is poor, in milliseconds (the toolkit's experience).
    mps_preprocessing_poor: float = 50.0
    # The blocks' share of a backbone from which all is as expected (the guide's).
    transformer_expected: float = 0.9
    # Standard deviation over like blocks above which, where it is shown, they differ too much, in ms (the guide's).
    block_spread_ms: float = 0.5
    # The patch embedding's share of a backbone above which it is slow (the guide's).
    patch_embedding_slow: float = 0.1
    # Attention's share of a backbone from which it is a bottleneck (the guide's).
    attention_heavy: float = 0.7
    # Peak memory above which a model of ViT-L's size holds much, in GiB; in proportion for a bigger one (the guide's).
    model_memory_gib: float = 8.0
    # Host time over device time from which the device waits for the host (below 1, for the noise in both).
    host_bound: float = 0.95
    # Loss of success rate that paired episodes leave possible, above which they say little.
    drop_large: float = 0.1
    # Share of the time taken that the roofline's bound must be for a ladder to be at the machine's limit.
    limit_near: float = 0.8
    # Share below which a ladder's best rung is far from that limit.
    limit_far: float = 0.3
    # Share of the whole from which a part is big.
    big_part: float = 0.2
    # Share of the machine's measured ceiling under which a big part is far below it.
    ceiling_low: float = 0.1
    # Ceiling in half precision over that in float32 from which running in float32 is worth a finding.
    half_faster: float = 1.5
    # Speed-up of a lower precision under which something else than arithmetic is the limit (the V-JEPA 2 guide's).
    precision_low: float = 1.5
    # Speed-up of a lower precision above which the arithmetic units are used excellently (the V-JEPA 2 guide's).
    precision_high: float = 2.0
    # Cosine to the baseline's outputs under which a lower precision changes them too much.
    precision_cosine: float = 0.999
    # σ (RMS) by which a lower precision may move the actions: what the usual guard allows.
    precision_rms: float = 0.02
    # Mean error of an action dimension over its RMS from which it is an offset, and not a scatter …
    offset_share: float = 0.5
    # … where its RMS is above this (σ).
    offset_least: float = 0.01
    # How far a treatment may move the actions, over what another observation does, before that cannot be told apart.
    drowned: float = 0.5
    # σ (RMS) by which another observation moves the actions, below which the policy does not look.
    input_ignored: float = 0.001
    # Cosine of a lever's gradient to the baseline's under which it trains something else.
    lever_cosine: float = 0.99
    # Share of a gradient that float16 loses to 0 without a loss scaler, from which it needs one.
    underflow: float = 0.01
    # Share of the peak memory that gradient accumulation must save to be worth its time.
    accumulation_saves: float = 0.05
    # Kernel time over wall time from which memory traded with the kernel is worth a finding (CPU only).
    kernel_time: float = 0.05
    # Share of the whole in 'other' above which the parts do not explain enough.
    other_large: float = 0.05
    # Share of an iteration from which a device that runs nothing is worth a finding.
    device_idle: float = 0.2
    # Share of an iteration outside torch's operators from which Python and many small operators are (CPU).
    between_operators: float = 0.2
    # Median kernel below which an accelerator's kernels are small, in microseconds.
    small_kernel_us: float = 10.0
    # Kernels in an iteration above which small ones are many.
    many_kernels: int = 1000
    # Share of a training step spent waiting for its batch from which loading is worth a finding.
    data_bound: float = 0.1
    # A worker's time for a batch over that of the others from which it is slow.
    worker_slow: float = 1.5
    # Share of a part of loading without CPU time from which it waits for storage …
    storage_waiting: float = 0.5
    # … unless the machine's cores are busier than this: then it waits for them.
    cores_free: float = 0.75
    # Share of a training at which the starts of its epochs are slow.
    epoch_start: float = 0.05
    # A part's forward pass over its backward pass from which it does something beside arithmetic.
    forward_slow: float = 1.5
    # The optimizer's share of a training step from which it is heavy.
    optimizer_heavy: float = 0.4
    # Share of the planned training from which checkpoints come too often.
    checkpoints_heavy: float = 0.05
    # Share of the planned training from which evaluations come too often.
    evaluations_heavy: float = 0.2
    # Share of a training step spent on the host beside the policy from which that is worth a finding.
    host_heavy: float = 0.2
    # What a rank needs more than the others, over the step, from which it holds them up.
    straggler: float = 0.1
    # Share of a step spent on averaging gradients from which the network is the limit.
    communication_heavy: float = 0.2
    # Training steps that a loader's start may take the time of, before that is worth a finding.
    start_up_steps: float = 100.0
    # Samples per second over those of the dataset as it is, from which another encoding is worth a finding.
    encoding_faster: float = 1.2
    # Share by which a call at the robot's pace must be slower than back to back, to be worth a finding.
    gap_costs: float = 0.1
    # Share of the rate asked for under which a control loop is slow …
    rate_held: float = 0.95
    # … and share of its ticks from which late ones are worth a finding.
    ticks_late: float = 0.02
    # Share of the ticks from which those without an action are worth a finding.
    ticks_starved: float = 0.01
    # Actions by which the delay that Real-Time Chunking assumes must be above what calls need, to be poisoned.
    delay_excess: int = 2
    # Share of a round trip to a policy server from which pickling and sending are worth a finding.
    serialisation_large: float = 0.4
    # Median jump of a joint from chunk to chunk over the 95th percentile of its steps, from which it is a jerk.
    seam_jump: float = 3.0
    # Share by which a call on the robot must be slower than on the bench, to be worth a finding.
    robot_slower: float = 0.2
    # Frames per second of a camera over the rate of the loop under which it repeats frames.
    camera_fresh: float = 0.9
    # Periods of the loop for which it may see one and the same frame of a camera that is fast enough otherwise.
    camera_stall: float = 5.0
    # Periods of the asked rate for which a camera may give new frames with the same picture.
    camera_frozen: float = 5.0
    # Milliseconds that the frames of a camera may be old when they are read (median).
    frame_age_ms: float = 100.0
    # Median milliseconds of a read of all motors from which it is slow: six servos at 1 Mbaud need 1, adapters 1 to 3.
    bus_read_ms: float = 6.0
    # Reads of the motors that found answers to an earlier question.
    stale_reads: int = 3
    # Share of the run in which the control thread may wait for a CPU.
    cpu_waited: float = 0.1
    # Share by which the time stamped on recorded frames may differ from the time in which they were recorded.
    frames_stamped: float = 0.05
    # Samples below which a median says little (the toolkit advises 50 to 100 where timings are inconsistent).
    few_samples: int = 10


DEFAULTS = Thresholds()
