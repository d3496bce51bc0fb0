"""The loop of a live learner: take images, learn, save, publish and report until the source ends or a stop request."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ocssl import config
from ocssl.common.console import duration, short_count, warn
from ocssl.common.signals import Interrupted, StopRequest
from ocssl.data.dataset import IMAGENET_MEAN, IMAGENET_STD
from ocssl.data.formats.files import SUFFIXES
from ocssl.data.reader import Item
from ocssl.diagnosis import diagnose
from ocssl.errors import CheckpointError, ConfigError, DataError, InputError
from ocssl.evaluation import alignment, collapsed
from ocssl.imaging import BadImage, Pixels
from ocssl.learner import Learner
from ocssl.live.autotune import autotune, image_size_for
from ocssl.live.seen import SeenIndex
from ocssl.live.sources import FolderStream, ImageStream, file_stamp, open_stream
from ocssl.live.state import Cursor, StateFolder
from ocssl.options import Declared, Options, declared, differing, setting, validate
from ocssl.registry import unknown

IDLE = 0.1  # seconds to sleep where no image is there
COMPARED = 64  # images whose features are compared over time
HOUR = 3600.0
Info = Callable[[str], object]


class LiveOptions(Options):
    """Settings of :func:`learn`, besides those of the learner."""

    follow: bool = setting(False, "Continue with files that arrive later.", affects="nothing", common=True)
    images_per_second: float = setting(
        20.0, "Rate to keep up with; settings that are not given follow from it.", affects="nothing", common=True, gt=0
    )
    save_every: float = setting(
        30.0, "Seconds between saves; each publishes the encoder.", affects="nothing", common=True, ge=0
    )
    report_every: float = setting(10.0, "Seconds between progress lines.", affects="nothing", common=True, ge=0)


def learn(source: str | ImageStream, state: str | Path, *, info: Info = print, **given: Any) -> Learner:
    """Learn from every image of a source once; continue where an earlier call with this state stopped.

    Args:
        source: a folder, a video, a tar or parquet file, ``camera:0``, ``-`` for paths on standard input, an address
            such as ``tar:PATH``, or an :class:`~ocssl.live.sources.ImageStream` of your own.
        state: folder that keeps the learner; other processes can load ``state/encoder`` at any moment.
        info: called with each progress line; warnings go to the logger ``ocssl``.
        given: settings of :class:`LiveOptions` and of :class:`~ocssl.Learner`. A backbone of your own is needed every
            time, with the architecture of the first.

    Raises:
        Interrupted: after SIGINT or SIGTERM, with everything saved.
    """
    check_names(given)
    given = {name: value for name, value in given.items() if value is not None}
    options = validate(LiveOptions, {name: given.pop(name) for name in LiveOptions.model_fields if name in given})
    known = settings()
    movable = {name: value for name, value in given.items() if known[name].marks.affects == "nothing"}
    own = given["backbone"] if isinstance(given.get("backbone"), nn.Module) else None
    folder = StateFolder(state)
    with folder.opened(), StopRequest() as stop:
        restored = folder.restore(backbone=own, **movable)
        cursor = restored[1] if restored else Cursor()
        with folder.index(cursor) as index:
            if isinstance(source, ImageStream):
                stream = source
                stream.seek(cursor.positions.get(stream.key, 0))
            else:
                stream = open_stream(source, index, cursor.positions, cursor.identities, follow=options.follow)
            items: list[Item] = []
            if restored:
                learner = restored[0]
                _check_same(learner, given, folder.path)
            else:
                items, size = _first_usable(stream, stop, str(given.get("device", "auto")))
                learner = _begin({"image_size": size, **given}, options.images_per_second, info)
            session = _Session(learner, stream, folder, cursor, index, options, info)
            session.save(required=not restored)  # publishes: the encoder may be one save behind the learner
            session.run(items, stop)
            return learner


def settings() -> dict[str, Declared]:
    """Every setting of :func:`learn` by name, those of the learner included."""
    return declared({("", ""): LiveOptions.model_fields}) | config.settings()


def check_names(names: Iterable[str]) -> None:
    """Refuse the first name that is no setting of :func:`learn`."""
    known = settings()
    for name in names:
        if name not in known:
            raise unknown("setting", name, known, list_all=False)


@dataclass
class _Session:
    """One call of :func:`learn`."""

    learner: Learner
    stream: ImageStream
    folder: StateFolder
    cursor: Cursor
    index: SeenIndex
    options: LiveOptions
    info: Info

    def __post_init__(self) -> None:
        self._monitor = Monitor(self.learner)
        self._decoders = ThreadPoolExecutor(min(os.cpu_count() or 1, 8))
        self._refused = 0
        self._waiting: set[str] = set()  # names of images that the system could not read
        self._collapsed = self._unsaved = False
        self._saved_at = self._reported_at = time.monotonic()

    def run(self, items: list[Item], stop: StopRequest) -> None:
        """Learn until no image will come any more, or until a stop request."""
        with self._decoders:
            try:
                self._loop(items, stop)
            except DataError:  # the source failed, the learner did not
                self.save(required=False)
                raise
            if not stop.pending:
                self._finish()
            self._report()
            self.save(required=True)
        if stop.pending:
            raise Interrupted(
                f"stopped and saved after {self.learner.seen:,} images; the same command goes on from there",
                stop.number,
            )

    def save(self, *, required: bool) -> None:
        """Save; a failure that is not required to succeed is a warning: a full disk may have room again later."""
        self._unsaved = True
        try:
            self.folder.save(self.learner, self.cursor, self.index)
            self._unsaved = False
        except CheckpointError as error:
            if required:
                raise
            warn(f"{error}; learning goes on and saving is tried again in {self.options.save_every:g} s")
        self._saved_at = time.monotonic()

    def _loop(self, items: list[Item], stop: StopRequest) -> None:
        while not stop.pending:
            if items:
                self._learn(items)
            elif self.stream.exhausted:
                return
            else:
                time.sleep(IDLE)
            now = time.monotonic()
            if now - self._reported_at >= self.options.report_every:
                self._report()
            if self._unsaved and now - self._saved_at >= self.options.save_every:
                self.save(required=False)
            items = self.stream.take(self.learner.config.stream_batch)

    def _finish(self) -> None:
        """Learn from the last incomplete minibatch; a single image that batch norm cannot take alone stays pending."""
        try:
            self.learner.flush()
        except InputError:
            self.info("one image is left that cannot be learned from alone; it is saved, and waits for the next ones")

    def _learn(self, items: list[Item]) -> None:
        images = []
        decoded = list(self._decoders.map(self._decode, items))
        for item, _, pixels in decoded:
            if isinstance(pixels, DataError):
                self.stream.release(item, pixels)
                self._warn_of_waiting(item, pixels)
        for item, stamp, pixels in decoded:
            if isinstance(pixels, DataError):
                continue
            if isinstance(pixels, BadImage):
                self._refused += 1
                self.stream.ack(item, stamp=stamp, problem=str(pixels))
                name = item.name.encode(errors="backslashreplace").decode()  # terminals may refuse what is not UTF-8
                self.info(f"refused {name}: {pixels}")
            else:
                self.stream.ack(item)
                images.append(torch.from_numpy(pixels))
        self._unsaved, key = True, self.stream.key
        self.cursor.positions[key] = self.cursor.positions.get(key, 0) + len(items)
        if images:
            batch = torch.stack(images)
            self.learner.partial_fit(batch)
            self._monitor.add(batch)

    def _warn_of_waiting(self, item: Item, error: DataError) -> None:
        """Warn once of each image, although a followed folder is scanned again and again."""
        if item.name not in self._waiting:
            self._waiting.add(item.name)
            warn(f"{error}; it was not learned from and waits".encode(errors="backslashreplace").decode())

    def _decode(self, item: Item) -> tuple[Item, str, Pixels | BadImage | DataError]:
        stamp = file_stamp(item.picture)  # before the file is read: one that grows meanwhile is tried again
        try:
            return item, stamp, item.decode(self.learner.config.image_size)
        except (BadImage, DataError) as problem:
            return item, stamp, problem

    def _report(self) -> None:
        numbers, reason = self._monitor.sample(self._refused)
        self.info(progress_line(numbers))
        if reason and not self._collapsed:
            warn(reason)
        self._collapsed = reason is not None
        try:
            self.folder.metrics.append(numbers)
        except CheckpointError as error:
            warn(str(error))
        self._reported_at = time.monotonic()


# ---------------------------------------------------------------------- the first image, the first settings


def _first_usable(stream: ImageStream, stop: StopRequest, device: str) -> tuple[list[Item], int]:
    """The items up to the first usable image, and its size as the learner's ``image_size``."""
    tried: list[Item] = []
    while not stop.pending:
        items = stream.take(1)
        tried += items
        for item in items:
            size = image_size_for(item.picture, device)
            if size is not None:
                return tried, size
        if stream.exhausted:
            hint = f"; {len(tried)} were tried, {tried[0].name} for one" if tried else ""
            if not tried and isinstance(stream, FolderStream):
                hint = f"; names of images end in {', '.join(SUFFIXES)}"
            raise DataError(f"there is no usable image in {stream.key}{hint}")
        if not items:
            time.sleep(IDLE)
    raise Interrupted("stopped before the first image came; nothing was learned", stop.number)


