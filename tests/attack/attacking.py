"""Commands among files of somebody else's: each call has a deadline, one line to say, and leaves those files alone."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

from hostile import PEAK

from helpers.command import Command, Process
from ocssl.common.files import CHECKSUM, seal

SIZE = "--backbone convnet-w4 --batch 20 --passes 1 --image-size 16 --device cpu -q"
LEARN = f"{SIZE} --set hidden_dim=8 --set output_dim=8 --set memory_size=20".split()
RUN_SETTINGS = (
    "--dataset shapes --image-size 8 --samples-per-class 10 --strategy er --method simclr --batch 20 --passes 1 "
    "--backbone convnet-w4 --hidden-dim 8 --output-dim 8 --memory-size 20 --experiences 3 --evaluate never "
    "--checkpoint-samples 40 --device cpu -q"
)
RUN = RUN_SETTINGS.split()
SETTINGS = {
    "dataset": "shapes", "image_size": 8, "samples_per_class": 10, "strategy": "er", "method": "simclr", "batch": 20,
    "passes": 1, "backbone": "convnet-w4", "hidden_dim": 8, "output_dim": 8, "memory_size": 20, "experiences": 3,
    "checkpoint_samples": 40, "probe": {"max_epochs": 1}, "device": "cpu",
}  # fmt: skip
PRECIOUS = "precious\n"


class Attack:
    """The command line in a folder of its own."""

    def __init__(self, server: Popen[str], folder: Path) -> None:
        self.folder = folder
        self._command = Command(server, folder)

    def put(self, name: str, content: str | bytes = PRECIOUS) -> Path:
        """Write a file of the user's."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def edit(self, name: str, change: Callable[[dict], object]) -> None:
        """Change a JSON file; one with a checksum gets the right one, so that nothing but the change is wrong."""
        path = self.folder / name
        content = json.loads(path.read_text())
        is_sealed = content.pop(CHECKSUM, None) is not None
        change(content)
        path.write_text(json.dumps(seal(content) if is_sealed else content))

    def files(self) -> dict[str, bytes]:
        """Content of every file, and target of every link, but those of the commands themselves."""
        found = {}
        for top, folders, names in os.walk(self.folder):
            folders[:] = [name for name in folders if not name.startswith("process-")]
            for path in (Path(top, name) for name in (*names, *folders)):
                if path.is_symlink():
                    found[str(path.relative_to(self.folder))] = os.fsencode(os.readlink(path))
                elif path.is_file() and path.name != ".lock":
                    found[str(path.relative_to(self.folder))] = path.read_bytes()
        return found

    def start(self, *words: object, **conditions: object) -> Process:
        return self._command.start(*words, **conditions)

    def end(self, process: Process, seconds: float = 90) -> int:
        """The exit code; a command that does not end in time is killed, and -9 is what the test sees."""
        timer = threading.Timer(seconds, lambda: os.kill(process.pid, signal.SIGKILL))
        timer.start()
        try:
            code = process.wait()
        finally:
            timer.cancel()
        assert process.peak < PEAK
        return code

    def call(self, *words: object, **conditions: object) -> tuple[int, str]:
        process = self.start(*words, **conditions)
        code = self.end(process)
        assert "Traceback" not in process.err, process.err
        return code, process.err

    def refuse(self, *words: object, says: str = "", code: int = 2) -> str:
        """The one line of a command that is refused and changes nothing."""
        before = self.files()
        found, err = self.call(*words)
        assert found == code, (found, err)
        assert err.count("\n") == 1, err
        assert err.startswith("ocssl: ")
        assert says in err, err
        assert self.files() == before
        return err
