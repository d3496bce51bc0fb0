"""Forks a process for each command that arrives as a JSON line; see ``command.py``."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from types import ModuleType

import numpy
import pyarrow
import torch

import ocssl.cli
import ocssl.data.formats.parquet
import ocssl.export.features
import ocssl.export.formats
import ocssl.live
import ocssl.live.learning
import ocssl.paper.run
import ocssl.plugins
import ocssl.results.render
import ocssl.runs.evaluate
import ocssl.runs.presets
import ocssl.runs.run
import ocssl.sweeps.driver
from helpers.shapes import draw_shapes_once


def run(request: dict[str, object]) -> None:
    folder = Path(str(request["folder"]))
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.chdir(folder.parent)
    if (number := request.get("die_at_sync")) is not None:
        die_at_sync(int(str(number)))
    if (size := request.get("largest_file")) is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(str(size)), resource.RLIM_INFINITY))
    for name in request.get("hidden", []):  # type: ignore[attr-defined]
        sys.modules[name] = None  # type: ignore[assignment]
    for name, source in request.get("modules", {}).items():  # type: ignore[attr-defined]
        sys.modules[name] = module = ModuleType(name)
        exec(source, module.__dict__)
    sys.argv = ["ocssl", *request["arguments"]]  # type: ignore[misc]
    ocssl.cli.main()


def die_at_sync(number: int) -> None:
    """Kill this process in the middle of its ``number``-th attempt to bring something safely to disk."""
    left, fsync = number, os.fsync

    def dying(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(descriptor)

    os.fsync = dying


def main() -> None:
    torch.set_num_threads(1)  # this and the next as in the tests' own process: the two are compared bit by bit
    torch.backends.mkldnn.set_flags(False)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # draws in what torch imports late
    pyarrow.array(numpy.zeros(1))  # and pyarrow: pandas, where it is installed
    ocssl.runs.presets.resolve({})  # looks for plugins among the installed packages, makes the classes of settings
    ocssl.live.settings()
    ocssl.plugins.describe(["ocssl"])  # reads which modules the installed packages have
    for name in ("run", "learn"):
        ocssl.cli.command.commands[name].make_context(name, [], resilient_parsing=True)  # makes their flags
    draw_shapes_once()
    for split in ("train", "test"):
        ocssl.data.load("shapes", split=split, image_size=8)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status, usage = os.wait4(request["wait"], 0)
            reply = {"code": os.waitstatus_to_exitcode(status), "peak": usage.ru_maxrss * 1024}
        else:
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    run(request)
                    code = 0
                except SystemExit as end:
                    code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            reply = {"pid": pid}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # there is nothing to tidy up, which takes a busy machine long
