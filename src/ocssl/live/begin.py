"""How live learning begins: the first usable images, and a new learner for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ocssl.common.console import duration, number_of, warn
from ocssl.common.signals import Interrupted, StopRequest
from ocssl.data.formats.files import SUFFIXES
from ocssl.data.reader import Item
from ocssl.errors import DataError
from ocssl.imaging import BadImage, PixelRange, check_pixel_range, file_stamp
from ocssl.learner import Learner
from ocssl.live.autotune import autotune, image_size_for
from ocssl.live.gate import MIN_KEPT
from ocssl.live.options import RATE, LiveOptions
from ocssl.live.seen import PATHS
from ocssl.live.sources import FolderStream, ImageStream, printable
from ocssl.live.start import described, start_settings

IDLE = 0.1  # seconds to sleep where no image is there
SIZED = 9  # images whose median size is that of a new learner
Info = Callable[[str], object]


def first_usable(
    stream: ImageStream, stop: StopRequest, given: Mapping[str, Any], info: Info
) -> tuple[list[Item], int]:
    """The first items, up to some usable images, and the median of their sizes as the learner's ``image_size``.

    There is at least one usable image. Others are taken where no size is given, as far as they are there. While none is
    there, files that were broken are looked at again once they have changed, and those that could not be read at once.
    """
    tried: list[Item] = []
    unusable: dict[int, str] = {}  # stamps of files, by their places in what was tried
    sizes: list[int] = []
    device, pixel_range = str(given.get("device", "auto")), check_pixel_range(given.get("pixel_range"))
    enough = 1 if "image_size" in given else SIZED
    waiting = -1  # how many were tried when that was last said
    while not stop.pending:
        try:
            items = stream.take(1)
        except DataError:
            if not sizes:
                raise
            items = []  # what came before is learned from, and the next call raises it again
        if items:
            tried += items
            look_at = [*range(len(tried) - len(items), len(tried))]
        else:
            look_at = [place for place, stamp in unusable.items() if file_stamp(tried[place].picture) != stamp]
        for place in look_at:
            picture, size = tried[place].picture, None
            unusable[place] = file_stamp(picture)  # before the file is read
            try:
                size = image_size_for(picture, device, pixel_range)
            except (OSError, MemoryError):  # not of the image: it may be fine soon, and stay as it is
                unusable[place] = ""
            if size is not None:
                sizes.append(size)
                del unusable[place]
        if len(sizes) == enough or (sizes and (not items or stream.exhausted)):
            return tried, sorted(sizes)[len(sizes) // 2]
        if stream.exhausted:
            hint = f"; names of images end in {', '.join(SUFFIXES)}" if isinstance(stream, FolderStream) else ""
            hint = _example(tried, pixel_range) or hint
            where = "the list of paths" if stream.key == PATHS else stream.key
            raise DataError(f"there is no usable image in {where}{hint}")
        if not items:
            if waiting != len(tried):
                info(f"waiting for the first image{_example(tried, pixel_range)}")
            waiting = len(tried)
            time.sleep(IDLE)
    raise Interrupted("stopped before the first image came; nothing was learned", stop.number)


def _example(tried: list[Item], pixel_range: PixelRange | None) -> str:
    """The first image that was tried and cannot be used, and why, to be put behind a sentence."""
    if not tried:
        return ""
    said = f"; tried {len(tried):,}, {printable(tried[0].name)} for one"
    try:
        tried[0].decode(1, "crop", pixel_range)
    except (BadImage, DataError) as problem:
        return f"{said}: {problem}"
    return said


def begin(given: dict[str, Any], size: int, options: LiveOptions, count: int | None, info: Info) -> Learner:
    """A new learner; what is not given is chosen for this machine and the time that it has for ``count`` images."""
    in_time = options.images_per_second is None and count is not None
    target = options.images_per_second or (RATE if count is None else count / (60 * options.minutes))
    settings, rate, speed = start_settings(given, size), None, ""
    if not {"backbone", "batch", "passes"} <= settings.keys():
        info("measuring how fast this computer learns")
        settings, rate = autotune(target, settings)
        time_needed = "" if count is None else f", {duration(count / rate)} for {number_of(count, 'image')}"
        speed = f": about {rate:.{0 if rate >= 10 else 1}f} img/s here{time_needed}"
    learner = Learner(**settings)
    start = described(settings, by_default="weights" not in given)
    info(f"learning at {start}, batch {learner.config.batch}, passes {learner.config.passes}{speed}")
    if rate is not None and rate < target:
        slow = f"this machine learns from fewer than {target:g} img/s with the cheapest settings; images will wait"
        if in_time and count is not None:
            fixed = "backbone" in given or "weights" in settings
            slow = _too_long(count, rate, options.minutes, "--image-size or network" if fixed else "--image-size")
        warn(slow)
    elif str(settings["backbone"]).startswith("convnet") and "weights" not in settings:
        remedy = "a larger --minutes" if in_time else "a smaller --images-per-second"
        remedy = "--backbone resnet18" if "backbone" in given else remedy
        what = f"{settings['backbone']} is a small network for photographs"
        warn(f"{what}; a new --state with {remedy} or with a pretrained network gets better features")
    if count is not None:
        _warn_of_heads_only(learner, count)
        if count < MIN_KEPT and options.gate and not options.follow:
            warn(too_few(count))
    return learner


def _too_long(count: int, rate: float, minutes: float, smaller: str) -> str:
    """What to say where so many images take longer than the time that was given, and what may be smaller."""
    needed = f"{number_of(count, 'image')} need about {duration(count / rate)} here"
    return (
        f"{needed}, more than --minutes {minutes:g}; a new --state with a smaller {smaller} is faster, "
        "and this one may be stopped at any time: the same command goes on"
    )


def too_few(count: int) -> str:
    """What to say where there are fewer images than the gate needs."""
    return (
        f"{number_of(count, 'image')} {'is' if count == 1 else 'are'} too few to tell whether learning helps, so the "
        f"encoder at the start is published; give at least {MIN_KEPT}, or publish what is learned with --no-gate"
    )


def _warn_of_heads_only(learner: Learner, count: int) -> None:
    """Warn where all images are used up before the network itself begins to learn."""
    heads_first = getattr(learner.config, "heads_first", 0)
    steps = -(-count // learner.config.stream_batch) * learner.config.passes
    if steps <= heads_first:
        warn(
            f"in the first {heads_first:,} steps only the new heads learn, so the network stays as it is "
            f"({number_of(count, 'image')}: {number_of(steps, 'step')}); give more images, or begin a new --state with "
            f"--set heads_first={steps // 3}"
        )
