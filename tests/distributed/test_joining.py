"""Joining a group: what the launcher must say, and what is refused before any process waits for another."""

from __future__ import annotations

import pytest
import torch

from ocssl.distributed import current, process_group
from ocssl.distributed.heartbeat import timeout
from ocssl.errors import ConfigError

LAUNCHED = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def launched(monkeypatch: pytest.MonkeyPatch, **changes: str | None) -> None:
    for name, value in (LAUNCHED | changes).items():
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", None),
        ("MASTER_ADDR", None),
        ("WORLD_SIZE", "two"),
        ("WORLD_SIZE", "0"),
        ("RANK", "2"),
        ("LOCAL_RANK", "-1"),
        ("MASTER_PORT", "99999"),
    ],
)
def test_what_torchrun_would_not_say_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    launched(monkeypatch, **{name: value})
    with pytest.raises(ConfigError) as refused, process_group():
        pass
    assert f"{name} is {value or 'not set'}" in str(refused.value)
    assert "that is no group of processes; start with torchrun, or unset WORLD_SIZE" in str(refused.value)
    assert current().single


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    launched(monkeypatch, RANK="1", LOCAL_RANK="1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    said = r"^process 2 of this machine has no GPU of its own: there are 1; .* CUDA_VISIBLE_DEVICES=$"
    with pytest.raises(ConfigError, match=said), process_group():
        pass


@pytest.mark.parametrize("text", ["inf", "nan", "0", "-1", "soon", "1e300"])
def test_a_wait_that_is_no_number_of_seconds_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OCSSL_PEER_TIMEOUT", text)
    with pytest.raises(ConfigError, match=f"must be a number of seconds above 0 and at most 604800, not '{text}'"):
        timeout()
