"""The limits of findings that a user may set; every other limit is a constant next to its rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Shares are of 1, times in milliseconds, rates per second.

    'The toolkit' is the RTC profiling toolkit, 'the delay benchmark' the forward-pass benchmark of ACT Relative RTC,
    'the guide' the profiling guide of V-JEPA 2; these numbers are their rules of thumb, the others are Strobe's own.
    """

    # The robot's control rate, in actions per second.
    control_hz: float = 30.0
    # Samples below which a median says little (the toolkit advises 50 to 100 where timings are inconsistent).
    few_samples: int = 10
    # Share of the whole from which a part is big.
    big_part: float = 0.2
    # Backbone's share of a training forward from which training by batch expansion pays (the delay benchmark's).
    backbone_dominates: float = 0.7
    # Delays that batch expansion evaluates at once where the policy does not say (the delay benchmark's rtc_max_delay).
    delays: int = 10
    # Peak memory above which a model of ViT-L's size holds much, in GiB; in proportion for a bigger one (the guide's).
    model_memory_gib: float = 8.0
    # Share of a training step spent waiting for its batch from which loading is worth a finding.
    data_bound: float = 0.1
    # Training steps that a loader's start may take the time of, before that is worth a finding.
    start_up_steps: float = 100.0
    # Share of the rate asked for under which a control loop is slow …
    rate_held: float = 0.95
    # … and share of its ticks from which late ones are worth a finding.
    ticks_late: float = 0.02
    # Share of the ticks from which those without an action are worth a finding.
    ticks_starved: float = 0.01
    # Median jump of a joint from chunk to chunk over the 95th percentile of its steps, from which it is a jerk.
    seam_jump: float = 3.0
    # Periods of the loop for which it may see one and the same frame of a camera that is fast enough otherwise.
    camera_stall: float = 5.0
    # Milliseconds that the frames of a camera may be old when they are read (median).
    frame_age_ms: float = 100.0
    # Median milliseconds of a read of all motors from which it is slow: six servos at 1 Mbaud need 1, adapters 1 to 3.
    bus_read_ms: float = 6.0
    # Share of the run in which the control thread may wait for a CPU.
    cpu_waited: float = 0.1


DEFAULTS = Thresholds()
