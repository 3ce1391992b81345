"""The same policy in two environments: processes of this one, one of them with a changed copy of LeRobot.

The sides stay open from test to test (`support/builders/kept_sides.py`), since each imports LeRobot for seconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lerobot
import psutil
import pytest
from support.builders.kept_sides import KeptSides
from support.builders.tiny_policies import load_tiny_subject

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards
from strobe.core.measure.sampling import Progress, SamplingBudget
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.progress import Silent
from strobe.environments.run import compare_environments, verify_environment
from strobe.environments.side import EnvironmentWorker, SideOptions
from strobe.environments.sides import SidesOptions
from strobe.lerobot.policies.policy_subject import PolicySubject

pytestmark = pytest.mark.slow("two real environments; tests/environments shows what they are made of")

HERE = SideOptions("here")
ROUNDS = Options(SamplingBudget(iterations=8), counted=False)

# In place of what is carried: it answers, and computes nothing.
ANSWERING = """
import json, os, sys
answers = os.fdopen(int(sys.argv[1]), "w")
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "load":
        answer = {"python": "3", "packages": {}, "lerobot": "", "threads": 1, "settings": {}}
    else:
        answer = {"ms": [0.1, 0.2, 0.1]}
    print(json.dumps({"number": order["number"], "answer": answer}), file=answers, flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def shared_sides() -> Iterator[None]:
    """Comparisons take running sides, and give them back."""
    sides = KeptSides()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strobe.environments.sides.EnvironmentWorker", sides.side)
        yield
    sides.end()


def tiny(kind: str = "act") -> Callable[[], PolicySubject]:
    return lambda: load_tiny_subject(kind)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of LeRobot whose ACT makes what its decoder gives a tenth larger."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(Path(lerobot.__file__).parent, folder / "src" / "lerobot")
    file = folder / "src" / "lerobot" / "policies" / "act" / "modeling_act.py"
    text = file.read_text()
    old = "class ACTDecoder(nn.Module):"
    assert old in text
    changed = "ACTDecoder.forward = lambda self, *args, **kwargs: _plain(self, *args, **kwargs) * 1.1\n"
    file.write_text(f"{text}\n\n_plain = ACTDecoder.forward\n{changed}")
    return folder


@pytest.fixture(scope="module")
def three_side_comparison(checkout: Path, tmp_path_factory: pytest.TempPathFactory):
    """Three sides: this environment twice, and the copy. Most of its time is their imports of LeRobot."""
    sides = [HERE, SideOptions("same"), SideOptions("changed", lerobot=str(checkout))]
    return compare_environments(
        tiny(), SidesOptions(sides, threads=1), ROUNDS, tmp_path_factory.mktemp("parcel"), Silent()
    )


def test_the_same_environment_acts_the_same_to_the_bit(three_side_comparison):
    same = next(pair for pair in three_side_comparison.comparisons if pair.candidate == "same")
    assert same.agreement is not None
    assert same.agreement.largest_error == 0
    assert same.outcome == "held"
    assert same.gradient is not None
    assert same.gradient.error == 0
    one = next(one for one in three_side_comparison.passes if one.candidate == "same")
    assert (one.stages, one.settings, one.training, one.note) == ([], [], [], None)
    assert one.compared > 50


def test_a_change_is_named_by_its_stage_and_breaks_the_guard(three_side_comparison):
    changed = next(one for one in three_side_comparison.passes if one.candidate == "changed")
    assert changed.first is not None
    assert changed.first.stage == "decoder"
    assert changed.first.place == "model.decoder gives"
    assert changed.first.distance == pytest.approx(0.1, rel=0.2)
    pair = next(pair for pair in three_side_comparison.comparisons if pair.candidate == "changed")
    assert pair.outcome == "broken"
    assert pair.gradient is not None
    assert pair.gradient.error is not None
    assert pair.gradient.error > 0.01


def test_each_side_is_timed_by_itself_in_three_parts(three_side_comparison):
    assert [m.name for m in three_side_comparison.measurements] == ["here", "same", "changed"]
    for measurement in three_side_comparison.measurements:
        assert [part.path for part in measurement.components] == [["preprocessing"], ["policy"], ["postprocessing"]]
        parts = zip(*(part.values for part in measurement.components), strict=True)
        assert [sum(one) for one in parts] == pytest.approx(measurement.samples.values)
    # A round that was taken for warm-up meanwhile may turn out to be none: 8 at least, and as many of each side.
    (count,) = {len(measurement.samples.values) for measurement in three_side_comparison.measurements}
    assert count >= 8
    assert all(pair.verdict.pairs == count for pair in three_side_comparison.comparisons)


def test_the_environments_describe_themselves(three_side_comparison, checkout: Path):
    assert [one.name for one in three_side_comparison.environments] == ["here", "same", "changed"]
    assert all(one.packages["torch"] for one in three_side_comparison.environments)
    assert [bool(one.checkout) for one in three_side_comparison.environments] == [False, False, True]


class Killer(Silent):
    """Kills the newest process of this one once so many rounds are done."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.killed = rounds, threading.Event()

    def progress(self, progress: Progress) -> None:
        if progress.unit == "rounds" and progress.done >= self.rounds and not self.killed.is_set():
            self.killed.set()
            youngest = max(psutil.Process().children(), key=lambda child: (child.create_time(), child.pid))
            os.kill(youngest.pid, signal.SIGKILL)


def test_a_side_that_is_killed_costs_nothing_that_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Real processes, begun and ended with the comparison, that answer at once."""
    (tmp_path / "carried").mkdir()
    (tmp_path / "carried" / "__main__.py").write_text(ANSWERING)
    monkeypatch.setattr("strobe.environments.side.CARRIED", tmp_path / "carried")
    monkeypatch.setattr("strobe.environments.sides.EnvironmentWorker", EnvironmentWorker)
    before = {child.pid for child in psutil.Process().children()}
    result = compare_environments(
        tiny(), SidesOptions([HERE, SideOptions("next")], threads=1), ROUNDS, tmp_path, Killer(5)
    )
    assert result.status == "failed"
    assert any("'next' ended with signal SIGKILL" in note for note in result.notes)
    assert all(1 <= len(measurement.samples.values) <= 5 for measurement in result.measurements)
    (pair,) = result.comparisons
    assert pair.outcome == "not judged"
    ends = time.monotonic() + 5
    while {child.pid for child in psutil.Process().children() if child.status() != "zombie"} - before:
        assert time.monotonic() < ends, "a side outlived the comparison"
        time.sleep(0.05)


def test_actions_that_cannot_be_compared_cost_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What fails is a real order of a side."""
    plain = EnvironmentWorker.order

    def failing(self: EnvironmentWorker, do: str, **order: object) -> None:
        plain(self, "no such order" if do == "chunk" else do, **order)

    monkeypatch.setattr(EnvironmentWorker, "order", failing)
    result = compare_environments(
        tiny(), SidesOptions([HERE, SideOptions("next")], threads=1), ROUNDS, tmp_path, Silent()
    )
    assert result.status == "complete"
    first, second = (len(measurement.samples.values) for measurement in result.measurements)
    assert first == second >= 8
    assert result.comparisons[0].outcome == "not judged"
    assert any("the actions were not compared: 'here' failed" in note for note in result.notes)


def test_verify_says_whether_the_actions_are_the_same(checkout: Path, tmp_path: Path):
    sides = [HERE, SideOptions("changed", lerobot=str(checkout))]
    result = verify_environment(tiny(), SidesOptions(sides, threads=1), Guards(), tmp_path, Silent(), count=4)
    assert result.outcome == "broken"
    assert result.passes[0].first is not None
    assert result.passes[0].first.stage == "decoder"


def test_a_checkout_that_cannot_be_imported_is_one_line(checkout: Path, tmp_path: Path):
    broken = tmp_path / "broken" / "lerobot"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('needs a newer torch')\n")
    (tmp_path / "parcel").mkdir()
    with pytest.raises(UserError, match="'next' failed: ImportError: needs a newer torch") as raised:
        compare_environments(
            tiny(),
            SidesOptions([HERE, SideOptions("next", lerobot=str(tmp_path / "broken"))]),
            ROUNDS,
            tmp_path / "parcel",
            Silent(),
        )
    assert "\n" not in str(raised.value)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["diffusion", "smolvla", "pi05", "vqbet", "tdmpc"])
def test_policies_of_other_kinds_travel(kind: str, tmp_path: Path):
    result = verify_environment(
        tiny(kind), SidesOptions([HERE, SideOptions("same")], threads=1), Guards(), tmp_path, Silent(), count=4
    )
    assert result.outcome == "held", [*result.notes, *(check.broken or check.unjudged for check in result.checks)]
    assert result.passes[0].stages == []
