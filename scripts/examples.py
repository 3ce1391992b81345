"""Judge the example runs of docs/examples again, from their raw samples, and write their pages again.

A verdict is kept as a sentence in its result, in the words of the Strobe that measured it. When verdicts or their words
change, this brings the examples up to date: what was measured stays, what is said of it is said as today.

    .venv/bin/python scripts/examples.py [NAME …]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from strobe.core.cli import main as cli
from strobe.core.findings.thresholds import Thresholds
from strobe.core.kinds import advise
from strobe.core.measure.verdicts import difference_interval, paired_verdict
from strobe.core.results.answer import Result
from strobe.core.runs import store

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def main() -> None:
    """Judge each example, and write its ``result.json`` and ``report.md``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of the examples (default: all)")
    names = parser.parse_args().names or sorted(path.parent.name for path in EXAMPLES.glob("*/result.json"))
    for name in names:
        folder = EXAMPLES / name
        answer = store.load_answer(folder)
        if isinstance(answer, Result):  # the findings of a sweep are those of its cells, which are not kept here
            judge(answer)
            answer.findings = advise(answer, Thresholds())
        store.save(answer, folder)
        cli.main(["report", str(folder), "--format", "markdown", "--output", str(folder / "report.md"), "--quiet"])
        print(name)


def judge(result: Result) -> None:
    """Judge the comparisons whose samples alternate once more."""
    samples = {one.name: one.samples.values for one in result.measurements}
    for one in result.judged_comparisons():
        before, after = samples.get(one.baseline), samples.get(one.candidate)
        if before is None or after is None or not one.verdict.pairs or len(before) != len(after):
            continue
        one.verdict = paired_verdict(before, after, baseline_name=one.baseline, candidate_name=one.candidate)
        one.difference_ms, one.difference = difference_interval(before, after)


if __name__ == "__main__":
    main()
