#!/usr/bin/env bash
# Tries the core by itself: a fresh environment of the given Python (3.10 or newer) with Strobe's wheel and no LeRobot.
#   scripts/core_alone.sh PYTHON
# Downloads torch. Ends with a line that says what worked, or with the first thing that did not.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:?name a Python: scripts/core_alone.sh python3.10}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check .
cd "$work"
cat >try.py <<'EOF'
import sys

import numpy
import torch

import strobe

values = numpy.random.default_rng(0).normal(size=200_000)
sorts = {"quick": lambda x: numpy.sort(x), "stable": lambda x: numpy.sort(x, kind="stable")}
assert strobe.compare(sorts, values, seconds=2).comparisons
module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).eval()
frames = torch.randn(16, 64)
answer = strobe.breakdown(module, frames, seconds=2)
print(answer.save("runs"))
answer.save("runs")
assert strobe.verify(module, module, frames, guard="largest_error<=1e-3").passed
assert not [name for name in sys.modules if name.partition(".")[0] in ("lerobot", "transformers")]
EOF
run=$("$work/venv/bin/python" try.py 2>try.log | tail -1) || { cat try.log; exit 1; }
strobe=$work/venv/bin/strobe
"$strobe" report "$run" >/dev/null
"$strobe" diff runs/* >/dev/null
"$strobe" history runs >/dev/null
"$strobe" --help >/dev/null
says=$("$strobe" breakdown --policy.type=act 2>&1 || true)
grep -q "needs LeRobot" <<<"$says" || { echo "$says"; exit 1; }
echo "core alone on $("$python" -V): compare, breakdown, verify, report, diff and history work; LeRobot's commands say: $says"
