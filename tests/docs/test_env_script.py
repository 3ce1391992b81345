"""scripts/env.sh where the first minute goes wrong: each ends in one line that says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.suite.places import ROOT

TOOLS = ("bash", "cat", "cksum", "df", "awk", "dirname", "touch", "rm", "mkdir", "uname", "env")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a script for bash")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the script reads, and a PATH with nothing on it but the usual tools."""
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    for name in ("scripts/env.sh", "requirements/lock.txt", "requirements/uv.txt", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for plugin in (ROOT / "packages").iterdir():
        (tmp_path / "packages" / plugin.name).mkdir(parents=True)
        shutil.copy(plugin / "pyproject.toml", tmp_path / "packages" / plugin.name)
    return tmp_path


def program(checkout: Path, name: str, script: str) -> None:
    path = checkout / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
    path.chmod(0o755)


def run(checkout: Path) -> tuple[int, list[str]]:
    """Exit code and lines on stderr."""
    environment = {"PATH": str(checkout / "bin"), "HOME": str(checkout), "PYENV_ROOT": str(checkout / "none")}
    done = subprocess.run(
        [str(checkout / "scripts" / "env.sh")], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr.splitlines()


def test_no_python(checkout):
    assert run(checkout) == (
        2,
        ["No Python 3.12 or 3.13 found: install uv (https://docs.astral.sh/uv) or Python 3.12, then run this again."],
    )


def test_a_python_that_is_too_old_is_none(checkout):
    program(checkout, "python3", "exit 1")
    assert run(checkout)[1][0].startswith("No Python 3.12 or 3.13 found")


def test_little_room(checkout):
    program(checkout, "df", "echo head; echo /dev/a 1 1 2097152 1% /")
    assert run(checkout) == (2, ["The packages need 9 GB, and 2 GB are free here: make room, then run this again."])


def test_an_old_mac(checkout):
    program(checkout, "uname", '[ "$1" = -s ] && echo Darwin || echo x86_64')
    code, (line,) = run(checkout)
    assert code == 2
    assert "no longer built for Macs with Intel processors" in line


def test_no_connection_says_so_and_the_next_run_starts_afresh(checkout):
    # A Python that makes environments, in which nothing can be fetched.
    made = 'mkdir -p "${@: -1}/bin"; cp "$0" "${@: -1}/bin/python"; chmod +x "${@: -1}/bin/python"; exit 0'
    program(
        checkout,
        "python3.12",
        f'case "$*" in *"-m venv"*) {made};; *--version*) echo Python 3.12.1;;'
        ' *"-m pip"*) echo "no route" >&2; exit 1;; *) exit 0;; esac',
    )
    (checkout / "bin" / "cp").symlink_to(str(shutil.which("cp")))
    (checkout / "bin" / "chmod").symlink_to(str(shutil.which("chmod")))
    code, lines = run(checkout)
    assert code == 2
    assert lines[0] == "no route"
    assert "The packages could not be installed (above is why)" in lines[-1]
    assert "HTTPS_PROXY" in lines[-1]
    assert (checkout / ".venv" / ".strobe-unfinished").exists()
    assert not (checkout / ".venv" / ".strobe-ready").exists()
    assert os.access(checkout / ".venv" / "bin" / "python", os.X_OK)
