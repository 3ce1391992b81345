"""strobe train, with a pause in the policy's forward pass on rank 1: what a slow device does to the others."""

import os
import sys
import time

from lerobot.policies.act.modeling_act import ACTEncoder

from strobe.cli.main import main

if os.environ["RANK"] == "1":
    encode = ACTEncoder.forward

    def slowly(*args, **kwargs):
        time.sleep(0.6)
        return encode(*args, **kwargs)

    ACTEncoder.forward = slowly

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
