"""The help on a policy's, a factory's and a backbone's flags; other policies than LeRobot's, by a factory."""

from __future__ import annotations

from strobe.core.slices import Slice, Source

SLICE = Slice(
    offers={"help on subjects": "strobe.policy_cli.subject_flags:subject_help"},
    sources=(
        Source(
            dict.fromkeys(("breakdown", "compare", "verify", "optimize", "sweep"), ""),
            "needs a policy of LeRobot",
            flags=("--policy.factory",),
        ),
    ),
)
