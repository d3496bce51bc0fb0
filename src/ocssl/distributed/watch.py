"""Looking after each other: a process that died, failed or hangs is named, and nobody waits for it for ever.

Every process keeps a line in a store that all can read: what its main thread is doing, and for how long. One thread
writes that line every second and reads the others'; a second thread judges them, also when the first gets no answer.
No new line means death, or a machine that is gone; a main thread that has not met the others for long, without having
said that it would be busy, hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import DistError, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from ocssl.errors import ConfigError, PeerError

PATIENCE = 45.0  # seconds at work without meeting the others, unless OCSSL_PEER_TIMEOUT says otherwise
SILENCE = 15.0  # seconds without a line
BEAT = 1.0  # seconds between two lines
GRACE = 5.0  # seconds for a broken exchange to end by itself, with its own error


@dataclass(frozen=True)
class Place:
    """Where the group's store is, as torchrun tells it."""

    host: str
    port: int

    def connect(self, *, leads: bool = False) -> Store:
        """A connection of one's own: whoever waits for an answer keeps the whole connection waiting.

        Args:
            leads: keep the store in this process.
        """
        try:
            store = TCPStore(
                self.host,
                self.port,
                is_master=leads,
                wait_for_workers=False,
                timeout=timedelta(seconds=patience()),
            )
        except DistError as error:
            reason = " ".join(str(error).split())
            raise PeerError(f"rank 0 cannot be reached at {self.host}:{self.port}: {reason}") from error
        return PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


class Watch:
    """Keeps this process's line in the store and watches the others'.

    Args:
        rank, size: of this process, of the group.
        place: of the store.
    """

    def __init__(self, rank: int, size: int, place: Place) -> None:
        self.rank, self.size = rank, size
        self._patience = patience()
        self._doing, self._since = "work", time.monotonic()
        self._verdict: str | None = None
        peers = [peer for peer in range(size) if peer != rank]
        self._lines: dict[int, dict[str, Any]] = {peer: {} for peer in peers}
        self._changed = dict.fromkeys(peers, time.monotonic())
        self._answered = time.monotonic()
        self._store = place.connect()
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._exchange_lines, self._judge)]
        for thread in self._threads:
            thread.start()

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

    def close(self, failure: str | None) -> None:
        """Leave, in peace or telling why not."""
        self._closed.set()
        for thread in self._threads:
            thread.join(timeout=2 * BEAT)
        with contextlib.suppress(DistError):
            self._write({"left": True} if failure is None else {"failed": failure})
        if failure is not None:
            time.sleep(2 * BEAT)  # the store may end with this process; the others must have read why

    @contextlib.contextmanager
    def _while(self, doing: str) -> Iterator[None]:
        before, self._doing = self._doing, doing
        try:
            yield
        finally:
            self._doing, self._since = before, time.monotonic()

    def _find_out(self, reason: str) -> str:
        """Who is to blame for a failed exchange, as soon as that is known."""
        until = time.monotonic() + SILENCE + 3 * BEAT
        while self._verdict is None and time.monotonic() < until:
            time.sleep(BEAT / 10)
        return self._verdict or f"the exchange with the other processes failed: {' '.join(reason.split())}"

    # ------------------------------------------------------------------ the other two

    def _exchange_lines(self) -> None:
        beat = 0
        with contextlib.suppress(DistError):  # the judge will notice the silence
            while not self._closed.wait(BEAT):
                beat += 1
                self._write({"beat": beat, "doing": self._doing, "for": time.monotonic() - self._since})
                for peer, before in self._lines.items():
                    line = self._read(peer)
                    if line != before:
                        self._lines[peer], self._changed[peer] = line, time.monotonic()
                self._answered = time.monotonic()

    def _judge(self) -> None:
        while not self._closed.wait(BEAT) and self._verdict is None:
            if time.monotonic() - self._answered > SILENCE:
                self._verdict = (
                    f"rank 0 of {self.size}, or its launcher, which keeps the group together, does not answer"
                )
            else:
                self._verdict = next(filter(None, map(self._complaint, self._lines)), None)
        self._closed.wait(GRACE)
        while not self._closed.wait(BEAT / 10):
            if self._doing == "wait":
                # A main thread that waits in an exchange cannot be woken, and holds nothing half written.
                print(f"ocssl: {self._verdict}", file=sys.stderr, flush=True)
                os._exit(2)

    def _complaint(self, peer: int) -> str | None:
        """What is wrong with a peer, as a sentence, or nothing."""
        who, line = f"rank {peer} of {self.size}", self._lines[peer]
        if line.get("left"):
            return None
        if "failed" in line:
            return f"{who} failed: {line['failed']}"
        allowed = SILENCE if line else self._patience  # processes do not all start at the same moment
        if (silent := time.monotonic() - self._changed[peer]) > allowed:
            return f"{who} has died or cannot be reached: no sign of life for {silent:.0f} s"
        if line.get("doing") == "work" and line["for"] > self._patience:
            return f"{who} hangs: it has not met the others for {line['for']:.0f} s"
        return None

    def _write(self, line: dict[str, Any]) -> None:
        self._store.set(f"ocssl/{self.rank}", json.dumps(line))

    def _read(self, peer: int) -> dict[str, Any]:
        key = f"ocssl/{peer}"
        line: dict[str, Any] = json.loads(self._store.get(key)) if self._store.check([key]) else {}
        return line


def patience() -> float:
    """Seconds that a process may be away without a word."""
    told = os.environ.get("OCSSL_PEER_TIMEOUT")
    try:
        return PATIENCE if told is None else float(told)
    except ValueError as error:
        raise ConfigError(f"OCSSL_PEER_TIMEOUT must be a number of seconds, not '{told}'") from error
