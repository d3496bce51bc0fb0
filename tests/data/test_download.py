"""Downloads over a real connection: broken midway, resumed, verified."""

from __future__ import annotations

import hashlib
import http.client
import http.server
import os
import ssl
import threading
from dataclasses import dataclass, field

import pytest
from pictures import pixels, write

from ocssl import data
from ocssl.data import catalog, download
from ocssl.data.download import Download, fetch
from ocssl.errors import DataError

CONTENT = pixels(0, 300_000).tobytes()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(download, "WAIT_SECONDS", 0)


@dataclass
class Server:
    """What the server shall do with each request in turn; afterwards it serves honestly."""

    address: str = ""
    content: bytes = CONTENT
    misdeeds: list[str] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    elsewhere: str = ""

    @property
    def download(self) -> Download:
        return Download(f"{self.address}/file.bin", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


@pytest.fixture
def server():
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            misdeed = state.misdeeds.pop(0) if state.misdeeds else ""
            asked = self.headers.get("Range")
            state.ranges.append(asked)
            content = bytes(len(state.content)) if misdeed == "wrong bytes" else state.content
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and misdeed != "ignore range" else 0
            if state.elsewhere:
                self.send_response(302)
                self.send_header("Location", state.elsewhere)
                return self.end_headers()
            if misdeed == "not found":
                return self.send_error(404)
            if start >= len(content):
                return self.send_error(416)
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", "x" if misdeed == "odd length" else str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start : start + 100_000] if misdeed == "break" else content[start:])
            return None

        def log_message(self, *args):
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{web.server_port}"
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    yield state
    web.shutdown()
    web.server_close()


def test_a_file_arrives_whole_and_is_fetched_once(server, tmp_path):
    path = fetch(server.download, tmp_path / "new folder")
    assert path.read_bytes() == CONTENT
    assert fetch(server.download, tmp_path / "new folder") == path
    assert server.ranges == [None]


def test_a_broken_connection_is_resumed_where_it_broke(server, tmp_path):
    server.misdeeds = ["break", "break"]
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-", "bytes=200000-"]


def test_another_process_goes_on_with_what_an_earlier_one_left(server, tmp_path, monkeypatch):
    server.misdeeds = ["break"]
    with monkeypatch.context() as once:
        once.setattr(download, "ATTEMPTS", 1)
        with pytest.raises(DataError, match=r"could not download .*file\.bin .*put it at"):
            fetch(server.download, tmp_path)
    assert (tmp_path / "file.bin.part").stat().st_size == 100_000
    assert not (tmp_path / "file.bin").exists()
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-"]


def test_wrong_bytes_are_thrown_away_and_fetched_anew(server, tmp_path):
    server.misdeeds = ["wrong bytes"]
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, None]


def test_bytes_that_stay_wrong_never_get_the_files_name(server, tmp_path):
    server.content = b"something else"
    with pytest.raises(DataError, match="its size or checksum is wrong"):
        fetch(server.download, tmp_path)
    assert not (tmp_path / "file.bin").exists()
    assert not (tmp_path / "file.bin.part").exists()


def test_a_server_that_sends_more_than_the_file_has_is_not_read_to_the_end(server, tmp_path):
    server.content = CONTENT + bytes(10_000_000)
    with pytest.raises(DataError, match="its size or checksum is wrong"):
        fetch(server.download, tmp_path)
    assert not (tmp_path / "file.bin.part").exists()


@pytest.mark.parametrize("url", ["http://example.org/file.bin", "ftp://example.org/file.bin"])
def test_only_https_is_fetched_also_after_a_redirection(server, tmp_path, url):
    with pytest.raises(DataError, match="is not an address with https"):
        fetch(Download(url, "0", 1), tmp_path)
    server.elsewhere = url
    with pytest.raises(DataError, match="is not an address with https"):
        fetch(server.download, tmp_path)


def test_a_server_that_cannot_resume_starts_over(server, tmp_path):
    server.misdeeds = ["break", "ignore range"]
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT


def test_a_server_that_tells_no_length_is_read(server, tmp_path):
    server.misdeeds = ["odd length"]
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("put", [os.mkfifo, lambda part: part.symlink_to("precious")])
def test_a_part_that_is_no_file_is_refused(server, tmp_path, put):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    put(tmp_path / "file.bin.part")
    with pytest.raises(DataError, match=r"cannot write '.*file\.bin'"):
        fetch(server.download, tmp_path)
    assert precious.read_text() == "precious"


def test_a_complete_part_needs_nothing_more(server, tmp_path):
    write(tmp_path / "file.bin.part", CONTENT)
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT


def test_a_connection_that_breaks_inside_tls_is_resumed_too(server, tmp_path, monkeypatch):
    real, reads = http.client.HTTPResponse.read, []

    def breaking(response, *args):
        reads.append(args)
        if len(reads) == 1:
            raise ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
        return real(response, *args)

    monkeypatch.setattr(http.client.HTTPResponse, "read", breaking)
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT


def test_a_missing_file_is_not_asked_for_again(server, tmp_path):
    server.misdeeds = ["not found"] * 5
    with pytest.raises(DataError, match="HTTP Error 404"):
        fetch(server.download, tmp_path)
    assert len(server.ranges) == 1


def test_no_server_at_all_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match="try again later, or fetch it by hand and put it at"):
        fetch(Download("http://127.0.0.1:9/file.bin", "0", 1), tmp_path)


def test_a_known_set_that_is_missing_is_downloaded_and_opened(server, tmp_path, monkeypatch):
    scipy_io = pytest.importorskip("scipy.io")
    scipy_io.savemat(tmp_path / "made.mat", {"X": pixels(1, 32, 32, 3, 2), "y": [[1], [2]]})
    server.content = (tmp_path / "made.mat").read_bytes()
    svhn = catalog.dataset_spec("svhn")
    digest = hashlib.sha256(server.content).hexdigest()
    made = Download(f"{server.address}/train_32x32.mat", digest, len(server.content))
    monkeypatch.setitem(svhn.downloads, "train", made)
    assert len(data.load("svhn", root=tmp_path / "data")) == 2
    assert (tmp_path / "data" / "train_32x32.mat").exists()
    with pytest.raises(DataError, match=r"svhn \(test\) was not found"):
        data.load("svhn", root=tmp_path / "data", split="test", download=False)


def test_the_official_addresses_and_checksums_are_the_published_ones():
    published = {
        ("cifar100", "train"): ("www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "85cd44d0", 169_001_437),
        ("cifar10", "test"): ("www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "6d958be0", 170_498_071),
        ("svhn", "train"): ("ufldl.stanford.edu/housenumbers/train_32x32.mat", "435e94d6", 182_040_794),
        ("svhn", "test"): ("ufldl.stanford.edu/housenumbers/test_32x32.mat", "cdce80df", 64_275_384),
    }
    for (name, split), (url, digest, size) in published.items():
        found = catalog.dataset_spec(name).downloads[split]
        assert (found.url, found.sha256[:8], found.size) == (f"https://{url}", digest, size)
    for name in catalog.names():
        for found in (catalog.dataset_spec(name).downloads or {}).values():
            assert found.url.startswith("https://")
            assert len(found.sha256) == 64
