"""Do the numbers of the gate, which need no labels, rank encoders as k-NN does?

Small networks learn from a data set class by class, with good, useless and ruinous learning rates; encoders are taken
along the way, and mixed with the start by weight. For each the script prints k-NN accuracy, neighbours in time,
effective rank and agreement with the start, and at the end Spearman's ρ between k-NN and each of them. The decision of
the gate, whether an encoder is at least as good as the start, is compared with that of k-NN. Neighbours in time are
also counted as if the stream had been shuffled: there ρ has no meaning, and the order score says so.

    python benchmarks/gate.py --dataset folder:DIR --test folder:DIR [--images 1500] [--backbone convnet]
"""

from __future__ import annotations

import argparse
import copy
import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ocssl import Learner, data
from ocssl.evaluation import effective_rank, knn_probe
from ocssl.evaluation.quality import colour_histogram, find_order, in_common, in_time, nearest, order_score, raw_pixels
from ocssl.export.encoder import FrozenEncoder, of_learner
from ocssl.live.autotune import RECIPE

SIMSIAM = {"strategy": "cla-e", "hidden_dim": 128, "output_dim": 512}
SETTINGS = [
    *({**RECIPE, "lr": lr} for lr in (0.03, 0.3, 3.0, 100.0)),
    *({**SIMSIAM, "lr": lr} for lr in (0.01, 0.2, 10.0)),
]
KEPT, TAKEN = 750, 3  # images that the numbers are measured on; encoders along each run


def encoders(images: Tensor, backbone: str) -> Iterator[tuple[str, FrozenEncoder]]:
    """The start, encoders along each run, and the last one of each run mixed half and half with the start."""
    for number, settings in enumerate(SETTINGS):
        side = images.shape[-1]
        learner = Learner(**settings, backbone=backbone, image_size=side, batch=30, passes=1, device="cpu")
        start = of_learner(learner)
        if not number:
            yield "start", start
        name = f"{settings.get('method', 'simsiam')} lr {settings['lr']:g}"
        for part in images.split(-(-len(images) // TAKEN)):
            learner.partial_fit(part)
            yield f"{name}, {learner.seen:,} images", of_learner(learner)
        mixed, last = copy.deepcopy(start), of_learner(learner)
        with torch.no_grad():
            for mine, new in zip(mixed.state_dict().values(), last.state_dict().values(), strict=True):
                if mine.is_floating_point():
                    mine.lerp_(new, 0.5)
        yield f"{name}, mixed ½ with the start", mixed


def rho(first: list[float], second: list[float]) -> float:
    """Spearman's rank correlation; equal values share the mean of their ranks."""
    ranks = []
    for values in (first, second):
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((counts.cumsum() - (counts - 1) / 2)[place])
    return float(np.corrcoef(*ranks)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="shapes", help="labelled images to learn from, class by class")
    parser.add_argument("--test", default=None, help="labelled images to measure k-NN on; by default the set's own")
    parser.add_argument("--images", type=int, default=1500, help="images that each network learns from")
    parser.add_argument("--backbone", default="convnet")
    options = parser.parse_args()
    train = data.load(options.dataset)
    test = data.load(options.test) if options.test else data.load(options.dataset, split="test")
    labels, truth = torch.as_tensor(train.labels), torch.as_tensor(test.labels)
    order = labels.sort(stable=True).indices
    every = order[:: max(1, len(order) // KEPT)][:KEPT]
    stream = train.images(order[:: max(1, len(order) // options.images)][: options.images])
    known, asked, kept = train.images(order), test.images(torch.arange(len(test))), train.images(every)
    mixed = torch.randperm(len(kept), generator=torch.Generator().manual_seed(0))
    rows: list[dict[str, float]] = []
    first: Tensor | None = None
    for name, encoder in encoders(stream, options.backbone):
        features = torch.from_numpy(encoder.transform(kept))
        if not bool(features.isfinite().all()):
            print(f"{name:<44} not finite")
            continue
        base = torch.from_numpy(encoder.transform(known))
        other = torch.from_numpy(encoder.transform(asked)) - base.mean(0)
        if first is None:
            first, (interval, _) = features, find_order(raw_pixels(kept), colour_histogram(kept), features)
            print(f"close in time: {interval}")
        near, shuffled = (nearest(rows, gap=interval.gap) for rows in (features, features[mixed]))
        row = {
            "k-NN": knn_probe(base - base.mean(0), labels[order], other, truth, k=20).percent,
            "in time": 100 * float(in_time(near, interval.window).mean()),
            "shuffled": 100 * float(in_time(shuffled, interval.window).mean()),
            "rank": effective_rank(features),
            "agreement": 100 * float(in_common(nearest(features), nearest(first)).mean()),
            "z": order_score(near, interval),
            "z shuffled": order_score(shuffled, interval),
        }
        rows.append(row)
        print(f"{name:<44}" + "  ".join(f"{key} {value:6.1f}" for key, value in row.items()), flush=True)
    print(f"{len(rows)} encoders")
    for key in ("in time", "shuffled", "rank", "agreement"):
        print(f"Spearman's ρ of k-NN and {key}: {rho([r['k-NN'] for r in rows], [r[key] for r in rows]):.2f}")
    for key in ("in time", "rank"):
        agree = sum((r[key] >= rows[0][key]) == (r["k-NN"] >= rows[0]["k-NN"]) for r in rows[1:])
        print(f"better or worse than the start by {key}: as k-NN says for {agree} of {len(rows) - 1}")
    pairs = list(itertools.combinations(rows, 2))
    agree = sum((a["in time"] > b["in time"]) == (a["k-NN"] > b["k-NN"]) for a, b in pairs)
    print(f"the better of two by neighbours in time: as k-NN says for {agree} of {len(pairs)} pairs")


if __name__ == "__main__":
    main()
