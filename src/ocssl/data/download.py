"""Fetching a file over HTTP: resumed after a break, verified before it gets its name."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocssl.common.console import progress_bar
from ocssl.common.files import locked, regular, sha256, writing
from ocssl.errors import DataError

BLOCK = 1 << 20
TIMEOUT_SECONDS = 30
ATTEMPTS = 5
WAIT_SECONDS = 1.0  # before the second attempt, doubled before each further one


@dataclass(frozen=True)
class Download:
    """A file on the web.

    Attributes:
        url: with ``https``; nothing else is fetched, except from this machine.
        sha256: its checksum, in hexadecimal digits.
        size: in bytes; no more are ever read.
    """

    url: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def fetch(download: Download, folder: Path, show: bool | None = None) -> Path:
    """Fetch a file into ``folder`` unless it is there, and return the path of the verified file.

    An incomplete file's name ends in ``.part``; a later attempt, in this call or in another process, resumes it. A file
    with a wrong checksum is deleted and fetched again.
    """
    target = folder / download.file_name
    with writing(target, DataError), locked(folder, wait=-1):
        if not target.exists():  # another process may have fetched it meanwhile
            _fetch(download, target, show)
    return target


def _fetch(download: Download, target: Path, show: bool | None) -> None:
    part = target.with_name(target.name + ".part")
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(WAIT_SECONDS * 2 ** (attempt - 1))
        try:
            _append_rest(download, part, show)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = str(error) or type(error).__name__
            if isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404, 410):
                break
            continue
        if part.stat().st_size == download.size and sha256(part) == download.sha256:
            os.replace(part, target)
            return
        problem = "its size or checksum is wrong"
        part.unlink()
    raise DataError(
        f"could not download {download.url} ({problem}); try again later, or fetch it by hand and put it at {target}"
    )


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows no redirection to another scheme."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        _check_address(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_address(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and (parts.scheme, parts.hostname) != ("http", "127.0.0.1"):
        raise DataError(f"{url} is not an address with https; nothing was downloaded")


def _append_rest(download: Download, part: Path, show: bool | None) -> None:
    """Request the rest of a partial file and append it; if the server sends the whole file, it replaces the part."""
    url, have = download.url, part.stat().st_size if part.exists() else 0
    _check_address(url)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.build_opener(_OnlyHttps).open(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # the part is complete
            return
        raise
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        start = have if resumed else 0
        total = None if response.length is None else start + response.length
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if resumed else os.O_TRUNC)
        with (
            regular(part, flags) as handle,
            open(handle, "ab" if resumed else "wb", closefd=False) as file,
            progress_bar(f"Downloading {download.file_name}", total, show, start=start, is_bytes=True) as advance,
        ):
            while block := _read(response, download.size + 1 - file.tell()):
                file.write(block)
                advance(len(block))
    if total is not None and part.stat().st_size < min(total, download.size):
        raise ConnectionError("the connection broke")


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    try:
        return response.read(min(BLOCK, max(limit, 0)))
    except OSError as error:  # of the network (TLS, a lost route), not of writing the file
        raise ConnectionError(str(error) or type(error).__name__) from error
