"""Heartbeats between processes: a rank that exits, raises or stalls is named, and the others stop.

Every process keeps one record in a store that all can read: what its main thread is doing, and for how long. One thread
writes this record every second and reads those of the others; a second thread judges them, also while the first waits
for the store. A record that no longer changes means that the process or its machine is gone. A main thread that
computes for long without an exchange, outside :meth:`Heartbeat.no_timeout`, hangs.
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
from typing import Any, Literal

from torch.distributed import DistError, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from ocssl.errors import ConfigError, PeerError

TIMEOUT = 45.0  # seconds without an exchange, unless OCSSL_PEER_TIMEOUT is set
LONGEST = 604_800  # seconds, a week: no exchange waits longer
SILENCE = 15.0  # seconds without a new record
BEAT = 1.0  # seconds between two records
GRACE = 5.0  # seconds for a broken exchange to end by itself, with its own error

State = Literal["computing", "exchanging", "busy"]


@dataclass(frozen=True)
class StoreAddress:
    """Where the group's store listens, as torchrun sets it."""

    host: str
    port: int

    def connect(self, *, serve: bool = False) -> Store:
        """A connection of the caller's own: a request that waits blocks its whole connection.

        Args:
            serve: keep the store in this process.
        """
        limit = timedelta(seconds=timeout())
        try:
            store = TCPStore(self.host, self.port, is_master=serve, wait_for_workers=False, timeout=limit)
        except DistError as error:
            reason = " ".join(str(error).split())
            raise PeerError(f"rank 0 cannot be reached at {self.host}:{self.port}: {reason}") from error
        return PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


class Heartbeat:
    """Publishes this process's record and checks those of the others.

    Args:
        rank, size: of this process, of the group.
        address: of the store.
    """

    def __init__(self, rank: int, size: int, address: StoreAddress) -> None:
        self.rank, self.size = rank, size
        self._timeout = timeout()
        self._state: State = "computing"
        self._since = self._answered = time.monotonic()
        self._failure: str | None = None
        self._records: dict[int, dict[str, Any]] = {peer: {} for peer in range(size) if peer != rank}
        self._changed = dict.fromkeys(self._records, self._since)
        self._store = address.connect()
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in (self._exchange, self._judge)]
        for thread in self._threads:
            thread.start()

    # ------------------------------------------------------------------ the main thread

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """An exchange with the others; where it fails, the error names the rank that is missing."""
        if self._failure is not None:
            raise PeerError(self._failure)
        with self._while("exchanging"):
            try:
                yield
            except RuntimeError as error:
                raise PeerError(self._explain(str(error))) from error

    def no_timeout(self) -> contextlib.AbstractContextManager[None]:
        """Work that may take any time without an exchange."""
        return self._while("busy")

    def close(self, failure: str | None) -> None:
        """Leave the group; a failure is reported to the others."""
        self._closed.set()
        for thread in self._threads:
            thread.join(timeout=2 * BEAT)
        with contextlib.suppress(DistError):
            self._write({"left": True} if failure is None else {"failed": failure})
        if failure is not None:
            time.sleep(2 * BEAT)  # the store may end with this process: the others must have read the reason

    @contextlib.contextmanager
    def _while(self, state: State) -> Iterator[None]:
        before, self._state = self._state, state
        try:
            yield
        finally:
            self._state, self._since = before, time.monotonic()

    def _explain(self, reason: str) -> str:
        """Which rank made an exchange fail, as soon as that is known."""
        until = time.monotonic() + SILENCE + 3 * BEAT
        while self._failure is None and time.monotonic() < until:
            time.sleep(BEAT / 10)
        return self._failure or f"the exchange with the other processes failed: {' '.join(reason.split())}"

    # ------------------------------------------------------------------ the two threads

    def _exchange(self) -> None:
        beat = 0
        with contextlib.suppress(DistError):  # _judge notices the silence
            while not self._closed.wait(BEAT):
                beat += 1
                self._write({"beat": beat, "state": self._state, "seconds": time.monotonic() - self._since})
                for peer, before in self._records.items():
                    record = self._read(peer)
                    if record != before:
                        self._records[peer], self._changed[peer] = record, time.monotonic()
                self._answered = time.monotonic()

    def _judge(self) -> None:
        while not self._closed.wait(BEAT) and self._failure is None:
            if time.monotonic() - self._answered > SILENCE:
                self._failure = f"rank 0 of {self.size}, or its launcher, which holds the store, does not answer"
            else:
                self._failure = next(filter(None, map(self._failure_of, self._records)), None)
        self._closed.wait(GRACE)
        while not self._closed.wait(BEAT / 10):
            if self._state == "exchanging":
                # A main thread inside an exchange cannot be woken, and writes no file.
                print(f"ocssl: {self._failure}", file=sys.stderr, flush=True)
                os._exit(2)

    def _failure_of(self, peer: int) -> str | None:
        """What is wrong with a peer, as a sentence; None if nothing is."""
        who, record = f"rank {peer} of {self.size}", self._records[peer]
        if record.get("left"):
            return None
        if "failed" in record:
            return f"{who} failed: {record['failed']}"
        allowed = SILENCE if record else self._timeout  # processes do not all start at the same moment
        if (silent := time.monotonic() - self._changed[peer]) > allowed:
            return f"{who} has died or cannot be reached: no sign of life for {silent:.0f} s"
        if record.get("state") == "computing" and record["seconds"] > self._timeout:
            return f"{who} hangs: no exchange with the other processes for {record['seconds']:.0f} s"
        return None

    def _write(self, record: dict[str, Any]) -> None:
        self._store.set(f"ocssl/{self.rank}", json.dumps(record))

    def _read(self, peer: int) -> dict[str, Any]:
        key = f"ocssl/{peer}"
        record: dict[str, Any] = json.loads(self._store.get(key)) if self._store.check([key]) else {}
        return record


def timeout() -> float:
    """Seconds that a process may compute without an exchange."""
    text = os.environ.get("OCSSL_PEER_TIMEOUT", str(TIMEOUT))
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) <= LONGEST:
            return seconds
    raise ConfigError(f"OCSSL_PEER_TIMEOUT must be a number of seconds above 0 and at most {LONGEST}, not '{text}'")
