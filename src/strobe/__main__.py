"""``python -m strobe``, which torchrun and accelerate start."""

import sys

from strobe.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
