"""A few labels on top: learn from thousands of images without labels, then classify with five labels per class.

python examples/few_labels.py
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ocssl import Learner, data


def accuracy(train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray) -> float:
    """Per cent of the test images that a logistic regression names rightly."""
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    return 100 * float(classifier.fit(train, train_labels).score(test, test_labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=3000, help="without labels")
    parser.add_argument("--labels-per-class", type=int, default=5)
    parser.add_argument("--backbone", default="convnet")
    options = parser.parse_args()

    unlabelled, test = data.load("shapes"), data.load("shapes", split="test")
    assert test.labels is not None
    by_class = test.labels.numpy().argsort(kind="stable").reshape(len(test.classes), -1)
    few, rest = by_class[:, : options.labels_per_class].ravel(), by_class[:, options.labels_per_class :].ravel()

    learner = Learner(
        backbone=options.backbone, method="simclr", batch=42, passes=1, hidden_dim=128, output_dim=128, lr=0.1
    )
    untrained = learner.transform(test.images(range(len(test))))
    learner.partial_fit(unlabelled.images(range(options.images)))
    learned = learner.transform(test.images(range(len(test))))
    pixels = test.images(range(len(test))).flatten(1).numpy() / 255

    labels = test.labels.numpy()
    print(f"{options.images:,} images without labels, then {options.labels_per_class} labels per class:")
    for name, features in (("pixels", pixels), ("untrained encoder", untrained), ("learned encoder", learned)):
        print(f"{name:18s} {accuracy(features[few], labels[few], features[rest], labels[rest]):5.1f} %")


if __name__ == "__main__":
    main()
