"""What the paper's public code does with its data sets: the order of classes, and the normalisation.

Numbers that a random generator drew are written down, since a generator may draw differently in its next release.
"""

from __future__ import annotations

from importlib.resources import files

from ocssl.data.dataset import Channels

_CIFAR100 = (files("ocssl.data.formats") / "cifar100_authors_order.txt").read_text(encoding="ascii").split()

CLASS_ORDERS: dict[str, tuple[int, ...]] = {
    "cifar100": tuple(map(int, _CIFAR100)),
    "imagenet100:authors": tuple(range(100)),
}
"""The classes in the order of the authors' stream, by data set.

For CIFAR-100 it is ``torch.manual_seed(42); torch.randperm(100)``. The classes of ImageNet100 arrive in the order in
which they were drawn, which is the order of their labels here.
"""

NORMALISATION: dict[str, tuple[Channels, Channels]] = {
    "imagenet100": ((0.485, 0.456, 0.406), (0.228, 0.224, 0.225)),
    "imagenet100:authors": ((0.485, 0.456, 0.406), (0.228, 0.224, 0.225)),
    "svhn": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "cars": ((0.4707, 0.4602, 0.4550), (0.2638, 0.2629, 0.2678)),
}
"""Mean and standard deviation where the authors' differ from the catalogue's, by data set."""