def _begin(given: dict[str, Any], target: float, info: Info) -> Learner:
    """A new learner; what is not given is chosen for this machine and ``target`` images per second."""
    read = config.known_names({name: value for name, value in given.items() if isinstance(value, str)})
    given = {name: value for name, value in (("mean", IMAGENET_MEAN), ("std", IMAGENET_STD)) if name in read} | given
    if not {"backbone", "batch", "passes"} <= given.keys():
        given, rate = autotune(target, given)
        size, backbone = given["image_size"], given["backbone"]
        network = f"your {type(backbone).__name__}" if isinstance(backbone, nn.Module) else backbone
        info(
            f"learning at {size}×{size} with {network}, batch {given['batch']}, passes {given['passes']}: "
            f"about {rate:.0f} img/s here"
        )
        if rate < target:
            warn(f"this machine learns from fewer than {target:g} img/s with the cheapest settings; images will wait")
    return Learner(**given)


def _check_same(learner: Learner, given: Mapping[str, Any], folder: Path) -> None:
    """Refuse settings other than those that the learner was begun with."""
    begun = learner.config.to_dict()
    for name, value in given.items():
        if isinstance(value, nn.Module):  # it took the saved weights, so it fits
            continue
        try:
            asked = config.parse_learner({**begun, name: value}, own_backbone=begun["backbone"] is None)
            same = not differing(learner.config, asked, "experiment", "numbers")
        except ConfigError:
            if name not in begun:
                raise
            same = False
        if not same:
            raise ConfigError(
                f"'{folder}' was begun with {name}={begun[name]!r}, not {value!r}; "
                "leave it out or choose another --state"
            )


