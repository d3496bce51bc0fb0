"""The machine and the packages that a run is made with."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import stat
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ocssl.common.files import writing
from ocssl.data.cache import cache_root
from ocssl.distributed import current
from ocssl.errors import ConfigError
from ocssl.version import __version__

RUNS_AT_ONCE = "OCSSL_RUNS_AT_ONCE"
"""Environment variable: how many runs share the device that this one trains on; a pool of workers sets it."""
PACKAGES = ("numpy", "safetensors", "pydantic")


def versions() -> dict[str, str]:
    """Of Python, ocssl and the packages that decide numbers."""
    found = {"ocssl": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):  # on the path without having been installed
            found[package] = version(package)
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def hardware(device: torch.device) -> dict[str, Any]:
    """The machine and the device that trained; memory used and reserved is the most since the run began."""
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "processes": current().size,
        "runs_at_once": runs_at_once(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": properties.name,
            "gpu_memory": properties.total_memory,
            "gpu_memory_used": torch.cuda.max_memory_allocated(device),
            "gpu_memory_reserved": torch.cuda.max_memory_reserved(device),
        }
    return found


def runs_at_once() -> int:
    """:data:`RUNS_AT_ONCE` as a number; 1 where it is not set."""
    given = os.environ.get(RUNS_AT_ONCE, "1")
    if not given.isdecimal() or int(given) < 1:
        raise ConfigError(f"{RUNS_AT_ONCE} must be a whole number from 1, not '{given}'")
    return int(given)


def check_environment() -> None:
    """Refuse wrong environment variables before anything is trained, and let compiled kernels outlive the run."""
    runs_at_once()
    revision()
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(_kernels())


def _kernels() -> Path:
    """The folder of compiled kernels, which are code: each user's own, that no other user may write to."""
    user = os.getuid()
    folder = cache_root() / f"compiled-{user}"
    with writing(folder, ConfigError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != user or facts.st_mode & 0o022:
        raise ConfigError(f"'{folder}' may be written by others, and compiled kernels are code; remove it")
    return folder


@cache
def revision() -> str:
    """Which code runs: the commit where it runs from a checkout, else the package's version and a digest of its files.

    ``-dirty`` follows the commit where files of the package differ from it, or are new. Asked for once, when a run
    starts; files that change later are not those that were imported.
    """
    package = Path(__file__).parents[1]

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(package), *words]  # a commit may be made meanwhile
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) / "src" / "ocssl" != package.resolve():
            raise OSError("installed below another repository")
        changed = git("status", "--porcelain", "--", ".")
        return f"git {git('describe', '--always', '--tags')}{'-dirty' if changed else ''}"
    except (OSError, subprocess.CalledProcessError):
        return f"ocssl {__version__}, files {_digest(package)}"


def _digest(package: Path) -> str:
    """The same for the same Python files, wherever they lie."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
