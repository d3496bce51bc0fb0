"""Peak resident memory of each command, and of those that read images on small files that claim to be large.

Each command has a fresh process.

    python benchmarks/memory.py                      # all cases, a Markdown table
    python benchmarks/memory.py good video           # some of them

The inputs are generated in a temporary folder. A command that is refused counts as well: the column ``code`` has its
exit code.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

MIB = 1 << 20
LEARN = "--backbone convnet-w4 --batch 20 --passes 1 --set hidden_dim=8 --set output_dim=8 --set memory_size=20"
LEARN += " --image-size 16 --device cpu -q"
RUN = "--dataset shapes --image-size 8 --samples-per-class 10 --strategy er --method simclr --batch 20 --passes 1"
RUN += " --backbone convnet-w4 --hidden-dim 8 --output-dim 8 --memory-size 20 --experiences 3 --device cpu -q"
WORDS = {
    "embed": "embed WORK/state SOURCE -o WORK/NAME.out.parquet -q",
    "prepare": "data prepare KIND:SOURCE --split train --on-bad-image skip --image-size 16",
    "learn": f"learn SOURCE --state WORK/state-NAME {LEARN}",
    "preview": "data preview KIND:SOURCE -o WORK/preview.png",
    "export": "export WORK/state --to onnx -o WORK/encoder.onnx",
    "run": f"run {RUN} --output WORK/run",
    "probe": "probe WORK/run -q",
    "show": "show WORK/run",
    "compare": "compare WORK/run --plot WORK/plot.png",
    "report": "report results -o WORK/report",
    "paper list": "paper list --results results",
    "list": "list settings",
    "budget": "budget",
    "sweep": "sweep WORK/sweep.yaml -o WORK/sweep -q",
}


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def noise(count: int, folder: Path) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / f"{number:03d}.png")
    return folder


def good(folder: Path) -> Path:
    """20 images of 16×16."""
    given = RUN.split()[:-1]
    settings = ", ".join(
        f"{name[2:].replace('-', '_')}: {value}" for name, value in zip(given[::2], given[1::2], strict=True)
    )
    (folder / "sweep.yaml").write_text(f"settings: {{{settings}}}\nspace: {{lr: [0.05]}}\n")
    return noise(20, folder / "good")


def parquet(folder: Path) -> Path:
    """3 KB: 32 rows of one value of 60 MiB, dictionary encoded."""
    value = png(Image.new("RGB", (16, 16))) + bytes(60 * MIB)
    path = folder / "zeros.parquet"
    table = pa.table({"image": pa.array([value] * 32, pa.binary())})
    pq.write_table(table, path, compression="zstd", use_dictionary=True, dictionary_pagesize_limit=1 << 30)
    return path


def plain_parquet(folder: Path) -> Path:
    """32 rows of 60 MiB each, one page a row."""
    path = folder / "plain.parquet"
    value = png(Image.new("RGB", (16, 16))) + bytes(60 * MIB)
    schema = pa.schema([("image", pa.binary())])
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False, data_page_size=1024) as writer:
        writer.write_table(pa.table({"image": pa.array([value] * 32, pa.binary())}, schema=schema))
    return path


def video(folder: Path) -> Path:
    """A minute of 1280×720 at 10 frames a second."""
    import cv2

    path = folder / "long.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (1280, 720))
    for number in range(600):
        writer.write(np.full((720, 1280, 3), number % 256, np.uint8))
    writer.release()
    return path


def sparse(folder: Path) -> Path:
    """A sparse file of 3 GiB called a.png, and a good one."""
    place = noise(1, folder / "sparse")
    with open(place / "a.png", "wb") as file:
        file.truncate(3 << 30)
    return place


def alpha(folder: Path) -> Path:
    """Four PNG of 8900×8900 in RGBA, 300 KB each."""
    place = noise(1, folder / "alpha")
    content = png(Image.new("RGBA", (8900, 8900)))
    for number in range(4):
        (place / f"a{number}.png").write_bytes(content)
    return place


def deep(folder: Path) -> Path:
    """Two PNG of 8900×8900 in 16-bit grey."""
    place = noise(1, folder / "deep")
    content = png(Image.fromarray(np.zeros((8900, 8900), np.uint16)))
    for number in range(2):
        (place / f"a{number}.png").write_bytes(content)
    return place


def members(folder: Path) -> Path:
    """A .tar.gz of 1.5 MB with six members of 250 MiB."""
    path = folder / "zeros.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for number in range(6):
            info = tarfile.TarInfo(f"{number}.png")
            info.size = 250 * MIB
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return path


def long_name(folder: Path) -> Path:
    """A .tar.gz whose first header is a GNU long name of 1 GiB."""
    path = folder / "name.tar.gz"
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(1024):
            file.write(b"a" * MIB)
    return path


CASES: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    "good": (good, tuple(WORDS)),
    "parquet": (parquet, ("embed", "prepare", "learn")),
    "plain_parquet": (plain_parquet, ("embed", "prepare")),
    "video": (video, ("embed",)),
    "sparse": (sparse, ("embed", "prepare")),
    "alpha": (alpha, ("embed", "prepare", "learn")),
    "deep": (deep, ("embed", "learn")),
    "members": (members, ("embed", "learn")),
    "long_name": (long_name, ("embed", "prepare", "learn")),
}


def apart(make: Callable[[Path], Path], work: Path) -> Path:
    """Make an input in a process of its own: a command's peak is never below that of the process that started it."""
    child = os.fork()
    if not child:
        (work / "made").write_text(str(make(work)))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return Path((work / "made").read_text())


def words(command: str, source: Path, work: Path) -> list[str]:
    """The arguments of ``ocssl``."""
    kind = "parquet" if source.suffix == ".parquet" else "tar" if ".tar" in source.name else "folder"
    places = {"WORK": str(work), "KIND": kind, "SOURCE": str(source), "NAME": source.name}
    return [re.sub("|".join(places), lambda found: places[found[0]], word) for word in WORDS[command].split()]


def measure(arguments: list[str], work: Path) -> tuple[int, float, float]:
    """Exit code, peak MB and seconds of one command."""
    environment = {**os.environ, "OCSSL_CACHE": str(work / "cache")}
    began = time.perf_counter()
    with open(work / "log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "ocssl", *arguments], stdout=log, stderr=log, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024 / 1e6, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="default: all")
    wanted = parser.parse_args().cases or list(CASES)
    print("| input | command | code | peak MB | s |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        noise(20, work / "first")
        measure(f"learn {work}/first --state {work}/state {LEARN}".split(), work)
        for name in wanted:
            make, commands = CASES[name]
            source, about = apart(make, work), (make.__doc__ or "").strip().rstrip(".")
            for command in commands:
                code, peak, seconds = measure(words(command, source, work), work)
                print(f"| {about} | `{command}` | {code} | {peak:,.0f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
