"""Looking after each other: a process that died, failed or hangs is named, and nobody waits for it for ever.

Every process keeps a line in a store that all can read: what its main thread is doing, and since when. A thread of its
own writes that line every second and reads the others'. Silence means death or a machine that is gone; a main thread
that has not met the others for long, without having said that it would be busy, hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

from ocssl.errors import ConfigError, PeerError

BEAT = 1.0  # seconds between two looks
DEAD = 15.0  # seconds without a beat
HANGS = 40.0  # seconds at work without meeting the others
GRACE = 5.0  # seconds for a broken exchange to end by itself, with its own error


class Watch:
    """Keeps this process's line in the store and watches the others'.

    Args:
        rank, size: of this process, of the group.
        host, port: of the store, as torchrun tells them.
    """

    def __init__(self, rank: int, size: int, host: str, port: int) -> None:
        self.rank, self.size = rank, size
        self._patience = _patience()
        self._doing, self._since = "work", time.monotonic()
        self._verdict: str | None = None
        self._seen = {peer: (-1, time.monotonic()) for peer in range(size) if peer != rank}
        # A connection of its own: a thread that waits for an answer keeps the whole connection waiting.
        self._store = TCPStore(host, port, is_master=False)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ocssl-watch", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the main thread

    @contextlib.contextmanager
    def meeting(self) -> Iterator[None]:
        """The main thread exchanges something with the others; who will not come ends it with an error about them."""
        if self._verdict is not None:
            raise PeerError(self._verdict)
        with self._while("wait"):
            try:
                yield
            except RuntimeError as error:
                raise PeerError(self._find_out(str(error))) from error

    def at_length(self) -> contextlib.AbstractContextManager[None]:
        """It is busy for as long as that takes."""
        return self._while("long work")

    @contextlib.contextmanager
    def _while(self, doing: str) -> Iterator[None]:
        before, self._doing = self._doing, doing
        try:
            yield
        finally:
            self._doing, self._since = before, time.monotonic()

    def _find_out(self, reason: str) -> str:
        """Who is to blame for a failed exchange, as soon as that is known."""
        until = time.monotonic() + DEAD + 3 * BEAT
        while self._verdict is None and time.monotonic() < until:
            time.sleep(BEAT / 10)
        return self._verdict or f"the exchange with the other processes failed: {' '.join(reason.split())}"

    def close(self, failure: str | None) -> None:
        """Leave, in peace or telling why not."""
        self._closed.set()
        self._thread.join()
        with contextlib.suppress(DistError):
            self._write({"left": True} if failure is None else {"failed": failure})

    # ------------------------------------------------------------------ the watching thread

    def _watch(self) -> None:
        beat = 0
        while not self._closed.wait(BEAT):
            beat += 1
            try:
                self._write({"beat": beat, "doing": self._doing, "for": time.monotonic() - self._since})
                blamed = next(filter(None, map(self._judge, self._seen)), None)
            except DistError:
                blamed = "the process that keeps the group together (rank 0 or its launcher) is gone"
            if blamed is not None:
                self._verdict = blamed
                self._end_a_pointless_wait()
                return

    def _judge(self, peer: int) -> str | None:
        """What is wrong with a peer, as a sentence, or nothing."""
        who = f"rank {peer} of {self.size}"
        line = self._read(peer)
        if line.get("left"):
            return None
        if "failed" in line:
            return f"{who} failed: {line['failed']}"
        last, at = self._seen[peer]
        if line.get("beat", -1) != last:
            self._seen[peer] = (line["beat"], time.monotonic())
        elif time.monotonic() - at > DEAD:
            return f"{who} has died or cannot be reached: no sign of life for {DEAD:.0f} s"
        if line.get("doing") == "work" and line["for"] > self._patience:
            return f"{who} hangs: it has not met the others for {line['for']:.0f} s"
        return None

    def _end_a_pointless_wait(self) -> None:
        """A main thread that waits for somebody who will not come cannot be woken; it holds nothing half written."""
        until = time.monotonic() + GRACE
        while time.monotonic() < until and not self._closed.is_set():
            time.sleep(BEAT / 10)
        while not self._closed.is_set():
            if self._doing == "wait":
                print(f"ocssl: rank {self.rank}: {self._verdict}", file=sys.stderr, flush=True)
                os._exit(2)
            time.sleep(BEAT / 10)

    def _write(self, line: dict[str, Any]) -> None:
        self._store.set(f"ocssl/{self.rank}", json.dumps(line))

    def _read(self, peer: int) -> dict[str, Any]:
        key = f"ocssl/{peer}"
        if not self._store.check([key]):
            return {}
        line: dict[str, Any] = json.loads(self._store.get(key))
        return line


def _patience() -> float:
    told = os.environ.get("OCSSL_PEER_TIMEOUT")
    try:
        return HANGS if told is None else float(told)
    except ValueError as error:
        raise ConfigError(f"OCSSL_PEER_TIMEOUT must be a number of seconds, not '{told}'") from error
