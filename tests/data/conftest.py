"""Every data test has a cache of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No test sees the user's cache or data root."""
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OCSSL_DATA", raising=False)
    return tmp_path / "cache"
