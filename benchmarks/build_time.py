"""How long building full-size pi0.5 (bfloat16, random weights) takes, and at what memory.

    python benchmarks/build_time.py           # build_fast beside LeRobot's own constructor, which needs 18 GB
    python benchmarks/build_time.py --quick   # build_fast alone

Each builder runs in a process of its own, whose peak resident memory is read at the end. Importing LeRobot is
not part of the time, but its memory is part of the peak. Most of the time goes into touching 9 GB of fresh
memory, so run it on a machine that does nothing else. The last line is JSON; `holds` says whether the bars
hold.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import psutil
from common.shared import finish, need

SECONDS, MEMORY = 20.0, 1.25  # the bars: time to build, and peak memory over weight bytes
NEEDED = 19 * 2**30  # free memory to run LeRobot's own constructor


def build(how: str) -> dict[str, float]:
    """Build in this process; returns seconds, weight bytes and peak bytes."""
    import torch
    from lerobot.policies.pi05.configuration_pi05 import PI05Config
    from lerobot.policies.pi05.modeling_pi05 import PI05Policy

    from strobe.lerobot.policies import inputs, lerobot_policies
    from strobe.lerobot.policies.build import build_fast
    from strobe.lerobot.quiet import quiet

    config = lerobot_policies.config_from_type("pi05", ["--device=cpu", "--dtype=bfloat16"])
    lerobot_policies._fit_features(config, inputs.synthetic(config, count=1), {}, [])
    assert isinstance(config, PI05Config)
    with quiet():
        start = time.perf_counter()
        policy = build_fast(lambda: PI05Policy(config)) if how == "fast" else PI05Policy(config)
        seconds = time.perf_counter() - start
    assert not any(p.is_meta for p in policy.parameters())
    assert all(torch.isfinite(p.detach().flatten()[:1000]).all() for p in policy.parameters())
    weights = sum(p.numel() * p.element_size() for p in policy.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "seconds": seconds,
        "weight_bytes": weights,
        "peak_bytes": peak,
        "peak_over_weights": peak / weights,
    }


def measure(how: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--one", how],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="build_fast alone, under a minute")
    parser.add_argument("--one", choices=["fast", "lerobot"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(build(arguments.one)))
        return
    need("pi", memory_gib=10)
    rows = {"build_fast": measure("fast")}
    if not arguments.quick:
        if psutil.virtual_memory().available < NEEDED:
            print(f"LeRobot's own constructor is left out: it needs {NEEDED / 2**30:.0f} GiB of free memory")
        else:
            rows["LeRobot's constructor"] = measure("lerobot")
    print(f"{'full-size pi0.5, bf16':24} {'seconds':>8} {'weights GB':>11} {'peak GB':>8} {'peak/weights':>13}")
    for name, row in rows.items():
        print(
            f"{name:24} {row['seconds']:8.1f} {row['weight_bytes'] / 1e9:11.2f} "
            f"{row['peak_bytes'] / 1e9:8.2f} {row['peak_over_weights']:13.2f}"
        )
    fast = rows["build_fast"]
    holds = fast["seconds"] <= SECONDS and fast["peak_over_weights"] <= MEMORY
    finish(rows, holds)


if __name__ == "__main__":
    main()
