"""Look into a wheel and an sdist: what must be there is there, and nothing else of this checkout.

    python scripts/wheel_contents.py dist/*.whl dist/*.tar.gz

Exit code 1 with a line for each thing that is wrong.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 200_000  # bytes of a file
DEMO = "strobe/core/demo/checkpoint/model.safetensors"  # the weights of the policy that comes along
LARGER = {DEMO: 2_000_000}
NEEDED = (
    "strobe/py.typed",
    "strobe/core/cli/main.py",
    "strobe/core/report/page.html.j2",
    "strobe/core/report/page.css",
    DEMO,
)
FIELDS = ("Summary", "Requires-Python", "License-Expression", "License-File", "Classifier", "Description-Content-Type")


def main(paths: list[str]) -> int:
    """Print what is wrong with the files; return the exit code."""
    wrong = [f"{Path(path).name}: {fault}" for path in paths for fault in faults(Path(path))]
    print(
        "\n".join(wrong) or "wheel: the wheel and the sdist hold what they should", file=sys.stderr if wrong else None
    )
    return 1 if wrong or not paths else 0


def faults(path: Path) -> list[str]:
    """Return what is wrong with a wheel or an sdist, in words."""
    return check_wheel(path) if path.suffix == ".whl" else check_sdist(path)


def check_wheel(path: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    with zipfile.ZipFile(path) as wheel:
        files = {info.filename: info.file_size for info in wheel.infolist()}
        described = {name: wheel.read(name).decode() for name in files if name.endswith(".dist-info/METADATA")}
    wrong = [f"{name} is missing" for name in (*NEEDED, *sources()) if name not in files]
    wrong += [f"{name} does not belong there" for name in files if not belongs(name)]
    wrong += [f"{name} has {size:,} bytes" for name, size in files.items() if size > LARGER.get(name, LARGEST)]
    if not any(name.endswith("licenses/LICENSE") for name in files):
        wrong.append("the licence is missing")
    for text in described.values():
        fields = Parser().parsestr(text)
        wrong += [f"METADATA has no {name}" for name in FIELDS if not fields.get(name)]
        wrong += [f"METADATA names {ROOT}"] * (str(ROOT) in text)
        if fields["Version"] != version():
            wrong.append(f"version {fields['Version']}, not {version()}")
    return wrong + ["METADATA is missing"] * (not described)


def check_sdist(path: Path) -> list[str]:
    """Return what is wrong with an sdist."""
    with tarfile.open(path) as sdist:
        files = {member.name.partition("/")[2]: member.size for member in sdist.getmembers() if member.isfile()}
    needed = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", *(f"src/{name}" for name in NEEDED))
    wrong = [f"{name} is missing" for name in needed if name not in files]
    wrong += [f"{name} does not belong there" for name in files if name.startswith(("tests/", "docs/", "packages/"))]
    sizes = {name.removeprefix("src/"): size for name, size in files.items()}
    return wrong + [f"{name} has {size:,} bytes" for name, size in sizes.items() if size > LARGER.get(name, LARGEST)]


def sources() -> list[str]:
    """Return every file of the package in the checkout that a wheel must hold."""
    kept = (".py", ".j2", ".css", ".js", ".typed")
    found = (ROOT / "src" / "strobe").rglob("*")
    return [str(path.relative_to(ROOT / "src")) for path in found if path.suffix in kept or path.name == "py.typed"]


def belongs(name: str) -> bool:
    """Whether a file of a wheel is the package's, or tells about it."""
    return name.startswith("strobe/") or name.partition("/")[0].endswith(".dist-info")


def version() -> str:
    """Return the version that `src/strobe/version.py` says, which is the one place for it."""
    text = (ROOT / "src" / "strobe" / "version.py").read_text()
    return text.partition('__version__ = "')[2].partition('"')[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
