"""``python -m strobe``, which torchrun and accelerate start."""

import sys

from strobe.core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
