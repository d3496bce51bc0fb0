"""Random damage to whatever ocssl reads, for a given time: ``make fuzz MINUTES=30``.

A worker reads one damaged file after another. An error that is not one of ocssl's own, a crash of the worker, a file
that takes longer than :data:`SECONDS` or more memory than :data:`PEAK` is a finding: it is printed, and its file kept.
The same seed damages in the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from PIL import Image
from pydantic import TypeAdapter, ValidationError

import ocssl
from ocssl import export
from ocssl.common.checkpoints import CheckpointFolder, MetricsFile
from ocssl.common.files import CHECKSUM, seal
from ocssl.common.yaml import from_file
from ocssl.data import loading
from ocssl.data.cache import open_cache, verify
from ocssl.data.catalog import dataset_spec
from ocssl.data.dataset import DatasetInfo
from ocssl.data.formats.parquet import ParquetReader
from ocssl.data.formats.svhn import SvhnReader
from ocssl.data.formats.tar import TarReader
from ocssl.data.formats.unpickle import load_arrays
from ocssl.errors import OcsslError
from ocssl.imaging import BadImage, decode
from ocssl.live.sources import open_reader
from ocssl.live.state import SavedState
from ocssl.results import read_report, read_result
from ocssl.results.render import FORMATS, write_report
from ocssl.results.tuned import read_tuned
from ocssl.runs.presets import resolve
from ocssl.runs.state import RunState
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.plan import parse_sweep

SECONDS = 20  # of computing, or six times as many of waiting
PEAK = 2 << 30  # bytes; the worker itself takes about a quarter
ALLOWED = (OcsslError, BadImage)
NONSENSE: tuple[object, ...] = (
    None, True, -1, 0, 1.5, 2**31, 2**63, 10**30, float("nan"), float("inf"), "", "x", "x" * 5000, "\0", "\udcff",
    "../..", "9" * 5000, "timm:hf-hub:a/b", [], [[]], [None], {}, {"a": {"a": {}}}, [1, "x"], "2026-13-45", 10**18,
)  # fmt: skip
NUMBERS = (b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\0\0\0\1")
RESULT = Path(__file__).parents[2] / "results" / "cifar100-simsiam-cla-e-fifo-high-clean-seed0.json"


@dataclass(frozen=True)
class Target:
    """Something that is read.

    Attributes:
        make: writes good ones below a folder, and gives the files that are damaged, one at a time.
        read: reads the folder or file that the damaged one belongs to.
    """

    make: Callable[[Path], list[Path]]
    read: Callable[[Path], object]


def _pictures(folder: Path) -> list[Path]:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 3), np.uint8)
    image = Image.fromarray(pixels)
    kinds = {"png": image, "jpeg": image, "gif": image, "webp": image, "tiff": image, "bmp": image, "ppm": image}
    more = {"1.png": image.convert("1"), "p.png": image.convert("P"), "la.png": image.convert("LA")}
    more |= {"i.tiff": image.convert("I"), "cmyk.jpeg": image.convert("CMYK")}
    for name, one in {**{f"a.{kind}": one for kind, one in kinds.items()}, **more}.items():
        one.save(folder / name)
    return sorted(folder.iterdir())


def _png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (9, 8, 7)).save(buffer, "PNG")
    return buffer.getvalue()


def _parquet(folder: Path) -> list[Path]:
    for number, labels in enumerate((["a", "b", "a"], [0, 1, 2], None)):
        columns = {"image": pa.array([_png()] * 3, pa.binary())}
        if number == 2:
            columns = {"image": pa.array([{"bytes": _png(), "path": "a"}] * 3)}
        table = pa.table({**columns, **({"label": labels} if labels else {})})
        pq.write_table(table, folder / f"{number}.parquet", compression=("zstd", "snappy", "none")[number])
    return sorted(folder.iterdir())


def _read_parquet(path: Path) -> None:
    reader = ParquetReader([path])
    reader.class_names(), reader.count()
    if reader.label_column:
        reader.column(reader.label_column)
    for item in reader.items():
        _decoded(item.picture)


def _decoded(picture: Any) -> None:
    if not isinstance(picture, BadImage):
        with contextlib.suppress(BadImage):
            decode(picture, 8)


def _tar(folder: Path) -> list[Path]:
    for name, mode in (("a.tar", "w"), ("b.tar.gz", "w:gz")):
        with tarfile.open(folder / name, mode) as archive:
            for member, content in (("0.png", _png()), ("0.cls", b"3"), ("x" * 150 + ".png", _png()), ("1.cls", b"7")):
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return sorted(folder.iterdir())


def _read_tar(path: Path) -> None:
    for item in TarReader([path]).items():
        _decoded(item.picture)


def _learner() -> ocssl.Learner:
    torch.manual_seed(0)
    tiny: dict[str, Any] = {"backbone": "convnet-w4", "image_size": 8, "hidden_dim": 8, "output_dim": 8}
    learner = ocssl.Learner(**tiny, memory_size=12, stream_batch=4, batch=12, device="cpu")
    return learner.partial_fit(np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3), np.uint8))


def _encoder(folder: Path) -> list[Path]:
    export.publish(_learner(), folder / "encoder", sources={"folder:imgs": 8})
    return [*(folder / "encoder").glob("*.json")] * 3 + [*(folder / "encoder").glob("*.safetensors")]


def _exported(folder: Path) -> list[Path]:
    from ocssl.export.formats import export as write

    write(export.of_learner(_learner()), folder / "e.safetensors", "safetensors")
    return [folder / "e.safetensors"]


def _saved(folder: Path) -> list[Path]:
    _learner().save(folder / "saved")
    return [folder / "saved" / "learner.json"] * 3 + [*(folder / "saved").glob("*.safetensors")]


def _checkpoint(folder: Path) -> list[Path]:
    place = {"noted": 4, "positions": {"folder:a": 4}, "identities": {"tar:a": "b"}}
    measured = {"1": {"samples": 4, "linear": {"correct": [1, 2], "total": [3, 4]}, "knn": None}}
    state = asdict(RunState("2026-01-01T00:00:00+00:00")) | {"measured": measured}
    CheckpointFolder(folder).save(lambda draft: None, {**state, "metrics_bytes": 3, "place": place, "threads": 1}, 2)
    return [folder / "000001" / "state.json"]


def _read_checkpoint(path: Path) -> None:
    state = CheckpointFolder(path.parent.parent).read_state(path.parent)
    with contextlib.suppress(ValidationError):  # as its caller does
        TypeAdapter(SavedState).validate_python(state)
    RunState.from_dict(state)


def _lines(folder: Path) -> list[Path]:
    MetricsFile(folder / "metrics.jsonl").append({"kind": "train", "loss": 0.5, "samples": 3})
    TrialLog(folder / "trials.jsonl").add([{"lr": 0.1, "memory": "fifo"}], [0, 1])
    return sorted(folder.iterdir())


def _read_lines(path: Path) -> None:
    if path.name == "metrics.jsonl":
        MetricsFile(path).read()
    else:
        log = TrialLog(path)
        log.best(), [(trial.state, trial.missing, trial.reason) for trial in log.trials]


def _result(folder: Path) -> list[Path]:
    (folder / "r.json").write_bytes(RESULT.read_bytes())
    return [folder / "r.json"]


def _read_result(path: Path) -> None:
    with contextlib.suppress(OcsslError):
        read_result(path)
    with tempfile.TemporaryDirectory() as place:
        write_report(read_report(path.parent), place, [name for name in FORMATS if name not in ("png", "svg", "pdf")])


def _yaml(folder: Path) -> list[Path]:
    run = {"dataset": "shapes", "strategy": "er", "lr": 0.1, "passes": 3, "probe": {"lr": 0.5}, "experiences": 3}
    sweep = {"settings": {"dataset": "shapes", "strategy": "er"}, "space": {"lr": [0.1, 0.2]}, "seeds": [0, 1]}
    tuned = {"cla-e": {"lr": 0.3, "omega": 1.0}, "er-fifo": {"lr": 0.1}}
    for name, content in (("run", run), ("sweep", sweep), ("high-simsiam@cifar100@clean", tuned)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return sorted(folder.iterdir())


def _read_yaml(path: Path) -> None:
    if path.stem == "run":
        resolve(from_file(path))
    elif path.stem == "sweep":
        parse_sweep(from_file(path)).listed()
    else:
        read_tuned(path)


def _cache(folder: Path) -> list[Path]:
    for name in ("a", "b"):
        (folder / "set" / "train" / name).mkdir(parents=True)
        (folder / "set" / "train" / name / "0.png").write_bytes(_png())
    os.environ["OCSSL_CACHE"] = str(folder / "cache")
    loading.load(f"folder:{folder / 'set'}", split="train")
    return [path for path in (folder / "cache").glob("*/*") if path.name in ("index.json", "labels.npy", "images.u8")]


def _read_cache(path: Path) -> None:
    open_cache(path.parent, DatasetInfo("x"))
    verify(path.parent)


def _pickle(folder: Path) -> list[Path]:
    batch = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 1], "filenames": ["a", "b"]}
    for protocol in (0, 2, 4):
        (folder / f"{protocol}").write_bytes(pickle.dumps(batch, protocol))
    return sorted(folder.iterdir())


def _mat(folder: Path) -> list[Path]:
    from scipy.io import savemat

    savemat(folder / "train_32x32.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [10]]})
    return [folder / "train_32x32.mat"]


def _names(folder: Path) -> list[Path]:
    names = ["a.mp4", "camera:0", "tar:a.tar", "parquet:*.parquet", "folder:a", "video:a.avi", "~/a.tgz", "a/b.tar.gz"]
    names += ["imagenet100:authors:3", "cifar100", "hf:", "folder:", "-"]
    for number, name in enumerate(names):
        (folder / f"{number}.txt").write_text(name)
    return sorted(folder.iterdir())


def _read_name(path: Path) -> None:
    name = path.read_bytes().decode(errors="surrogateescape")
    for read in (dataset_spec, open_reader):
        with contextlib.suppress(OcsslError):
            if not name.lstrip().startswith(("hf", "camera")) or not name.partition(":")[2]:
                read(name)
    if name.startswith("camera"):
        with contextlib.suppress(OcsslError):
            open_reader(name)


TARGETS = {
    "image": Target(_pictures, lambda path: decode(path.read_bytes(), 8)),
    "parquet": Target(_parquet, _read_parquet),
    "tar": Target(_tar, _read_tar),
    "encoder folder": Target(_encoder, lambda path: export.load(path.parent)),
    "encoder file": Target(_exported, export.load),
    "learner": Target(_saved, lambda path: ocssl.Learner.load(path.parent)),
    "checkpoint": Target(_checkpoint, _read_checkpoint),
    "lines": Target(_lines, _read_lines),
    "result": Target(_result, _read_result),
    "yaml": Target(_yaml, _read_yaml),
    "cache": Target(_cache, _read_cache),
    "pickle": Target(_pickle, lambda path: load_arrays(path.read_bytes(), path.name)),
    "mat": Target(_mat, lambda path: list(SvhnReader(path).items())),
    "name": Target(_names, _read_name),
}


# ---------------------------------------------------------------------- damage


def damaged(content: bytes, name: str, chance: random.Random) -> bytes:
    """Content with something wrong: values of JSON or YAML, or bytes."""
    if chance.random() < 0.7:
        with contextlib.suppress(ValueError, yaml.YAMLError, RecursionError):
            if name.endswith(".json"):
                return json.dumps(_edited(json.loads(content), chance)).encode("utf-8", "surrogatepass")
            if name.endswith(".jsonl"):
                return b"".join(
                    json.dumps(_edited(json.loads(line), chance)).encode() + b"\n" for line in content.splitlines()
                )
            if name.endswith(".yaml"):
                return yaml.safe_dump(_edited(yaml.safe_load(content), chance)).encode("utf-8", "surrogatepass")
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        place = chance.randrange(len(found) + 1)
        kind = chance.randrange(7)
        if kind == 0 and place < len(found):
            found[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del found[place : place + chance.choice((1, 2, 8, 1000))]
        elif kind == 2:
            found[place:place] = chance.randbytes(chance.choice((1, 4, 100)))
        elif kind == 3:
            number = chance.choice(NUMBERS)
            found[place : place + len(number)] = number
        elif kind == 4:
            del found[place:]
        elif kind == 5:
            other = chance.randrange(len(found) + 1)
            found[place:place] = found[other : other + chance.choice((4, 64, 4096))]
        else:
            found[place:place] = chance.choice((b"[" * 5000, b"9" * 5000, b"\0", b"\xff\xfe", b"&a *a", b"\n- ", b"{"))
    return bytes(found)


def _edited(content: Any, chance: random.Random) -> Any:
    """JSON with one or a few values replaced, removed or added; its checksum is right."""
    is_sealed = isinstance(content, dict) and content.pop(CHECKSUM, None) is not None
    for _ in range(chance.choice((1, 1, 1, 3))):
        group, places = content, []
        while isinstance(group, dict | list) and group and (not places or chance.random() < 0.7):
            place = chance.choice(sorted(group, key=str) if isinstance(group, dict) else range(len(group)))
            places.append((group, place))
            group = group[place]
        if not places:
            return chance.choice(NONSENSE)
        group, place = places[-1]
        if chance.random() < 0.15:
            del group[place]
        else:
            group[place] = chance.choice(NONSENSE)
            if isinstance(group, dict) and chance.random() < 0.1:
                group[chance.choice(("x", "", "x" * 5000, "lr", "format"))] = chance.choice(NONSENSE)
    return seal(content) if is_sealed and isinstance(content, dict) else content


def attempts(name: str, folder: Path, chance: random.Random) -> Iterator[Callable[[], object]]:
    """Without end: damages a file of a target and gives what reads it; the file is whole again afterwards."""
    target, place = TARGETS[name], folder / name
    place.mkdir(parents=True)
    good = [(file, file.read_bytes()) for file in target.make(place)]
    while True:
        file, content = chance.choice(good)
        file.write_bytes(damaged(content, file.name, chance))
        yield lambda file=file: target.read(file)
        file.write_bytes(content)


# ---------------------------------------------------------------------- worker and watch


class TooLong(BaseException):
    """A file took longer than it may."""


def _alarm(*_: object) -> None:
    raise TooLong


def work(names: list[str], seed: int, folder: Path, count: int | None = None, until: float = float("inf")) -> list[str]:
    """Read damaged files of some targets in turn; the findings, one text each."""
    chance, findings, known = random.Random(seed), list[str](), set[str]()
    tries = {name: attempts(name, folder, chance) for name in names}
    before, done = {number: signal.signal(number, _alarm) for number in (signal.SIGALRM, signal.SIGPROF)}, 0
    try:
        while time.monotonic() < until and (count is None or done < count * len(names)):
            name = names[done % len(names)]
            done += 1
            read = next(tries[name])
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(6 * SECONDS)
            try:
                read()
            except ALLOWED:
                pass
            except (Exception, TooLong) as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                if (key := f"{name} {type(error).__name__} {place.filename}:{place.lineno}") not in known:
                    known.add(key)
                    findings.append(f"{key}\n{traceback.format_exc()}")
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.alarm(0)
            (folder / "done").write_text(str(done))
            if (peak := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024) > PEAK:
                findings.append(f"{name}: {peak:,} bytes of memory")
                break
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return findings


def main() -> None:
    """Workers one after another until the time is over; a worker that crashes is a finding, too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", choices=TARGETS)
    options = parser.parse_args()
    until, seed, files, found = time.monotonic() + 60 * options.minutes, options.seed, 0, 0
    torch.set_num_threads(1)
    kept = Path(tempfile.mkdtemp(prefix="fuzz-"))
    while time.monotonic() < until:
        folder = kept / str(seed)
        folder.mkdir()
        pid = os.fork()
        if pid == 0:
            logging.disable()
            warnings.simplefilter("ignore")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            findings = work(options.target or [*TARGETS], seed, folder, 2000, until)
            print(*findings, sep="\n", end="\n" if findings else "", flush=True)
            os._exit(min(len(findings), 100))
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError, ValueError):
            files += int((folder / "done").read_text())
        found += 1 if code < 0 else code
        if code < 0:
            print(f"seed {seed}: the worker died by signal {-code}; what it read lies in {folder}", flush=True)
        elif code == 0:
            shutil.rmtree(folder)
        seed += 1
    print(
        f"{files:,} damaged files in {options.minutes:g} minutes, seeds {options.seed} to {seed - 1}: {found} findings"
    )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
