"""Versions: those that Strobe was tested with, newer ones, and those too old; and what is not installed."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from strobe.core.errors import DISTRIBUTION, install
from strobe.doctor.results import Outcome, SelfCheck

# The versions that the test suite runs with (requirements/lock.txt); a test holds the two together.
TESTED: Mapping[str, str] = {
    "lerobot": "0.6.1",
    "torch": "2.11.0",
    "transformers": "5.5.4",
    "diffusers": "0.39.0",
    "numpy": "2.2.6",
    "accelerate": "1.15.0",
    "torchcodec": "0.11.1",
    "av": "15.1.0",
    "torchao": "0.18.0",
    "openvino": "2026.4.1",
    "ray": "2.60.0",
    "mujoco": "3.16.0",
}
PYTHON = ((3, 12), (3, 12))  # the oldest that works, and the one that the suite runs on
NO_EXTRAS = ("all", "dev")  # Strobe's extras that combine others, or that only its developers need


def examine(installed: Mapping[str, str] | None = None) -> Iterator[SelfCheck]:
    """Compare what is installed with what was tested and what is required.

    Args:
        installed: package → version, of those that are there; by default this environment's.
    """
    yield _python(sys.version_info[:2])
    present = _installed_versions(TESTED) if installed is None else dict(installed)
    required = _required_versions()
    for name, tested in TESTED.items():
        if name in present:
            yield judge_version(name, present[name], tested, required.get(name))


def extras(installed: Iterable[str] | None = None) -> Iterator[SelfCheck]:
    """Say which of Strobe's extras are there.

    Args:
        installed: names of packages; by default this environment's.
    """
    present = {_plain(name) for name in (installed or (distribution.name for distribution in metadata.distributions()))}
    for extra, needs in _extras().items():
        missing = [name for name in needs if _plain(name) not in present]
        yield SelfCheck.judge(
            "tools",
            f"extra '{extra}'",
            not missing,
            f"not installed: {', '.join(missing)}" if missing else ", ".join(needs),
            "A command that needs it says so in one line.",
            install(extra),
            bad="missing",
        )


def judge_version(name: str, version: str, tested: str, required: Requirement | None) -> SelfCheck:
    """Judge one package's version: known, newer than tested, older than tested, or too old."""
    try:
        here, known = Version(version), Version(tested)
    except InvalidVersion:
        return _check(name, "doubtful", f"{version}: no version that can be compared", "It was never tested.", "")
    if required is not None and not required.specifier.contains(here, prereleases=True):
        newer = here > known
        means = "newer than Strobe allows" if newer else "too old for Strobe"
        return _check(
            name,
            "fails",
            f"{version}; required: {required.specifier}",
            f"It is {means}: parts may not be found, or be found wrongly.",
            f"pip install '{name}=={tested}'",
        )
    # Local parts (2.11.0+cu128) and patch releases are the same for us.
    if here.release[:2] == known.release[:2]:
        return _check(name, "holds", f"{version}; tested: {tested}", "", "")
    age, allowed = ("Newer", "") if here > known else ("Older", ", and allowed")
    means = (
        f"{age} than the version that Strobe was tested with{allowed}: probes that do not fit say so, and the figures "
        "are valid."
    )
    return _check(
        name, "doubtful", f"{version}; tested: {tested}", means, f"pip install '{name}=={tested}' if in doubt"
    )


def _python(version: tuple[int, int]) -> SelfCheck:
    oldest, tested = PYTHON
    seen = f"{platform.python_version()}; tested: {tested[0]}.{tested[1]}"
    if version > tested:
        return _check("python", "doubtful", seen, "Newer than the version that Strobe was tested with.", "")
    return _check("python", "holds" if version >= oldest else "fails", seen, "", "")


def _check(name: str, outcome: Outcome, seen: str, means: str, do: str) -> SelfCheck:
    return SelfCheck(area="versions", name=name, outcome=outcome, seen=seen, means=means, do=do)


def _installed_versions(names: Iterable[str]) -> dict[str, str]:
    present = {}
    for name in names:
        try:
            present[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return present


def _required_versions() -> dict[str, Requirement]:
    every = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    return {
        requirement.name: requirement
        for requirement in every
        if requirement.name in TESTED and len(requirement.specifier)
    }


def _extras() -> dict[str, list[str]]:
    """Each extra of Strobe → the packages it names; for an extra that is LeRobot's, those that LeRobot's names."""
    named = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    needed = {extra: sorted({*_extra_requirements(DISTRIBUTION, extra)}) for extra in named if extra not in NO_EXTRAS}
    return {extra: packages for extra, packages in needed.items() if packages}


def _extra_requirements(package: str, extra: str) -> list[str]:
    packages: list[str] = []
    for text in metadata.requires(package) or ():
        requirement = Requirement(text)
        if requirement.marker is None or not _is_only_for_extra(requirement, extra):
            continue
        if requirement.extras:
            packages += [
                name for nested in requirement.extras for name in _extra_requirements(requirement.name, nested)
            ]
        else:
            packages.append(requirement.name)
    return packages


def _is_only_for_extra(requirement: Requirement, extra: str) -> bool:
    assert requirement.marker is not None
    return requirement.marker.evaluate({"extra": extra}) and not requirement.marker.evaluate({"extra": ""})


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
