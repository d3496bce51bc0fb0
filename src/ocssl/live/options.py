"""Settings of live learning."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ocssl import config
from ocssl.live.gate import MIN_KEPT
from ocssl.options import Declared, Options, declared, refuse_unknown, setting

RATE = 20.0  # images per second of a source that does not end

_setting = partial(setting, affects="nothing")  # a later call with the same state may change any of them


class LiveOptions(Options):
    """Settings of :func:`~ocssl.live.learn`, besides those of the learner."""

    follow: bool = _setting(False, "Continue with files that arrive later.", common=True)
    minutes: float = _setting(
        10.0, "Time for a source that ends; settings that are not given follow from it.", common=True, gt=0
    )
    images_per_second: float | None = _setting(
        None,
        "Rate to keep up with; settings that are not given follow from it. Unset: `minutes` decide where the number of "
        f"images is known, else {RATE:g}.",
        common=True,
        gt=0,
    )
    save_every: float = _setting(30.0, "Seconds between saves of learner and encoder.", ge=0)
    report_every: float = _setting(10.0, "Seconds between progress lines.", ge=0)
    gate: bool = _setting(
        True,
        "Publish an encoder only if it is not worse than the best so far, and let a learner that has become worse go "
        "back. False: publish every encoder.",
    )
    check_every: int = _setting(500, "Images between two checks of the gate.", ge=1)
    sample_size: int = _setting(
        1000, "Most images that are kept for the checks, evenly over the stream.", ge=2 * MIN_KEPT
    )
    reference: str | None = _setting(
        None,
        "Folder with images whose neighbours must stay as they are at the start. Unset: nothing has to stay, or, where "
        "a strategy mixes weights with those at the start, the kept images.",
    )
    least_agreement: float = _setting(
        0.5,
        "Share of the neighbours at the start that a published encoder must have as well, on the reference images.",
        ge=0,
        le=1,
    )


def settings() -> dict[str, Declared]:
    """Every setting of :func:`~ocssl.live.learn` by name, those of the learner included."""
    return declared({("", ""): LiveOptions.model_fields}) | config.settings()


def check_names(names: Iterable[str]) -> None:
    """Refuse the first name that is no setting of :func:`~ocssl.live.learn`."""
    refuse_unknown(names, settings())
