"""The learner among scikit-learn's own tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ocssl import Learner
from ocssl.data.shapes import draw
from ocssl.errors import ConfigError

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
    return Pipeline([("features", Learner(**SETTINGS | settings)), ("classify", LogisticRegression(max_iter=500))])


def test_fitting_is_one_pass_and_begins_anew_each_time(data: tuple[np.ndarray, np.ndarray]) -> None:
    images = data[0][:33]
    expected = Learner(**SETTINGS).partial_fit(images[:7]).partial_fit(images[7:]).flush().transform(images)
    learner = Learner(**SETTINGS)
    for _ in range(2):
        assert np.array_equal(learner.fit(images, data[1][:33]).transform(images), expected)
        assert (learner.seen, learner.pending) == (33, 0)
    assert np.array_equal(learner.fit_transform(images), expected)


def test_a_backbone_of_ones_own_cannot_begin_anew(data: tuple[np.ndarray, np.ndarray]) -> None:
    backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 8))
    learner = Learner(**SETTINGS | {"backbone": backbone}).fit(data[0][:20])
    before = learner.transform(data[0][:5])
    with pytest.raises(ConfigError, match="backbone of your own"):
        learner.fit(data[0][:20])
    assert np.array_equal(learner.transform(data[0][:5]), before)


def test_clones_have_the_settings_and_nothing_learned(data: tuple[np.ndarray, np.ndarray]) -> None:
    fitted = pipeline(lr=0.05).fit(*data)
    copy = clone(fitted)
    learner = copy.named_steps["features"]
    assert (learner.lr, learner.seen, learner.budget.spent) == (0.05, 0, 0)
    assert np.array_equal(learner.transform(data[0]), Learner(**SETTINGS).transform(data[0]))
    assert np.array_equal(copy.fit(*data).predict(data[0]), fitted.predict(data[0]))


@pytest.mark.parametrize(
    "changes",
    [{"strategy": "er"}, {"strategy": "finetune"}, {"strategy": "adapt"}, {"optimizer": "adamw"}, {"stream_batch": 20}],
    ids=str,
)
def test_what_a_grid_search_changes_brings_its_own_defaults(changes: dict[str, object], tmp_path: Path) -> None:
    settings = {"backbone": "convnet-w8", "image_size": 16, "device": "cpu", "hidden_dim": 16}
    expected = Learner(**settings, **changes).config
    learner = Learner(**settings)
    learner.save(tmp_path / "saved")
    assert clone(learner).set_params(**changes).config == expected
    assert clone(Learner.load(tmp_path / "saved")).set_params(**changes).config == expected


def test_a_backbone_of_ones_own_that_learned_is_not_cloned(data: tuple[np.ndarray, np.ndarray]) -> None:
    backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 8))
    learner = Learner(**SETTINGS | {"backbone": backbone})
    copy = clone(learner).fit(data[0][:20])
    assert np.array_equal(clone(learner).fit_transform(data[0][:20]), copy.transform(data[0][:20]))
    learner.fit(data[0][:20])
    with pytest.raises(ConfigError, match="make a Learner"):
        clone(learner)


@pytest.mark.filterwarnings("error")
def test_pipelines_that_end_in_a_learner_give_features_before_and_after_learning(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    images, learner = data[0][:20], Learner(**SETTINGS)
    pipeline = Pipeline([("features", learner)])
    for _ in range(2):
        check_is_fitted(learner)
        assert np.array_equal(pipeline.transform(images), learner.transform(images))
        pipeline.fit(images)


def test_settings_change_before_learning_only(data: tuple[np.ndarray, np.ndarray]) -> None:
    images = data[0][:20]
    learner = Learner(**SETTINGS).set_params(lr=0.01, seed=3)
    expected = Learner(**SETTINGS | {"lr": 0.01, "seed": 3}).fit_transform(images)
    assert np.array_equal(learner.fit_transform(images), expected)
    with pytest.raises(ConfigError, match="has learned already"):
        learner.set_params(lr=0.1)
    assert learner.lr == 0.01


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
        Learner(**SETTINGS).set_params(pases=2)


def test_a_refused_setting_changes_nothing() -> None:
    learner = Learner(**SETTINGS)
    before = learner.get_params()
    with pytest.raises(ConfigError, match="tau"):
        learner.set_params(lr=0.5, tau=7)
    assert learner.get_params() == before


def test_settings_of_a_variant_stay_as_long_as_the_variant_is_chosen() -> None:
    settings = {**SETTINGS, "strategy": "minred", "variant": "authors", "newcomers": "compete", "joint_views": True}
    learner = Learner(**settings).set_params(backbone="convnet-w4")
    assert learner.get_params()["newcomers"] == "compete"
    assert "newcomers" not in learner.set_params(variant="default").get_params()
