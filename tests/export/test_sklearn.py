"""The learner among scikit-learn's own tools."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ocssl import Learner
from ocssl.data.shapes import draw
from ocssl.errors import ConfigError
from ocssl.sklearn import StreamTransformer

SETTINGS = {
    "backbone": "convnet-w8",
    "image_size": 16,
    "batch": 30,
    "passes": 1,
    "hidden_dim": 16,
    "output_dim": 32,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    """Ninety figures of three kinds."""
    images, labels = draw(540, size=16, seed=0)
    kept = (labels < 3).numpy()
    return images.permute(0, 2, 3, 1).numpy()[kept], labels.numpy()[kept]


def pipeline(**settings: object) -> Pipeline:
    transformer = StreamTransformer(**{**SETTINGS, **settings})
    return Pipeline([("features", transformer), ("classify", LogisticRegression(max_iter=500))])


def test_fitting_is_what_a_learner_does_in_one_pass(data: tuple[np.ndarray, np.ndarray]) -> None:
    images = data[0][:33]
    learner = Learner(**SETTINGS).partial_fit(images).flush()
    assert np.array_equal(StreamTransformer(**SETTINGS).fit(images).transform(images), learner.transform(images))


def test_fitting_again_begins_anew_and_partial_fits_add_up(data: tuple[np.ndarray, np.ndarray]) -> None:
    images = data[0][:40]
    once = StreamTransformer(**SETTINGS).fit(images)
    expected = once.transform(images)
    assert np.array_equal(once.fit(images).transform(images), expected)
    parts = StreamTransformer(**SETTINGS).partial_fit(images[:7]).partial_fit(images[7:])
    assert np.array_equal(parts.transform(images), expected)


def test_clones_have_the_settings_and_nothing_learned(data: tuple[np.ndarray, np.ndarray]) -> None:
    fitted = pipeline(lr=0.05).fit(*data)
    copy = clone(fitted)
    assert copy.get_params()["features__lr"] == 0.05
    assert not hasattr(copy.named_steps["features"], "learner_")
    with pytest.raises(ConfigError, match="learned nothing yet"):
        copy.named_steps["features"].transform(data[0])
    with pytest.raises(NotFittedError):
        check_is_fitted(copy.named_steps["features"])
    assert np.array_equal(copy.fit(*data).predict(data[0]), fitted.predict(data[0]))


def test_cross_validation_scores_better_than_chance(data: tuple[np.ndarray, np.ndarray]) -> None:
    scores = cross_val_score(pipeline(), *data, cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.5  # a third is chance


def test_a_grid_over_the_learners_settings_can_be_searched(data: tuple[np.ndarray, np.ndarray]) -> None:
    search = GridSearchCV(pipeline(), {"features__lr": [0.0, 0.1]}, cv=2, error_score="raise").fit(*data)
    assert len(search.cv_results_["params"]) == 2
    assert search.best_params_["features__lr"] in (0.0, 0.1)


def test_unknown_settings_are_refused_with_the_nearest_known() -> None:
    with pytest.raises(ConfigError, match="did you mean 'passes'"):
        StreamTransformer(pases=2)
    with pytest.raises(ValueError, match="pases"):
        StreamTransformer().set_params(pases=2)
