#!/usr/bin/env bash
# Tries the core by itself: a fresh environment of the given Python (3.10 or newer) with Strobe's wheel and no LeRobot,
# first without torch, for functions of NumPy and JAX, then with it.
#   scripts/core_alone.sh PYTHON
# Downloads JAX and torch. Ends with a line that says what worked, or with the first thing that did not.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:?name a Python: scripts/core_alone.sh python3.10}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH
"$python" -m venv "$work/venv"
if [ -x .venv/bin/uv ]; then # which downloads and unpacks side by side
    uv=$PWD/.venv/bin/uv
    pip() { "$uv" pip install --quiet --python "$work/venv/bin/python" "$@"; }
else
    pip() { "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
fi
pip . jax
cd "$work"
cat >common.py <<'EOF_COMMON'
import sys

import strobe

FOREIGN = ("lerobot", "transformers", "torch")


def look(calls, given, guard, foreign):
    """Compare two calls, break the first down twice, compare the second with it."""
    (_, first), (_, second) = calls.items()
    compared = strobe.compare(calls, given, seconds=2)
    assert compared.result.comparisons[0].verdict.pairs > 1
    assert strobe.verify(first, second, given, guard=guard).outcome == "held"
    runs = [strobe.breakdown(first, given, seconds=2).save("runs") for _ in range(2)]
    print(runs[1])
    assert not [name for name in foreign if name in sys.modules]
EOF_COMMON
cat >of_numpy.py <<'EOF_NUMPY'
import numpy
from common import FOREIGN, look

values = numpy.random.default_rng(0).normal(size=200_000)
calls = {"quick": lambda x: numpy.sort(x), "stable": lambda x: numpy.sort(x, kind="stable")}
look(calls, values, "largest_error<=1e-3", FOREIGN)
EOF_NUMPY
cat >of_jax.py <<'EOF_JAX'
import jax
import jax.numpy as jnp
from common import FOREIGN, look

weights = jnp.ones((64, 64))
look({"eager": lambda x: jnp.tanh(x @ weights), "jit": jax.jit(lambda x: jnp.tanh(x @ weights))}, jnp.ones((8, 64)),
     "cosine>=0.999", FOREIGN)
EOF_JAX
cat >of_torch.py <<'EOF_TORCH'
import torch
from common import FOREIGN, look

module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).eval()
look({"module": module, "again": lambda x: module(x)}, torch.randn(16, 64), "largest_error<=1e-3", FOREIGN[:2])
EOF_TORCH
strobe=$work/venv/bin/strobe
try() { # a program; then what reads its run
    rm -rf runs
    run=$("$work/venv/bin/python" "$1" 2>"$1.log" | tail -1) || { cat "$1.log"; exit 1; }
    "$strobe" report "$run" >/dev/null
    "$strobe" diff runs/* >/dev/null
    "$strobe" history runs >/dev/null
}
try of_numpy.py
try of_jax.py
"$strobe" --help >/dev/null
says=$("$strobe" breakdown --policy.type=act 2>&1 || true)
grep -q "needs LeRobot" <<<"$says" || { echo "$says"; exit 1; }
pip torch numpy
try of_torch.py
echo "core alone on $("$python" -V): compare, breakdown, verify, report, diff and history work, on functions of NumPy and JAX without torch, and on a module of torch; LeRobot's commands say: $says"
