"""Plant faults in rehearsals and see that each yields its finding, and no other.

Each case is a `strobe rehearse` in a process of its own: LeRobot's rollout at 30 Hz, its driver, emulated servos, two
cameras, a tiny policy of random weights. Nothing else may run on the machine: LeRobot's driver waits 50 ms for an
answer, and a busy machine is a fault of its own, which would be found.

    python benchmarks/rehearsal_faults.py [--quick] [--only NAME,NAME]

The last line is JSON: `holds` is whether in each case the findings were those planted. `--quick` runs each once, the
full one three times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from common.shared import finish, need
from rich.console import Console
from rich.table import Table

SECONDS = 8
CAMERA = "{type: opencv, index_or_path: 0, fps: 30, width: 160, height: 120}"
RTC = ("--policy.type=smolvla", "--inference.type=rtc", "--inference.rtc.execution_horizon=10")
ACT = ("--policy.type=act", "--policy.chunk_size=300", "--policy.n_action_steps=300")
FEW = ("--policy.type=act", "--policy.chunk_size=5", "--policy.n_action_steps=5")
OFTEN = ("--policy.type=act", "--policy.chunk_size=30", "--policy.n_action_steps=30")


@dataclass(frozen=True)
class Case:
    """Faults as they are asked for, and the rules whose findings are due."""

    name: str
    faults: tuple[str, ...]
    due: frozenset[str]
    given: tuple[str, ...] = ACT
    robot: str = "so101_follower"
    may: frozenset[str] = field(default_factory=frozenset)  # follow from the fault in some runs
    code: str = ""  # what else is planted: it runs before the command


def case(
    name: str, faults: list[str], due: str, given: tuple[str, ...] = ACT, may: str = "", robot: str = "so101_follower"
) -> Case:
    return Case(name, tuple(faults), frozenset(due.split()), given, robot, frozenset(may.split()))


def plant(name: str, code: str, due: str, may: str = "", given: tuple[str, ...] = ACT) -> list[Case]:
    """A fault in LeRobot's own classes, and its sound twin: the same code, in which PLANTED is False."""
    rules, also = frozenset(due.split()), frozenset(may.split())
    return [
        Case(name, (), rules, given, may=also, code=f"PLANTED = True\n{code}"),
        Case(f"sound: {name}", (), frozenset(), given, may=also, code=f"PLANTED = False\n{code}"),
    ]


NAN = """
from lerobot.policies.act.modeling_act import ACTPolicy
inner = ACTPolicy.predict_action_chunk
def predict_action_chunk(self, *args, **kwargs):
    actions = inner(self, *args, **kwargs).clone()
    actions[:, 30:] *= float("nan") if PLANTED else 1
    return actions
ACTPolicy.predict_action_chunk = predict_action_chunk
"""
GROWS = """
import time
from lerobot.policies.act.modeling_act import ACTPolicy
inner, history = ACTPolicy.predict_action_chunk, []
def predict_action_chunk(self, *args, **kwargs):
    history.append(args)
    time.sleep(0.002 * len(history) if PLANTED else 0.002)
    return inner(self, *args, **kwargs)
ACTPolicy.predict_action_chunk = predict_action_chunk
"""
RAISES = """
from lerobot.robots.so_follower.so_follower import SOFollower
inner = SOFollower.disconnect
def disconnect(self):
    if PLANTED:
        raise RuntimeError("the bus is gone")
    inner(self)
SOFollower.disconnect = disconnect
"""
HANGS = f"""
import time
from lerobot.robots.so_follower.so_follower import SOFollower
inner, begun = SOFollower.get_observation, []
def get_observation(self):
    begun.append(time.monotonic())
    first = begun[min(1, len(begun) - 1)]
    if PLANTED and begun[-1] - first > {SECONDS} - 0.034 and len(begun) > 30:
        time.sleep(3)
    return inner(self)
SOFollower.get_observation = get_observation
"""
START = "import sys\nfrom strobe.core.cli.main import main\nsys.exit(main())"


