"""Makes the files in this folder anew: every package of ``make demo`` and ``make test``, with the hashes of its files.

    pip install uv && python requirements/lock.py

Versions are those of ``constraints.txt``. ``torch.txt`` and ``cuda.txt`` are the builds of the usual index. ``cpu.txt``
is kept by hand: the builds for CPU, Linux and Python 3.11 to 3.14, with the hashes of PyTorch's own index.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
EXTRAS = ("plot", "dev")
CUDA = re.compile(r"nvidia-|cuda-|triton==")
COMPILE = "uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11"


def packages(extra: str) -> list[str]:
    """A requirement of each package, with its hashes on lines of their own."""
    words = f"{COMPILE} --extra {extra} --constraint constraints.txt pyproject.toml".split()
    found = subprocess.run(words, cwd=HERE.parent, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [entry.rstrip() for entry in re.split(r"\n(?=\S)", found.strip())]


def main() -> None:
    for extra in EXTRAS:
        entries = packages(extra)
        torch = next(entry for entry in entries if entry.startswith("torch=="))
        cuda = [entry for entry in entries if CUDA.match(entry)]
        others = [entry for entry in entries if entry != torch and entry not in cuda]
        (HERE / f"{extra}.txt").write_text("\n".join(others) + "\n")
        (HERE / "cuda.txt").write_text("\n".join(cuda) + "\n")
        (HERE / "torch.txt").write_text(f"{torch}\n")


if __name__ == "__main__":
    main()
