"""The learner: images in, one pass, an encoder out at any moment."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import RLock
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ocssl import __version__, checkpoint, settings
from ocssl.augment import CIFAR100_MEAN, CIFAR100_STD
from ocssl.batch import StepOutput
from ocssl.budget import Budget
from ocssl.build import assemble, check, seed_for
from ocssl.device import oom_guard
from ocssl.errors import CheckpointError, ConfigError, DivergedError, InputError
from ocssl.execution import Executor, make_executor
from ocssl.images import Images, as_uint8
from ocssl.registry import unknown
from ocssl.step import NONFINITE_BITS

CHECK_EVERY = 100  # stream minibatches between looks at a GPU's nonfinite, each of which waits for the device
SHAPING = (
    "strategy", "method", "variant", "image_size", "stream_batch", "batch", "memory", "memory_size", "stem",
    "hidden_dim", "output_dim", "options", "method_options", "memory_options",
)  # fmt: skip
"""Settings that decide on the tensors of a saved state."""


class Learner:
    """An encoder that learns from an unlabelled image stream in one pass and can be used at any moment.

    One thread may learn while others transform or save; each waits until a minibatch of another is over.

    Args:
        strategy: how the past is kept; see ``ocssl.strategies.names()``.
        method: the objective, ``"simsiam"`` or ``"simclr"``; unset for strategies that bring their own.
        backbone: ``"resnet18"``, a narrow ``"resnet18-w16"``, a tiny ``"convnet"``, ``"timm:NAME"``, or a module from
            images to vectors.
        image_size: side of the square images.
        stream_batch: images per stream minibatch (b_s).
        batch: images per training step (b); unset: the stream minibatch, plus 128 where the strategy replays.
        passes: training steps per stream minibatch (n_p).
        memory: ``"fifo"``, ``"reservoir"`` or ``"minred"``; unset: the strategy's own choice.
        memory_size: samples the memory keeps.
        lr, momentum, weight_decay: of SGD; the learning rate is constant.
        omega: strength of the alignment; unset: the strategy's own.
        tau: decay of the moving-average teacher.
        augmentation: ``"clean"`` or ``"authors"``; unset: as the variant says.
        variant: ``"clean"`` (ours), ``"authors"`` (the choices of the paper's public code) or ``"origin"`` (what the
            compared method's own paper does).
        options, method_options, memory_options: further settings of the strategy, the method and the memory.
        joint_views: all views in one forward pass, nearly twice as fast; unset: yes, except in the authors' variant.
            Batches of thirty images or fewer learn more with ``False``, each view alone.
        sync_norm: in a group of processes, batch norm sees the rows of all of them, not each process its own only.
        hidden_dim, output_dim: widths of the projector and the other heads.
        stem: of the backbone; ``"auto"`` takes the small one up to 64 pixels.
        mean, std: normalisation per channel.
        precision: ``"fp32"``, ``"bf16"``, or ``"auto"`` (bf16 on a GPU); ``"fp64"`` to compare two ways of computing.
        execution: how steps are run: ``"eager"``, ``"graph"``, ``"compiled"``, or ``"auto"``.
        seed: of the weights and of every draw.
        device: ``"auto"`` takes a GPU where there is one.

    >>> import numpy as np
    >>> learner = Learner(strategy="cla-e", backbone="resnet18-w16", image_size=16, stream_batch=4, batch=8, passes=1,
    ...                   memory_size=16, hidden_dim=32, output_dim=64, device="cpu")
    >>> images = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    >>> learner.partial_fit(images).pending
    2
    >>> learner.transform(images).shape
    (10, 128)
    >>> learner.budget.spent   # two steps on 4 images, two views each: replay has not begun
    16
    """

    def __init__(
        self,
        *,
        strategy: str = "cla-e",
        method: str | None = None,
        backbone: str | nn.Module = "resnet18",
        image_size: int = 32,
        stream_batch: int = 10,
        batch: int | None = None,
        passes: int = 3,
        memory: str | None = None,
        memory_size: int = 2000,
        lr: float = 0.1,
        omega: float | None = None,
        tau: float = 0.999,
        augmentation: Literal["clean", "authors"] | None = None,
        variant: Literal["clean", "authors", "origin"] = "clean",
        options: Mapping[str, Any] | None = None,
        method_options: Mapping[str, Any] | None = None,
        memory_options: Mapping[str, Any] | None = None,
        joint_views: bool | None = None,
        sync_norm: bool = True,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        hidden_dim: int = 512,
        output_dim: int = 2048,
        stem: Literal["auto", "small", "standard"] = "auto",
        mean: Sequence[float] = CIFAR100_MEAN,
        std: Sequence[float] = CIFAR100_STD,
        precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto",
        execution: Literal["auto", "eager", "graph", "compiled"] = "auto",
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.strategy = strategy
        self.method = method
        self.backbone = backbone
        self.image_size = image_size
        self.stream_batch = stream_batch
        self.batch = batch
        self.passes = passes
        self.memory = memory
        self.memory_size = memory_size
        self.lr = lr
        self.omega = omega
        self.tau = tau
        self.augmentation = augmentation
        self.variant = variant
        self.options = options
        self.method_options = method_options
        self.memory_options = memory_options
        self.joint_views = joint_views
        self.sync_norm = sync_norm
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.hidden_dim = hidden_dim
        self.output_dim = output_dim
        self.stem = stem
        self.mean = mean
        self.std = std
        self.precision = precision
        self.execution = execution
        self.seed = seed
        self.device = str(device)  # a torch.device is taken too
        self._lock = RLock()  # held while the networks are trained, or in evaluation mode, or written
        self._begin()

    def _begin(self) -> None:
        check(self)
        self.train_state = assemble(self)
        self.executor: Executor = make_executor(self.execution, self.train_state)
        self.budget = Budget(views=self.train_state.strategy.views)
        self.seen = 0
        """Images trained on so far; those still pending are not counted."""
        self.output: StepOutput | None = None
        """What the last step left: its samples, views, features and losses."""
        self._at_once = settings.batch_size(self.strategy, self.stream_batch, self.batch)
        side = self.image_size
        self._pending = torch.empty(0, 3, side, side, dtype=torch.uint8, device=self.train_state.device)

    # ------------------------------------------------------------------ learning

    def partial_fit(self, images: Images, *, callback: Callable[[Learner], object] | None = None) -> Learner:
        """Learn from images, in the order given, each seen once.

        They are cut into stream minibatches; a remainder waits for the next call.

        Args:
            images: a uint8 array ``(n, s, s, 3)``, a tensor ``(n, 3, s, s)``, or a list of PIL images. In a group of
                processes, this one's part: the stream goes on with the first process's, then the second's, …
            callback: called with the learner after every stream minibatch.
        """
        pixels = as_uint8(images, self.image_size)
        with self._room_for(f"{len(pixels):,}", "send fewer of them at once"):
            arrived = pixels.to(self.train_state.device, non_blocking=True)
            queue = torch.cat([self._pending, self.train_state.group.concatenate(arrived)])
        whole = len(queue) - len(queue) % self.stream_batch
        for start in range(0, whole, self.stream_batch):
            # What waits is always exactly what was not trained on, so a callback or a thread may save the learner.
            with self._lock:
                self._pending = queue[start + self.stream_batch :]
                self._fit(queue[start : start + self.stream_batch])
            if callback is not None:
                callback(self)
        self._pending = queue[whole:].clone()
        return self

    def flush(self) -> Learner:
        """Train on the images that wait for a full minibatch, as a smaller one.

        Where :meth:`partial_fit` was cut short, what it had left waits too, and goes first, in full minibatches.
        """
        if self.pending % self.stream_batch == 1 and not self.train_state.joint_views:
            raise InputError("one waiting image cannot be trained on with separate views; send at least one more first")
        while self.pending:
            with self._lock:
                stream, self._pending = self._pending[: self.stream_batch], self._pending[self.stream_batch :]
                self._fit(stream)
        return self

    def boundary(self) -> Learner:
        """Say that an experience has ended. Only CaSSLe-like strategies listen; images that wait keep waiting."""
        with self._lock:
            self.train_state.strategy.boundary(self.train_state.encoder)
        return self

    @property
    def pending(self) -> int:
        """How many images wait for a full minibatch."""
        return len(self._pending)

    def _fit(self, stream: Tensor) -> None:
        train_state = self.train_state
        before = train_state.strategy.insert_at == "before"
        remedy = "choose a smaller batch or backbone, or free the device, and go on from the last save"
        with self._room_for(f"training on {self._at_once}", remedy):
            self.executor.before_passes(stream)
            if train_state.memory is not None and before:
                train_state.memory.count(len(stream))
            for _ in range(self.passes):
                self.output = self.executor.step(stream)
                self.budget.charge(self.output.trained)
            assert self.output is not None
            self.executor.after_passes(stream, self.output)
        if train_state.memory is not None and not before:
            train_state.memory.count(len(stream))
        self.seen += len(stream)
        if train_state.device.type == "cpu" or self.seen // self.stream_batch % CHECK_EVERY == 0:
            self.check_finite()

    def _room_for(self, images: str, remedy: str) -> AbstractContextManager[None]:
        side = self.image_size
        return oom_guard(self.train_state.device, f"{images} images of {side}×{side}", remedy)

    def check_finite(self) -> None:
        """Raise :class:`DivergedError` if any loss so far was NaN or infinite."""
        nonfinite = int(self.train_state.nonfinite)
        if nonfinite:
            step, bits = nonfinite >> NONFINITE_BITS, nonfinite & (1 << NONFINITE_BITS) - 1
            names = [name for name in self._loss_names() if name != "total"]
            parts = [name for i, name in enumerate(names) if bits >> i & 1]
            raise DivergedError(
                f"the loss became NaN or infinite at step {step} (part: {', '.join(parts) or 'unknown'}); "
                f"a smaller lr than {self.lr:g} usually helps"
            )

    def _loss_names(self) -> list[str]:
        return list(self.output.losses) if self.output is not None else []

    # ------------------------------------------------------------------ using what was learned

    def transform(self, images: Images, *, batch: int = 512) -> np.ndarray:
        """Backbone features, ``(n, d)`` float32 (d = 512 for ``resnet18``).

        Args:
            images: as for :meth:`partial_fit`.
            batch: how many go through the network at once.
        """
        return self.encode(images, batch=batch).cpu().numpy()

    @torch.no_grad()
    def encode(self, images: Images, *, batch: int = 512) -> Tensor:
        """As :meth:`transform`, but a tensor on the learner's device."""
        train_state, batch = self.train_state, settings.require("batch", batch, low=1, whole=True)
        pixels = as_uint8(images, self.image_size)
        network = train_state.encoder.backbone
        autocast = torch.autocast(
            train_state.device.type, dtype=train_state.autocast, enabled=train_state.autocast is not None
        )
        room = self._room_for(f"{min(batch, len(pixels)):,}", "choose a smaller batch, or free the device")
        with self._lock, room, autocast:
            network.eval()
            try:
                chunks = [
                    network.forward(
                        train_state.augment.normalize(chunk.to(train_state.device, non_blocking=True))
                    ).float()
                    for chunk in pixels.split(batch)
                ]
            finally:
                network.train()
        return torch.cat(chunks)

    @property
    def network(self) -> nn.Module:
        """The backbone itself, in training: images ``(n, 3, s, s)`` normalised, to features ``(n, d)``."""
        return self.train_state.encoder.backbone

    def lock(self) -> AbstractContextManager[object]:
        """While this is open, between two minibatches, no other thread trains: what is read of the network is whole."""
        return self._lock

    @property
    def losses(self) -> dict[str, float]:
        """Each part of the last step's loss by name, ``"total"`` included; empty before the first step."""
        return {} if self.output is None else {name: float(loss) for name, loss in self.output.losses.items()}

    # ------------------------------------------------------------------ among scikit-learn's tools

    def fit(self, images: Images, y: object = None) -> Learner:
        """Begin anew and learn from the images in one pass, a last incomplete minibatch included.

        This is what pipelines call. Whatever was learned before is gone; :meth:`partial_fit` goes on with it.

        Args:
            images: as for :meth:`partial_fit`.
            y: ignored; pipelines pass labels along, and this learner has no use for them.
        """
        pixels = as_uint8(images, self.image_size)
        if self._begun:
            if isinstance(self.backbone, nn.Module):
                raise ConfigError(
                    "fit cannot begin anew with a backbone of your own, which has learned; make a Learner"
                )
            with self._lock:
                self._begin()
        return self.partial_fit(pixels).flush()

    def fit_transform(self, images: Images, y: object = None) -> np.ndarray:
        """:meth:`fit`, then the features of the same images, ``(n, d)`` float32."""
        return self.fit(images).transform(images)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments as they were given."""
        return {name: getattr(self, name) for name in _setting_names()}

    def set_params(self, **parameters: Any) -> Learner:
        """Change arguments of the constructor before anything was learned."""
        if self._begun:
            raise ConfigError("this learner has learned already; make another with the new settings")
        check_names(parameters)
        vars(self).update(vars(Learner(**{**self.get_params(), **parameters})))
        return self

    @property
    def _begun(self) -> bool:
        return self.seen + self.pending > 0

    # ------------------------------------------------------------------ saving

    def save(self, path: str | Path) -> None:
        """Write the whole state into a folder, atomically; an earlier state there survives any failure.

        In a group of processes everybody calls this, and the first one writes. Any number of them can load it.
        """
        with self._lock:
            self.check_finite()
            facts, tensors = self._facts(), self._tensors()
            self.train_state.group.on_main(lambda: checkpoint.write(path, "learner", facts, tensors))

    @classmethod
    def load(cls, path: str | Path, *, backbone: nn.Module | None = None, **overrides: Any) -> Learner:
        """A learner that goes on exactly where the saved one was.

        Args:
            path: the folder that :meth:`save` wrote.
            backbone: needed, with the architecture of then, if the learner was built on a module of your own.
            overrides: arguments of the constructor that may differ here, e.g. ``device="cpu"``.
        """
        check_names(overrides)
        facts, tensors = checkpoint.read(path, "learner")
        changed: list[str] = []
        try:
            parameters = {**facts["parameters"], **overrides}
            if backbone is not None:
                parameters["backbone"] = backbone
            elif parameters["backbone"] is None:
                raise CheckpointError(f"'{path}' was saved with a backbone of your own; pass it as backbone=")
            changed = [name for name in SHAPING if parameters.get(name) != facts["parameters"].get(name)]
            learner = cls(**parameters)
            learner._restore(facts, tensors)
        except (CheckpointError, KeyError, TypeError, RuntimeError) as error:
            reason = " ".join(str(error).split())  # torch lists misfits over several lines
            if changed:
                others = " and ".join(f"{name}={overrides[name]!r}" for name in changed)
                raise ConfigError(f"'{path}' was saved with other settings than {others}; leave that out") from error
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"'{path}' does not fit this version of ocssl: {reason}") from error
        return learner

    def _facts(self) -> dict[str, Any]:
        parameters = self.get_params()
        if isinstance(self.backbone, nn.Module):
            parameters["backbone"] = None
        return {
            "parameters": parameters,
            "seen": self.seen,
            "budget": {"spent": self.budget.spent, "steps": self.budget.steps},
            "strategy": self.train_state.strategy.host_state(),
            "generator": self.train_state.device.type,
            "versions": {"ocssl": __version__, "torch": torch.__version__},
        }

    def _tensors(self) -> dict[str, Tensor]:
        train_state = self.train_state
        tensors = {
            "pending": self._pending,
            "generator": train_state.generator.get_state(),
            "steps": train_state.steps,
            **{f"encoder.{name}": tensor for name, tensor in train_state.encoder.state_dict().items()},
            **{f"strategy.{name}": tensor for name, tensor in train_state.strategy.state_dict().items()},
        }
        if train_state.memory is not None:
            tensors |= {f"memory.{name}": tensor for name, tensor in train_state.memory.state_dict().items()}
        return tensors | {f"momentum.{i}": velocity for i, velocity in enumerate(train_state.optimizer.velocities)}

    def _restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        train_state = self.train_state
        train_state.encoder.load_state_dict(part("encoder."))
        train_state.strategy.load_state_dict(part("strategy."))
        train_state.strategy.load_host_state(facts["strategy"])
        if train_state.memory is not None:
            train_state.memory.load_state_dict(part("memory."))
        for i, velocity in enumerate(train_state.optimizer.velocities):
            velocity.copy_(tensors[f"momentum.{i}"])
        if facts["generator"] == train_state.device.type:
            train_state.generator.set_state(tensors["generator"])
        else:  # another kind of device draws from another kind of generator: go on from a seed of this moment
            train_state.generator.manual_seed(seed_for(self.seed, facts["budget"]["steps"]))
        train_state.steps.copy_(tensors["steps"])
        if tensors["pending"].shape[1:] != self._pending.shape[1:]:
            raise CheckpointError("the images that wait for a full minibatch are of another size")
        self.seen = facts["seen"]
        self.budget.spent, self.budget.steps = facts["budget"]["spent"], facts["budget"]["steps"]
        self._pending = tensors["pending"].to(train_state.device)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())


def _setting_names() -> list[str]:
    return [name for name in inspect.signature(Learner.__init__).parameters if name != "self"]


def check_names(given: Iterable[str]) -> None:
    """Refuse the first name that is no setting of a learner."""
    known = _setting_names()
    for name in given:
        if name not in known:
            raise unknown("setting of a learner", name, known)