# ---------------------------------------------------------------------- how it goes


class Monitor:
    """Samples a learner's speed, cost and features; drift is that of the newest images of up to an hour ago."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._seen, self._sampled_at = learner.seen, time.monotonic()
        self._images: Tensor | None = None
        self._before: Tensor | None = None
        self._since = 0.0

    def add(self, images: Tensor) -> None:
        """Images that were learned from, ``(n, 3, s, s)`` uint8."""
        if self._before is not None and time.monotonic() - self._since > HOUR:
            self._images = self._before = None
        if self._before is None:
            held = images if self._images is None else torch.cat([self._images, images])
            self._images = held[-COMPARED:]
            if len(self._images) == COMPARED:
                self._before, self._since = self._learner.encode(self._images).cpu(), time.monotonic()

    def sample(self, refused: int) -> tuple[dict[str, Any], str | None]:
        """A line of metrics, and why the features count as collapsed, if they do.

        ``rate`` is in images per second since the sample before; ``rank`` is None where the last batch is too small;
        ``drift`` is 1 − cosine between features now and ``drift_seconds`` ago, None before there are any.
        """
        learner, now = self._learner, time.monotonic()
        found = diagnose(learner)
        numbers = {
            "seen": learner.seen,
            "rate": (learner.seen - self._seen) / max(now - self._sampled_at, 1e-9),
            "cbp": learner.budget.spent,
            "rank": found.get("effective_rank"),
            "drift": None,
            "drift_seconds": now - self._since,
            "refused": refused,
        }
        if self._before is not None and self._images is not None:
            numbers["drift"] = 1 - alignment(learner.encode(self._images).cpu(), self._before)
        self._seen, self._sampled_at = learner.seen, now
        return numbers, collapsed(found.get("feature_std"), found.get("effective_rank"))


def progress_line(numbers: Mapping[str, Any]) -> str:
    """A sample of the monitor in one line.

    >>> drift = {"drift": 0.01, "drift_seconds": 90}
    >>> progress_line({"seen": 1200, "rate": 31.7, "cbp": 9600, "rank": None, "refused": 0, **drift})
    '1,200 images  31.7 img/s  CBP 9600  drift 0.010 in 1:30'
    """
    parts = [f"{numbers['seen']:,} images", f"{numbers['rate']:.1f} img/s", f"CBP {short_count(numbers['cbp'])}"]
    if numbers["rank"] is not None:
        parts.append(f"rank {numbers['rank']:.1f}")
    if numbers["drift"] is not None:
        parts.append(f"drift {numbers['drift']:.3f} in {duration(numbers['drift_seconds'])}")
    if numbers["refused"]:
        parts.append(f"{numbers['refused']:,} refused")
    return "  ".join(parts)
