"""The loop: take images as they come, learn, save, publish, tell; stop whenever asked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ocssl.common.signals import Interrupted, StopRequest
from ocssl.data.dataset import IMAGENET_MEAN, IMAGENET_STD
from ocssl.data.formats.files import SUFFIXES
from ocssl.data.reader import Item
from ocssl.diagnosis import collapse, diagnose
from ocssl.errors import CheckpointError, ConfigError, DataError, InputError
from ocssl.imaging import BadImage, Pixels, decode
from ocssl.learner import Learner, check_names
from ocssl.live.arrivals import Arrivals, Folder, stamp_of
from ocssl.live.health import Watch
from ocssl.live.ledger import Ledger
from ocssl.live.pace import choose
from ocssl.live.sizes import size_for
from ocssl.live.sources import open_arrivals
from ocssl.live.state import Place, StateFolder
from ocssl.settings import require

IDLE = 0.1  # seconds to rest when no image is there
IMAGES_PER_SECOND = 20.0
MOVABLE = ("device",)  # settings that may differ between two starts of one learner
Tell = Callable[[str], object]


@dataclass(frozen=True)
class Intervals:
    """Seconds between two saves, each of which publishes the encoder, and between two reports."""

    save: float = 30.0
    report: float = 10.0

    def __post_init__(self) -> None:
        require("the time between saves, in seconds,", self.save, low=0)
        require("the time between reports, in seconds,", self.report, low=0)


def learn(
    source: str | Arrivals,
    state: str | Path,
    *,
    follow: bool = False,
    images_per_second: float = IMAGES_PER_SECOND,
    intervals: Intervals | None = None,
    tell: Tell = print,
    **settings: Any,
) -> Learner:
    """Learn from every image of a source once; go on where an earlier call with this state stopped.

    Args:
        source: a folder, a video, a tar or parquet file, ``camera:0``, ``-`` for paths on standard input, an address
            such as ``tar:PATH``, or :class:`~ocssl.live.arrivals.Arrivals` of your own.
        state: folder that keeps the learner; ``state/encoder`` can be loaded by others at any moment.
        follow: go on with files that arrive in the folder later, until told to stop.
        images_per_second: what the learner has to keep up with; decides, on this machine, what is not in ``settings``.
        tell: called with each line of progress.
        settings: arguments of :class:`~ocssl.Learner`. A backbone of your own is needed every time, with the
            architecture of the first.

    Raises:
        Interrupted: after SIGINT or SIGTERM, with everything saved.
    """
    check_names(settings)
    settings = {name: value for name, value in settings.items() if (name, value) != ("image_size", None)}
    folder = StateFolder(state)
    with folder.opened(), StopRequest() as stop:
        moved = {name: settings[name] for name in MOVABLE if name in settings}
        own = settings.get("backbone") if isinstance(settings.get("backbone"), nn.Module) else None
        restored = folder.restore(backbone=own, **moved)
        place = restored[1] if restored else Place()
        with folder.ledger(place) as ledger:
            if isinstance(source, Arrivals):
                arrivals = source
                arrivals.skip(place.positions.get(arrivals.key, 0))
            else:
                arrivals = open_arrivals(source, ledger, place.positions, place.identities, follow=follow)
            first: list[Item] = []
            if restored:
                learner = restored[0]
                _check_same(learner, settings, folder.path)
            else:
                first, size = _first_usable(arrivals, stop, settings)
                learner = _begin(size, images_per_second, settings, tell)
            session = _Session(learner, arrivals, folder, place, ledger, intervals or Intervals(), tell)
            session.begin(anew=not restored)
            session.run(first, stop)
            return learner


class _Session:
    """One process's share of a learner's life."""

    def __init__(
        self,
        learner: Learner,
        arrivals: Arrivals,
        folder: StateFolder,
        place: Place,
        ledger: Ledger,
        intervals: Intervals,
        tell: Tell,
    ) -> None:
        self.learner = learner
        self.arrivals = arrivals
        self.folder = folder
        self.place = place
        self.ledger = ledger
        self.intervals = intervals
        self.tell = tell
        self.watch = Watch(learner)
        self.refused = 0
        self._decoders = ThreadPoolExecutor(min(os.cpu_count() or 1, 8))
        self._collapsed = self._changed = False
        self._saved = self._reported = time.monotonic()

    def begin(self, *, anew: bool) -> None:
        """Save and publish: what was chosen holds from the first image on, and what was saved is there for others."""
        if anew:
            self.folder.save(self.learner, self.place, self.ledger)
        else:
            self._changed = True  # until it is saved, the encoder may be one save behind the learner
            self._try_to_save()

    def run(self, items: list[Item], stop: StopRequest) -> None:
        """Until no image will ever come again, or until asked to stop."""
        with self._decoders:
            try:
                self._loop(items, stop)
            except DataError:  # the source broke, the learner did not
                self._try_to_save()
                raise
            if not stop.pending:
                self._finish()
            self._report()
            self.folder.save(self.learner, self.place, self.ledger)
        if stop.pending:
            raise Interrupted(
                f"stopped and saved after {self.learner.seen:,} images; the same command goes on from there",
                stop.number,
            )

    def _loop(self, items: list[Item], stop: StopRequest) -> None:
        while not stop.pending:
            if items:
                self._learn(items)
            elif self.arrivals.over:
                return
            else:
                time.sleep(IDLE)
            self._now_and_then()
            items = self.arrivals.take(self.learner.stream_batch)

    def _finish(self) -> None:
        """Learn from what waits for a full minibatch; a single image that may need company goes on waiting."""
        try:
            self.learner.flush()
        except InputError:
            self.tell("one image is left that cannot be learned from alone; it is saved, and waits for the next ones")

    def _learn(self, items: list[Item]) -> None:
        images = []
        for item, stamp, pixels in self._decoders.map(self._decode, items):
            if isinstance(pixels, BadImage):
                self._refuse(item, stamp, str(pixels))
            else:
                self.arrivals.done(item)
                images.append(torch.from_numpy(pixels))
        self._changed, key = True, self.arrivals.key
        self.place.positions[key] = self.place.positions.get(key, 0) + len(items)
        if images:
            batch = torch.stack(images)
            self.learner.partial_fit(batch)
            self.watch.arrived(batch)

    def _decode(self, item: Item) -> tuple[Item, str, Pixels | BadImage]:
        stamp = stamp_of(item.picture)  # before the file is read: one that grows meanwhile is tried again
        try:
            if isinstance(item.picture, BadImage):
                raise item.picture
            return item, stamp, decode(item.picture, self.learner.image_size)
        except BadImage as problem:
            return item, stamp, problem

    def _refuse(self, item: Item, stamp: str, problem: str) -> None:
        self.refused += 1
        self.arrivals.done(item, stamp=stamp, problem=problem)
        name = item.name.encode(errors="backslashreplace").decode()  # not every terminal takes a name that is no UTF-8
        self.tell(f"refused {name}: {problem}")

    # ------------------------------------------------------------------ now and then

    def _now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._reported >= self.intervals.report:
            self._report()
        if self._changed and now - self._saved >= self.intervals.save:
            self._try_to_save()

    def _try_to_save(self) -> None:
        """A full disk may have room again later; until then the state saved before is the one to go on from."""
        try:
            self.folder.save(self.learner, self.place, self.ledger)
            self._changed = False
        except CheckpointError as error:
            self.tell(f"warning: {error}; learning goes on and saving is tried again in {self.intervals.save:g} s")
        self._saved = time.monotonic()

    def _report(self) -> None:
        health = self.watch.look(self.refused)
        self.tell(str(health))
        reason = collapse(diagnose(self.learner))
        if reason and not self._collapsed:
            self.tell(f"warning: {reason}")
        self._collapsed = reason is not None
        try:
            self.folder.note(asdict(health))
        except CheckpointError as error:
            self.tell(f"warning: {error}")
        self._reported = time.monotonic()


def _first_usable(arrivals: Arrivals, stop: StopRequest, settings: Mapping[str, Any]) -> tuple[list[Item], int]:
    """The items up to the first usable image, and the size to learn at."""
    looked_at: list[Item] = []
    while not stop.pending:
        items = arrivals.take(1)
        looked_at += items
        for item in items:
            size = size_for(item.picture, str(settings.get("device", "auto")))
            if size is not None:
                return looked_at, settings.get("image_size", size)
        if arrivals.over:
            hint = f"; {len(looked_at)} were looked at, {looked_at[0].name} for one" if looked_at else ""
            if not looked_at and isinstance(arrivals, Folder):
                hint = f"; names of images end in {', '.join(SUFFIXES)}"
            raise DataError(f"there is no usable image in {arrivals.key}{hint}")
        if not items:
            time.sleep(IDLE)
    raise Interrupted("stopped before the first image came; nothing was learned", stop.number)


def _begin(image_size: int, target: float, settings: Mapping[str, Any], tell: Tell) -> Learner:
    if not target > 0:
        raise ConfigError(f"images_per_second must be above 0, not {target:g}")
    given = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, **settings, "image_size": image_size}
    if not {"backbone", "batch", "passes"} <= given.keys():
        given, rate = choose(target, given)
        own = given["backbone"] if isinstance(given["backbone"], nn.Module) else None
        network = given["backbone"] if own is None else f"your {type(own).__name__}"
        tell(
            f"learning at {image_size}×{image_size} with {network}, batch {given['batch']}, "
            f"passes {given['passes']}: about {rate:.0f} img/s here"
        )
        if rate < target:
            tell(f"warning: this is less than {target:g} img/s, and nothing cheaper is known; images will have to wait")
    return Learner(**given)


def _check_same(learner: Learner, settings: Mapping[str, Any], folder: Path) -> None:
    begun = learner.get_params()
    for name, value in settings.items():
        if name in MOVABLE or isinstance(value, nn.Module):  # whether a module fits was seen when it took the weights
            continue
        if _plain(begun[name]) != _plain(value):
            raise ConfigError(
                f"'{folder}' was begun with {name}={begun[name]!r}, not {value!r}; "
                "leave it out or choose another --state"
            )


def _plain(value: Any) -> Any:
    """A value as it compares: what kind of sequence it came in does not matter.

    >>> _plain({"sizes": [1, (2, 3)]})
    {'sizes': [1, [2, 3]]}
    """
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
