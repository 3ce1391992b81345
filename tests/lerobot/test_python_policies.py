"""LeRobot's own policies as objects in Python, and what `import strobe` costs."""

from __future__ import annotations

import subprocess
import sys

import strobe
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions


def test_a_policy_of_lerobots_has_the_parts_of_its_family():
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    batch = subject.prepare(subject.observation(0))
    answer = strobe.breakdown(subject.policy, batch, seconds=0.3, count=False)
    assert answer.subject.kind == "object with predict_action_chunk()"
    known = {hook.name for hook in subject.hooks("inference", 1)}
    parts = {part.name for part in answer.measurements[0].components if not part.other}
    assert parts
    assert parts <= known
    same = strobe.verify(subject.policy, subject.policy.predict_action_chunk, batch, guard="largest_error<=0")
    assert same.outcome == "held"


def test_importing_strobe_imports_nothing_heavy():
    heavy = "{'torch', 'numpy', 'lerobot', 'pydantic', 'rich'}"
    code = f"import sys, strobe; print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
