"""The learner as a scikit-learn transformer, for pipelines, cross-validation and grid search (extra ``sklearn``)."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from ocssl.errors import ConfigError, missing_extra
from ocssl.images import Images
from ocssl.learner import Learner
from ocssl.registry import unknown

try:
    from sklearn.base import BaseEstimator, TransformerMixin
except ImportError as error:
    raise missing_extra("scikit-learn", "sklearn", "scikit-learn pipelines") from error

_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(Learner).parameters.items()}


class StreamTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Images to features, learned in one pass over them in their order.

    Takes the arguments of :class:`~ocssl.Learner`. Labels are accepted, because pipelines pass them along, and ignored.

    Attributes:
        learner_: the learner, once :meth:`fit` or :meth:`partial_fit` was called.

    >>> images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    >>> transformer = StreamTransformer(backbone="convnet-w8", image_size=8, batch=20, hidden_dim=8, output_dim=8)
    >>> transformer.fit_transform(images).shape
    (12, 32)
    """

    def __init__(self, **settings: Any) -> None:
        for name in settings:
            if name not in _DEFAULTS:
                raise unknown("setting of a learner", name, _DEFAULTS)
        for name, default in _DEFAULTS.items():
            setattr(self, name, settings.get(name, default))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The learner's arguments, as given or by default."""
        return {name: getattr(self, name) for name in _DEFAULTS}

    def fit(self, X: Images, y: object = None) -> StreamTransformer:
        """Begin anew and learn from images ``(n, s, s, 3)``, a last incomplete minibatch included."""
        self.learner_ = Learner(**self.get_params()).partial_fit(X).flush()
        return self

    def partial_fit(self, X: Images, y: object = None) -> StreamTransformer:
        """Go on learning; images beyond the last complete minibatch wait for the next call."""
        if not hasattr(self, "learner_"):
            self.learner_ = Learner(**self.get_params())
        self.learner_.partial_fit(X)
        return self

    def transform(self, X: Images) -> np.ndarray:
        """Features ``(n, feature_dim)``."""
        if not hasattr(self, "learner_"):
            raise ConfigError("this transformer has learned nothing yet; call fit or partial_fit first")
        return self.learner_.transform(X)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")
