"""Frames of a video file or a camera, read with OpenCV (extra ``video``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ocssl.data.reader import Item, Reader, describe_files
from ocssl.errors import ConfigError, DataError, missing_extra

SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm")


class VideoReader(Reader):
    """Every frame of a video file, in order."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise DataError(f"there is no video {path}")
        self.path = path.resolve()

    def describe(self) -> str:
        return f"the video {self.path}"

    def identity(self) -> str:
        return f"video\n{describe_files([self.path])}"

    def items(self, start: int = 0) -> Iterator[Item]:
        with _Capture(str(self.path)) as capture:
            # Seeking is inexact in many formats; walking past frames without decoding them to pixels is not.
            for _ in range(start):
                if not capture.grab():
                    return
            yield from _frames(capture, str(self.path), start)


class CameraReader(Reader):
    """Whatever a camera shows from now on: it has no past, so every start is at the present."""

    def __init__(self, number: str) -> None:
        if not number.isdecimal():
            raise ConfigError(f"a camera is given by its number, camera:0 for the first one, not 'camera:{number}'")
        self.number = int(number)

    def describe(self) -> str:
        return f"camera {self.number}"

    def identity(self) -> str:
        return f"camera {self.number}"

    def items(self, start: int = 0) -> Iterator[Item]:
        with _Capture(self.number) as capture:
            yield from _frames(capture, f"camera:{self.number}", start)


class _Capture:
    """An open capture that is released whatever happens."""

    def __init__(self, place: str | int) -> None:
        try:
            import cv2
        except ImportError as error:
            raise missing_extra("opencv-python-headless", "video", "video files and cameras") from error
        self._place = place
        self._capture: Any = cv2.VideoCapture(place)

    def __enter__(self) -> Any:
        if not self._capture.isOpened():
            what = f"camera {self._place}" if isinstance(self._place, int) else f"the video {self._place}"
            raise DataError(f"{what} cannot be opened: it is not there, in use, or of a kind that OpenCV does not read")
        return self._capture

    def __exit__(self, *_: object) -> None:
        self._capture.release()


def _frames(capture: Any, name: str, number: int) -> Iterator[Item]:
    while True:
        there, frame = capture.read()
        if not there:
            return
        yield Item(f"{name}:{number}", frame[:, :, ::-1])  # OpenCV gives blue first
        number += 1
