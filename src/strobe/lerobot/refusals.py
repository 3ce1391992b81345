"""Report refusals of LeRobot, a policy or the Hub in one line: the cause, and the command that fixes it."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
import urllib.error
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from strobe.core.errors import UserError, install

# Names of arguments under which LeRobot, transformers and huggingface_hub pass the name of a repository.
_NAMES = ("repo_id", "pretrained_model_name_or_path", "path_or_repo_id", "model_id", "repo")
_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+$")
_NO_HUB = re.compile(
    r"huggingface\.co|huggingface hub|couldn't connect|offline mode|HF_HUB_OFFLINE"
    r"|does not appear to have a file named",
    re.IGNORECASE,
)
# Words of allocators that have run out: CUDA's and MPS's as torch passes them on, the CPU's, oneDNN's, and those of
# CUDA's libraries with memory of their own (CUBLAS_STATUS_ALLOC_FAILED, cuDNN's and cuSOLVER's likewise).
_NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory",
              "status_alloc_failed", "device_allocation_failed")  # fmt: skip
_TOO_LONG = 200  # characters of a cause
_PLUG_IN = "lerobot_policy_"  # begins the name of a package that brings a policy
_POLICIES = re.compile(rf"^(lerobot\.policies\.|{_PLUG_IN})")  # names of modules that policies live in
_PROBE = "strobe.core.timeline.probe"  # stands between a policy's own calls
WHOLE = "STROBE_TRACEBACK=1 shows all of it"


@contextlib.contextmanager
def convert_errors(kind: str) -> Iterator[None]:
    """Turn whatever making a policy of type ``kind`` raises into a `UserError` of one line.

    The line names the extra if a package is missing, the repository if the Hub cannot be reached, and else the type of
    policy, the version of LeRobot and the cause.

    Raises:
        UserError: for whatever was raised inside. A UserError and a lack of memory pass unchanged.
    """
    try:
        yield
    except SystemExit as error:
        raise UserError(
            f"a policy of type '{kind}' ends the program while it is built: exit code {error.code}"
        ) from error
    except Exception as error:
        if ran_out(error):  # not the policy's fault, and reported elsewhere
            raise
        raise make_refusal(
            error, f"LeRobot {metadata.version('lerobot')} cannot make a policy of type '{kind}'"
        ) from error


def make_refusal(error: BaseException, what: str) -> UserError:
    """Return ``error``, or its cause, as a line for the user.

    Args:
        what: the task that failed, for a cause that is neither a missing package nor the Hub.
    """
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, UserError):
            return link
    for link in chain:
        if isinstance(link, ImportError):
            return _missing_package(link)
    if is_hub_error(error):
        return UserError(_unreachable(chain))
    if isinstance(error, (ValueError, NotImplementedError)):
        return UserError(f"LeRobot refuses this policy: {first_line(error)}")
    return UserError(f"{what}: {type(error).__name__}: {first_line(error)}")


def ran_out(error: BaseException) -> bool:
    """Return whether the error says that memory ran out, on the CPU or a device."""
    text = str(error).lower()
    kind = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return kind or any(words in text for words in _NO_MEMORY)


def outside_error_line(error: BaseException) -> str | None:
    """Return a line on a failure of the Hub, or of a policy's own code while it ran."""
    if is_hub_error(error):
        return str(make_refusal(error, ""))
    place = _policy_code_line(error)
    return place and f"the policy's own code failed in {place}: {type(error).__name__}: {first_line(error)} ({WHOLE})"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that is not empty, cut to a line's length; without one, its type."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text[:_TOO_LONG]


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def _missing_package(error: ImportError) -> UserError:
    extra = re.search(r"lerobot\[([\w-]+)\]", str(error))
    if extra is not None:
        return UserError(f"this policy needs an extra: {install(extra[1])}")
    if error.name:
        package = error.name.split(".")[0]
        if find_spec(package) is None:
            name = _required_name(package)
            how = f": pip install {name}" if name else ""
            return UserError(f"this policy needs the package {package}, which is not installed{how}")
        if package.startswith(_PLUG_IN):
            return UserError(f"the plug-in {_package_version(package)} is incomplete: it has no {_missing_name(error)}")
        return UserError(
            f"this policy was made for another version: {_package_version(package)} has no {_missing_name(error)}"
        )
    return UserError(f"a package is missing for this policy: {first_line(error)}")


def _required_name(package: str) -> str | None:
    """Return the name by which an installed plug-in's metadata requires ``package``; None if none does."""
    for plug_in in metadata.distributions():
        if _plain(plug_in.name or "").startswith(_plain(_PLUG_IN)):
            names = (re.split(r"[^\w.-]", required, maxsplit=1)[0] for required in plug_in.requires or ())
            if (required_name := next((name for name in names if _plain(name) == _plain(package)), None)) is not None:
                return required_name
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _package_version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return package


def _missing_name(error: ImportError) -> str:
    name = re.search(r"cannot import name '([^']+)'", str(error))
    return f"'{error.name}.{name[1]}'" if name is not None else f"'{error.name}'"


def is_hub_error(error: BaseException) -> bool:
    """Return whether the Hub caused ``error``: it could not be reached, or did not give something."""
    return any(_is_the_hubs(link) for link in _chain(error))


def _is_the_hubs(error: BaseException) -> bool:
    if "huggingface_hub" not in sys.modules:  # without it nothing asked the Hub
        return False
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    if isinstance(error, (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, urllib.error.URLError)):
        return True
    return isinstance(error, (OSError, RuntimeError)) and bool(_NO_HUB.search(str(error)))


def _unreachable(chain: list[BaseException]) -> str:
    names = [name for error in chain for name in _repositories(error)]
    if not names and (file := next(filter(None, map(_download_url, chain)), None)):
        return (
            f"this policy reads {file}, which cannot be reached: make the policy once on a machine with a network, "
            "and copy torch's cache (TORCH_HOME) here; a backbone begins without them with "
            "--policy.pretrained_backbone_weights=null"
        )
    if not names:
        return f"this policy reads from the Hub, which cannot be reached: {first_line(chain[0])}"
    return (
        f"this policy reads {names[0]} from the Hub, which cannot be reached: on a machine with a network run `hf "
        f"download {names[0]}`, and copy the cache (HF_HOME) here"
    )


def _repositories(error: BaseException) -> Iterator[str]:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for name in _NAMES:
            value = frame.f_locals.get(name)
            if isinstance(value, str) and _REPOSITORY.match(value) and not Path(value).exists():
                yield value


def _download_url(error: BaseException) -> str | None:
    """Return the address that torch was loading weights from when ``error`` was raised."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") == "torch.hub" and isinstance(url := frame.f_locals.get("url"), str):
            return url
    return None


def _policy_code_line(error: BaseException) -> str | None:
    """Return the innermost line of a policy's code that ``error`` came through; None if the error is Strobe's own."""
    place, frames = None, list(traceback.walk_tb(error.__traceback__))
    last = frames[-1][0] if frames else None
    for frame, line in frames:
        name = str(frame.f_globals.get("__name__", ""))
        if name == _PROBE and frame is not last:
            continue
        if name.startswith("strobe."):
            place = None  # called back from there
        elif _POLICIES.match(name):
            place = f"{name}, line {line}"
    return place
