"""The loop of a live learner: take images, learn, save, publish and report until the source ends or a stop request."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ocssl import config
from ocssl.common.console import duration, number_of, warn
from ocssl.common.signals import Interrupted, StopRequest
from ocssl.data.reader import Item
from ocssl.errors import CheckpointError, ConfigError, DataError, DivergedError, InputError
from ocssl.imaging import BadImage, Pixels, file_stamp
from ocssl.learner import Learner
from ocssl.live.begin import IDLE, Info, begin, first_usable, too_few
from ocssl.live.gate import Gate
from ocssl.live.monitor import Monitor, progress_line, resumed_line
from ocssl.live.options import LiveOptions, check_names, settings
from ocssl.live.seen import SeenIndex
from ocssl.live.sources import (
    ImageStream,
    as_source,
    open_stream,
    printable,
    reference_files,
    reference_images,
)
from ocssl.live.start import network_name
from ocssl.live.state import Cursor, StateFolder
from ocssl.live.summary import order_line, quality_line, summary, verdict
from ocssl.options import differing, validate
from ocssl.pretrained import NONE


def learn(
    source: str | Path | Sequence[str | Path] | ImageStream, state: str | Path, *, info: Info = print, **given: Any
) -> Learner:
    """Learn from every image of a source once; continue where an earlier call with this state stopped.

    Args:
        source: a folder, a video, a tar or parquet file, ``camera:0``, ``-`` for paths on standard input, an address
            such as ``tar:PATH``, several image files, or an :class:`~ocssl.live.sources.ImageStream` of your own.
        state: folder that keeps the learner; other processes can load ``state/encoder`` at any moment.
        info: called with each progress line; warnings go to the logger ``ocssl``.
        given: settings of :class:`LiveOptions` and of :class:`~ocssl.Learner`. A backbone of your own is needed every
            time, with the architecture of the first.

    Raises:
        Interrupted: after SIGINT or SIGTERM, with everything saved.
    """
    several = isinstance(source, list | tuple) and all(isinstance(path, str | Path) for path in source)
    if not (several or isinstance(source, str | Path | ImageStream)):
        raise ConfigError(
            f"source must be a path, paths of images, an address or an ImageStream, not {type(source).__name__}; "
            "Learner.partial_fit takes images"
        )
    if isinstance(source, ImageStream) and not isinstance(getattr(source, "key", None), str):
        raise ConfigError(f"{type(source).__name__} has no key; give it one, a text that names it in a saved state")
    check_names(given)
    given = {name: value for name, value in given.items() if value is not None}
    options = validate(LiveOptions, {name: given.pop(name) for name in LiveOptions.model_fields if name in given})
    if options.reference is not None:
        reference_files(options.reference)  # before anything takes long
    known = settings()
    movable = {name: value for name, value in given.items() if known[name].marks.affects == "nothing"}
    own = given["backbone"] if isinstance(given.get("backbone"), nn.Module) else None
    folder = StateFolder(state)
    with folder.opened(), StopRequest() as stop:
        learner, cursor = folder.restore(backbone=own, **movable) or (None, Cursor(0, {}, {}))
        learned = 0 if learner is None else learner.seen + learner.pending
        with folder.index(cursor, learned) as index:
            if isinstance(source, ImageStream):
                stream = source
                stream.seek(cursor.positions.get(stream.key, 0))
            else:
                where = as_source([source] if isinstance(source, str | Path) else source)
                stream = open_stream(where, index, cursor.positions, cursor.identities, follow=options.follow)
            items: list[Item] = []
            if is_new := learner is None:
                items, size = first_usable(stream, stop, given, info)
                count = None if stream.remaining is None else stream.remaining + len(items)
                learner = begin(given, size, options, count, info)
            gate = _gate(learner, options)
            if not is_new:
                folder.restore_gate(gate, learner)
                _check_same(learner, given, folder.path, gate.halvings)
                info(resumed_line(learned, stream.remaining))
            session = _Session(learner, stream, folder, cursor, index, options, info, gate)
            session.save(required=is_new)  # publishes: the encoder may be one save behind the learner
            session.run(items, stop)
            return session.learner


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
    gate: Gate

    def __post_init__(self) -> None:
        self._monitor = Monitor(self.learner.seen)
        self._decoders = ThreadPoolExecutor(min(os.cpu_count() or 1, 8))
        self._refused = 0
        self._waiting: set[str] = set()  # names of images that the system could not read
        self._collapsed = self._unsaved = False
        self._idle = False  # nothing came since the last report
        self._saved_at = self._reported_at = time.monotonic()

    def run(self, items: list[Item], stop: StopRequest) -> None:
        """Learn until no image will come any more, or until a stop request."""
        with self._decoders:
            try:
                self._loop(items, stop)
            except DataError as error:  # the source failed, the learner did not
                self.save(required=False)
                if self._unsaved:
                    raise
                images = number_of(self.learner.seen + self.learner.pending, "image")
                raise DataError(f"{error}; what was learned before is saved, from {images}") from error
            if not stop.pending:
                self._finish()
            self._report(last=True)
            try:
                self.save(required=True)
            except CheckpointError as error:
                raise CheckpointError(
                    f"{error}; the save before is intact: correct this, and the same command goes on from there"
                ) from error
            if not stop.pending:
                self._conclude()
        if stop.pending:
            raise Interrupted(
                f"stopped and saved after {number_of(self.learner.seen + self.learner.pending, 'image')}; the same "
                "command goes on from there",
                stop.number,
            )

    def _conclude(self) -> None:
        """Say whether learning has helped, or that there were too few images to tell."""
        if self.gate.quality is not None:
            pretrained, heads_only = self.learner.config.weights is not None, not self.learner.budget.spent
            said = verdict(self.gate.quality, pretrained=pretrained, heads_only=heads_only)
            for line in (*summary(self.gate.quality), said):
                self.info(line)
        elif self.gate.active:
            warn(too_few(len(self.gate.sample)))

    def save(self, *, required: bool) -> None:
        """Save; a failure that is not required to succeed is a warning: a full disk may have room again later."""
        self._unsaved = True
        try:
            self._if_finite(self.learner.check_finite)
            self.folder.save(self.learner, self.cursor, self.index, self.gate)
            self._unsaved = False
        except CheckpointError as error:
            if required:
                raise
            warn(f"{error}; learning goes on and saving is tried again in {self.options.save_every:g} s")
        self._saved_at = time.monotonic()

    def _loop(self, items: list[Item], stop: StopRequest) -> None:
        size = self.learner.config.stream_batch
        items = items or self.stream.take(size)  # a learner that goes on has taken none yet
        while not stop.pending:
            if items:
                self._learn(items)
                self._idle = False
            elif self.stream.exhausted:
                return
            else:
                time.sleep(IDLE)
            now = time.monotonic()
            if not self._idle and now - self._reported_at >= self.options.report_every:
                self._report()
                if not items:
                    self._idle = True
                    self.info("waiting for new images")
            if self._unsaved and now - self._saved_at >= self.options.save_every:
                self.save(required=False)
            items = self.stream.take(size)

    def _finish(self) -> None:
        """Learn from the last incomplete minibatch; a single image that batch norm cannot take alone stays pending."""
        try:
            self._if_finite(self.learner.flush)
        except InputError:
            self.info("one image is left that cannot be learned from alone; it is saved, and waits for the next ones")
        self._check(last=True)

    def _if_finite(self, act: Callable[[], object]) -> None:
        """Do something with the learner; one whose loss is not finite goes back instead."""
        try:
            act()
        except DivergedError as error:
            if not self.options.gate:
                raise
            self._go_on_with(*self.gate.go_back(self.learner, str(error)))

    def _check(self, *, last: bool = False) -> None:
        """Let the gate measure the encoder."""
        before = self.gate.quality
        self._go_on_with(*self.gate.check(self.learner, last=last))
        if self.gate.quality is not None and (before is None or before.ordered != self.gate.quality.ordered):
            self.info(order_line(self.gate.quality))

    def _go_on_with(self, learner: Learner, said: str | None) -> None:
        if said is not None:
            self.info(said)
        self.learner = learner

    def _learn(self, items: list[Item]) -> None:
        images = self._usable(items)
        self._unsaved = True
        if not images:
            return
        batch = torch.stack(images)
        self._monitor.add(self.learner, batch)
        size = self.learner.config.stream_batch
        while len(batch):  # one minibatch at a time: checks come at the same images however these arrive
            room = size - self.learner.pending % size
            part, batch = batch[:room], batch[room:]
            self.gate.sample.add(part)
            self._if_finite(partial(self.learner.partial_fit, part))
            if self.gate.due(self.learner):
                self._check()

    def _usable(self, items: list[Item]) -> list[Tensor]:
        """The images that can be decoded; each item is acknowledged or given back to the stream."""
        images = []
        decoded = list(self._decoders.map(self._decode, items))
        for item, _, pixels in decoded:
            if isinstance(pixels, DataError):
                self.stream.release(item, pixels)
                if item.name not in self._waiting:  # once, although a followed folder is scanned again and again
                    self._waiting.add(item.name)
                    warn(printable(f"{pixels}; it was not learned from and waits"))
        settled = [entry for entry in decoded if not isinstance(entry[2], DataError)]
        key = self.stream.key
        self.cursor.positions[key] = self.cursor.positions.get(key, 0) + len(settled)
        for item, stamp, pixels in settled:
            if isinstance(pixels, BadImage):
                self._refused += 1
                self.stream.ack(item, stamp=stamp, problem=str(pixels))
                self.info(f"refused {printable(item.name)}: {pixels}")
            else:
                self.stream.ack(item)
                images.append(torch.from_numpy(pixels))
        return images

    def _decode(self, item: Item) -> tuple[Item, str, Pixels | BadImage | DataError]:
        stamp = file_stamp(item.picture)  # before the file is read: one that grows meanwhile is tried again
        try:
            settings = self.learner.config
            return item, stamp, item.decode(settings.image_size, settings.fit, settings.pixel_range)
        except (BadImage, DataError) as problem:
            return item, stamp, problem

    def _report(self, *, last: bool = False) -> None:
        numbers, reason = self._monitor.sample(self.learner, self._refused)
        quality = self.gate.quality
        parts = [progress_line(numbers, rate=not last)]
        if self.stream.remaining and numbers["rate"]:
            left = self.stream.remaining + self.learner.pending
            parts.append(f"{duration(left / numbers['rate'])} left")
        if quality is not None:
            parts.append(quality_line(quality))
        self.info("  ".join(parts))
        if reason and not self._collapsed:
            warn(reason)
        self._collapsed = reason is not None
        try:
            gate = {"lr": self.learner.config.to_dict()["lr"], "quality": None if quality is None else asdict(quality)}
            self.folder.metrics.append({**numbers, **gate})
        except CheckpointError as error:
            warn(str(error))
        self._reported_at = time.monotonic()


def _gate(learner: Learner, options: LiveOptions) -> Gate:
    """A new gate of a learner, with the user's reference images."""
    images = None if options.reference is None else reference_images(options.reference, learner.config)
    return Gate(
        learner,
        check_every=options.check_every,
        sample_size=options.sample_size,
        reference=images,
        least_agreement=options.least_agreement,
        active=options.gate,
    )


def _check_same(learner: Learner, given: Mapping[str, Any], folder: Path, halvings: int) -> None:
    """Refuse settings other than those that the learner was begun with; the gate may have halved the learning rate."""
    begun = learner.config.to_dict()
    begun["lr"] *= 2**halvings
    own = begun["backbone"] is None
    before = config.parse_learner(begun, own_backbone=own)
    for name, value in given.items():
        if isinstance(value, nn.Module):  # it took the saved weights, so it fits
            continue
        zero = name == "weights" and value == NONE
        kept = dict(begun)
        if name == "backbone" and "width" not in given and begun["weights"] is None:
            kept.pop("width", None)  # the name alone means the network's own width, not the one that was chosen here
        try:
            asked = config.parse_learner({**kept, name: None if zero else value}, own_backbone=own)
            same = not differing(before, asked, "experiment", "numbers")
        except ConfigError:
            if name not in begun:
                raise
            same = False
        if not same:
            begun_with = network_name(begun) if name == "backbone" else begun[name]
            raise ConfigError(
                f"'{folder}' was begun with {name}={begun_with!r}, not {value!r}; "
                "leave it out or choose another --state"
            )
