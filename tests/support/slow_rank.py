"""strobe train, with a pause in the policy's forward pass on rank 1: what a slow device does to the others."""

import os
import sys
import time

from lerobot.policies.act.modeling_act import ACTEncoder

from strobe.cli.main import main

LEAST_S = 0.6

if os.environ["RANK"] == "1":
    encode = ACTEncoder.forward
    steps_s = []  # without their pauses
    pause_ended = None

    def slowly(*args, **kwargs):
        """Pause for as long as a step takes on this machine: what is slow on an idle one must be so on a busy one."""
        global pause_ended
        if pause_ended is not None:
            steps_s.append(time.perf_counter() - pause_ended)
        time.sleep(max(LEAST_S, min(steps_s, default=0.0)))
        pause_ended = time.perf_counter()
        return encode(*args, **kwargs)

    ACTEncoder.forward = slowly

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