CASES = [
    case("nothing, sync", [], ""),
    case("nothing, RTC", [], "", RTC),
    case("lost answers", [f"lost,servo=6,when={second}" for second in (1, 2, 3, 4)], "lost-answers"),
    case("damaged answers", [f"corrupt,servo=6,when={second}" for second in (1, 2, 3, 4)], "damaged-answers"),
    case("short answers", [f"short,servo=6,when={second}" for second in (1, 2, 3, 4)], "damaged-answers"),
    case("all answers 60 ms late, once", ["late,seconds=0.06"], "stale-observations"),
    case("a slow servo", ["slow,servo=3,seconds=0.01,when=0"], "slow-bus"),
    case("a dead servo", ["dead,servo=3,when=2"], "motors-gone torque-left-on"),
    case("a pulled plug", ["unplugged,when=2"], "motors-gone torque-left-on"),
    case("a servo in error at the end", ["error-bits,servo=2,when=end"], "torque-left-on"),
    case("a camera that stalls", ["camera-gap,camera=front,when=3,seconds=0.4"], "camera-stall"),
    case("a camera slower than asked", ["camera-rate,camera=wrist,fps=10"], "repeated-frames"),
    case("a camera whose picture freezes", ["camera-freeze,camera=front,when=3,seconds=0.4"], "camera-frozen"),
    case("a camera whose frames come late", ["camera-late,camera=front,ms=150"], "old-frames"),
    case("inference of 100 ms more, sync", ["inference,ms=100"], "slow-inference", OFTEN),
    case("inference of 300 to 400 ms more, RTC", ["inference,ms=300,spread_ms=100"], "", RTC),
    case("a first call of 700 ms", ["inference,ms=700,call=0"], "poisoned-delay", RTC),
    case("a later call of 700 ms", ["inference,ms=700,call=3"], "poisoned-delay", RTC),
    case("calls longer than a chunk", ["inference,ms=2500"], "never-moves", RTC),
    case("calls as long as half a chunk", ["inference,ms=1000"], "starvation", RTC),
    case("busy processes", ["busy,processes=6"], "busy-machine", may="lost-answers"),
    case("a busy thread, sync", ["busy,threads=1"], "threads-fight"),
    case("a busy thread, RTC", ["busy,threads=1"], "threads-fight", RTC),
    case("nothing, Koch", [], "", robot="koch_follower"),
    case("a lost answer, Koch", ["lost,servo=3,when=3"], "motors-gone", robot="koch_follower"),
    case("a damaged answer, Koch", ["corrupt,servo=3,when=3"], "motors-gone", robot="koch_follower"),
    case("all answers 60 ms late, once, Koch", ["late,seconds=0.06,when=3"], "motors-gone", robot="koch_follower"),
    case("a slow servo, Koch", ["slow,servo=3,seconds=0.01,when=0"], "slow-bus", robot="koch_follower"),
    case("a dead servo, Koch", ["dead,servo=3,when=2"], "motors-gone torque-left-on", robot="koch_follower"),
    case("a servo in error at the end, Koch", ["error-bits,servo=2,when=end"], "torque-left-on", robot="koch_follower"),
    case("nothing, OMX", [], "", robot="omx_follower"),
    case("nothing, two arms", [], "", robot="bi_so_follower"),
    case("damaged answers of the right arm", [f"corrupt,servo=6,arm=right,when={second}" for second in (1, 2, 3)],
         "damaged-answers", robot="bi_so_follower"),
    *plant("a policy that gives NaN", NAN, "not-finite", may="torque-left-on"),
    *plant("a policy whose calls grow", GROWS, "calls-grow", "slow-inference", FEW),
    *plant("a disconnect that raises", RAISES, "torque-left-on"),
    *plant("a bus that hangs in the last tick", HANGS, "device-stall"),
]  # fmt: skip


def find_fired_rules(one: Case, folder: Path) -> tuple[set[str], str]:
    """The rules that fired, and the answer's sentence."""
    ours = [f"--fault={fault}" for fault in one.faults]
    theirs = [
        f"--robot.type={one.robot}", f"--robot.cameras={{front: {CAMERA}, wrist: {CAMERA}}}", "--device=cpu",
        "--task=push", "--fps=30", f"--duration={SECONDS}", "--play_sounds=false", "--return_to_initial_position=false",
        *one.given,
    ]  # fmt: skip
    code = f"{one.code}\n{START}"
    command = [sys.executable, "-c", code, "rehearse", f"--output_dir={folder}", *ours, "--", *theirs]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    results = sorted(folder.glob("*/result.json"))
    if not results:
        return {"no answer"}, (ran.stderr.strip().splitlines() or ["nothing said"])[-1]
    told = json.loads(results[-1].read_text())
    return {each["rule"] for each in told["findings"]}, told["rollout"]["sentence"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="each case once: about seven minutes")
    parser.add_argument("--only", default="", help="names of cases, or their beginnings")
    arguments = parser.parse_args()
    need("robot", "smolvla")
    names = [name for name in arguments.only.split(",") if name]
    cases = [one for one in CASES if not names or any(one.name.startswith(name) for name in names)]
    table = Table("planted", "findings", "due")
    right, wrong, start = 0, [], time.monotonic()
    for turn in range(1 if arguments.quick else 3):
        for one in cases:
            with tempfile.TemporaryDirectory() as folder:
                rules, sentence = find_fired_rules(one, Path(folder))
            good = one.due <= rules <= one.due | one.may | {"wild-commands"}  # random weights send what they like
            right += good
            if not good:
                wrong.append({"case": one.name, "findings": sorted(rules), "due": sorted(one.due), "said": sentence})
            table.add_row(one.name, ", ".join(sorted(rules)) or "none", "yes" if good else ", ".join(one.due) or "none")
            print(f"{turn + 1}: {one.name}: {', '.join(sorted(rules)) or 'none'} ({sentence})", file=sys.stderr)
    Console().print(table)
    told = {"quick": arguments.quick, "runs": right + len(wrong), "as_planted": right, "wrong": wrong}
    finish({**told, "seconds": round(time.monotonic() - start)}, not wrong)


if __name__ == "__main__":
    main()
