"""Frames of a video file or a camera, read with OpenCV (extra ``video``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ocssl.common.console import shown
from ocssl.data.reader import Item, Reader, describe_files
from ocssl.errors import ConfigError, DataError, import_extra

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
        return _frames(str(self.path), self.describe(), str(self.path), start, skip=start)


class CameraReader(Reader):
    """The frames of a camera from now on, at any ``start``."""

    def __init__(self, number: str) -> None:
        if not (number.isdecimal() and len(number) < 6):
            raise ConfigError(
                f"a camera is given by its number, camera:0 for the first one, not {shown(f'camera:{number}')}"
            )
        self.number = int(number)

    def describe(self) -> str:
        return f"camera {self.number}"

    def identity(self) -> str:
        return self.describe()

    def items(self, start: int = 0) -> Iterator[Item]:
        return _frames(self.number, self.describe(), f"camera:{self.number}", start)


def _frames(place: str | int, what: str, name: str, number: int, skip: int = 0) -> Iterator[Item]:
    """Frames ``(height, width, 3)``, named from ``number`` on; the capture is released in the end."""
    cv2 = import_extra("cv2", "video", "video files and cameras", package="opencv-python-headless")
    capture = cv2.VideoCapture(place)
    try:
        if not capture.isOpened():
            raise DataError(f"{what} cannot be opened: it is not there, in use, or of a kind that OpenCV does not read")
        # Seeking is inexact in many formats; grabbing frames without decoding them to pixels is not.
        if not all(capture.grab() for _ in range(skip)):
            return
        while True:
            found, frame = capture.read()
            if not found:
                return
            yield Item(f"{name}:{number}", frame[:, :, ::-1])  # OpenCV has blue first
            number += 1
    finally:
        capture.release()
