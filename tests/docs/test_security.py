"""Each statement of SECURITY.md has the tests that hold it, and each size that it names is the one in force."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.suite.places import ROOT

from strobe.core import untrusted
from strobe.core.errors import UserError
from strobe.core.processes.command import PYTHON_M
from strobe.core.report import html
from strobe.core.report.document import Clip, ClipRow
from strobe.core.runs import recipe_file
from strobe.evaluate import episode_log
from strobe.export import exported, prompt
from strobe.loops import event_log
from strobe.preflight.wiring.read import read_wiring
from strobe.servers.protocols import lerobot_messages, wire
from strobe.sweep import grid
from strobe.traces import occupancy, trace_file
from strobe_zoo import groot_server

HERE = "tests/docs/test_security.py"
RECORDINGS, MESSAGES = "tests/rollout/test_damaged_recording.py", "tests/servers/test_lerobot_messages.py"
DAMAGE = "tests/export/test_damage.py"
CONTENTS, REPLAY = "tests/core/runs/test_contents.py", "tests/replay/test_replay_policy.py"
HELD = {
    "A checkpoint that you name is trusted": ["tests/lerobot/test_refusals.py::test_a_policys_own_code_that_fails"],
    "An export is code.": [
        "tests/export/test_export.py::test_its_program_runs_without_torch",
        f"{DAMAGE}::test_the_damaged_file_is_named_before_anything_is_run",
    ],
    "A factory is code": ["tests/lerobot/test_factory.py::test_a_file_that_cannot_be_imported_is_one_line"],
    "Packages that register families, treatments or rules": [
        "tests/lerobot/test_foreign.py::test_its_treatment_and_its_steps_are_compared"
    ],
    "LeRobot's remote inference trusts its peer.": [
        f"{MESSAGES}::test_an_answer_changes_nothing_in_this_process",
        "tests/plugin/test_hook.py::test_the_policy_server_gets_plugins_and_its_own_arguments",
    ],
    "Results, recipes, traces, sweeps, tables of trials, episode logs and recordings": [
        f"{CONTENTS}::test_a_recipe_that_grows_is_a_line", f"{RECORDINGS}::test_odd_events_are_counted_and_left_out",
        "tests/traces/test_trace_command.py::test_a_hostile_trace_gives_what_it_has",
    ],
    "A sweep's file sets plain values.": ["tests/sweep/test_grid.py::test_a_file_sets_values_and_names_no_code"],
    "A folder adds no code.": [
        f"{DAMAGE}::test_a_prompt_of_the_usual_size_is_read_and_its_program_imports_nothing_beside_it",
        f"{HERE}::test_a_process_imports_nothing_from_the_current_folder",
    ],
    "A result's figures are numbers.": ["tests/core/runs/test_store.py::test_the_first_wrong_field_is_named"],
    "A page shows text as text": [
        "tests/core/report/test_html.py::test_nothing_from_outside_runs_or_becomes_markup",
        "tests/core/report/test_hostile_text.py::test_a_page_gets_no_elements_and_no_attributes",
        f"{HERE}::test_a_page_holds_no_file_from_outside_of_its_run",
    ],
    "What a run names is a stranger's word unless you recorded it.": [
        f"{REPLAY}::test_a_strangers_run_names_no_policy", f"{REPLAY}::test_a_strangers_arguments_are_settings_alone",
        f"{REPLAY}::test_ones_own_run_is_known_by_its_seal_alone",
    ],
    "A tuning's run names no policy for trials.": [
        "tests/trials/test_trials_of_tuning.py::test_a_run_sets_no_flag_that_loads_something"
    ],
    "Preflight reads a checkpoint's files": [f"{HERE}::test_preflight_runs_nothing_that_a_checkpoint_names"],
    "A damaged recording says so.": [
        f"{RECORDINGS}::test_what_is_lost_is_said_first", f"{RECORDINGS}::test_odd_events_are_counted_and_left_out",
        f"{RECORDINGS}::test_a_recording_of_an_older_strobe_has_no_end_and_no_fault",
    ],
    "Nothing is sent.": [f"{HERE}::test_no_module_has_a_client_of_its_own"],
    "A file is plain and bounded.": [
        f"{CONTENTS}::test_a_file_without_an_end_is_a_line", f"{HERE}::test_sizes_are_those_in_force",
    ],
    "A packed recording unpacks to a hundred times its size": [
        f"{RECORDINGS}::test_a_recording_of_years_or_of_more_bytes_than_it_has_is_refused"
    ],
    "A trace has up to 2 GiB of JSON": [
        "tests/traces/test_trace_file.py::test_more_than_fits_in_memory_is_refused_before_it_is_unpacked",
        "tests/traces/test_annotations.py::test_a_path_of_annotations_has_a_bound",
    ],
    "An export asks for little.": [f"{DAMAGE}::test_odd_values_in_the_manifest_are_a_line"],
    "A server's answer has up to 8 MiB.": [f"{MESSAGES}::test_an_answer_takes_no_more_memory_than_it_weighs"],
    "A server's answer changes nothing here.": [f"{MESSAGES}::test_an_answer_changes_nothing_in_this_process"],
    "A server's chunk is looked at.": [
        "tests/servers/test_policy_servers.py::test_a_finding_says_what_the_server_said_and_what_to_do"
    ],
    "A server may ask for an observation of 128 MiB": [
        "packages/strobe_zoo/tests/test_groot_messages.py::test_maps_that_are_no_array_are_refused",
        "packages/strobe_zoo/tests/test_groot_messages.py::test_a_server_that_asks_for_too_much_is_refused",
    ],
    "A call of a server ends": ["tests/servers/test_policy_servers.py::test_a_server_that_says_nothing_is_silent"],
    "No name of a file costs the others.": [f"{CONTENTS}::test_a_name_that_is_no_utf_8_costs_no_page"],
}  # fmt: skip


def _text() -> str:
    return (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_each_statement_has_its_tests() -> None:
    assert re.findall(r"^- \*\*(.+?)\*\*", _text(), re.MULTILINE) == list(HELD)
    for held in (test for tests in HELD.values() for test in tests):
        file, _, name = held.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), held


def test_sizes_are_those_in_force() -> None:
    said = " ".join(_text().split())
    mebi, kibi = 2**20, 2**10
    for words in (
        f"{untrusted.MOST // mebi} MiB of a result", f"{recipe_file.MOST_BYTES // kibi} KiB of a recipe",
        f"{grid.MOST_YAML // mebi} MiB of a sweep", f"{episode_log.MOST_BYTES // mebi} MiB of an episode log",
        f"{event_log.MOST_UNPACKED[1] // mebi} MiB, and its lines have up to {event_log.LONGEST // mebi} MiB",
        f"has up to {wire.MESSAGE_BYTES // mebi} MiB", f"tensors take up to {lerobot_messages.MOST_MADE // mebi} MiB",
        f"up to {lerobot_messages.MOST_NUMBERS:,} numbers", f"an observation of {groot_server.MOST_ASKED // mebi} MiB",
        f"name {groot_server.MOST_LISTED:,} parts", f"noise has up to {exported.MOST_DRAWN:,} numbers",
        f"its prompt up to {prompt.MOST:,} tokens",
    ):  # fmt: skip
        assert words in said
    assert (event_log.MOST_UNPACKED[0], trace_file.MOST_UNPACKED[0], occupancy.DEEPEST) == (100, 40, 64)


def test_a_process_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    for name in ("json", "signal", "psutil"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    ran = subprocess.run([*PYTHON_M, "strobe.core.processes.command"], cwd=tmp_path, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_no_module_has_a_client_of_its_own() -> None:
    clients = re.compile(r"^\s*(?:import|from) (?:requests|httpx|urllib3|http\.client|urllib\.request|aiohttp)\b", re.M)
    source = ROOT / "src" / "strobe"
    assert [str(file) for file in source.rglob("*.py") if clients.search(file.read_text(encoding="utf-8"))] == []


def test_a_page_holds_no_file_from_outside_of_its_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (run / "own.mp4").write_bytes(b"own")
    files = ["own.mp4", "../secret.mp4", str(tmp_path / "secret.mp4")]
    assert list(html.media([ClipRow("", [Clip("", "", True, file) for file in files])], run)) == ["own.mp4"]


def test_preflight_runs_nothing_that_a_checkpoint_names(tmp_path: Path) -> None:
    state: dict[str, Any] = {"type": "STATE", "shape": [6]}
    config = {"type": "act", "input_features": {"observation.state": state}, "output_features": {"action": state}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"weight": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    ran: list[str] = []
    watched = [True]
    sys.addaudithook(
        lambda event, _: ran.append(event) if watched and event in ("subprocess.Popen", "os.system") else None
    )
    processor = tmp_path / "policy_preprocessor.json"
    try:
        for step in (
            {"class": "subprocess.Popen", "config": {"args": "true"}},
            {"registry_name": "evil", "class": "os.system", "config": {"command": "true"}},
        ):
            processor.write_text(json.dumps({"name": "x", "steps": [step]}))
            assert read_wiring(tmp_path).policy == "act"
        outside = {"registry_name": "normalizer_processor", "config": {}, "state_file": "../outside.safetensors"}
        processor.write_text(json.dumps({"name": "x", "steps": [outside]}))
        with pytest.raises(UserError, match="are not a list of steps"):
            read_wiring(tmp_path)
    finally:
        watched.clear()
    assert ran == []
