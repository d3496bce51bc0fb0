"""The learner: images in, one pass, an encoder out at any moment."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from inspect import Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ocssl import checkpoint
from ocssl.augment import fixed_crops
from ocssl.batch import StepOutput
from ocssl.budget import Budget
from ocssl.build import Networks, build, seed_for
from ocssl.common.console import progress_bar, warn
from ocssl.common.locks import LearnerLocks
from ocssl.config import LearnerConfig, parse_learner, settings, signature, with_changes
from ocssl.device import oom_guard, pick_device
from ocssl.errors import CheckpointError, ConfigError, DeviceError, DivergedError, InputError
from ocssl.execution import Executor, make_executor
from ocssl.format1 import saved_settings
from ocssl.image_batch import Images, as_uint8, check_batch
from ocssl.nn.backbones import evaluating
from ocssl.options import refuse_unknown
from ocssl.plugins import changed, recall_saved
from ocssl.sources import with_source
from ocssl.step import boundary, on_host
from ocssl.version import __version__

CHECK_EVERY = 100  # stream minibatches between two checks of the losses on a GPU, each of which waits for the device


class LearnerSnapshot(NamedTuple):
    """What training changes in a learner at one moment: the state of the strategy and copies of tensors by name."""

    strategy: dict[str, int | float | bool]
    tensors: dict[str, Tensor]


class _Signature:
    """The signature of a learner, made of the declared settings when it is asked for."""

    def __get__(self, instance: object, owner: type) -> Signature:
        return signature()


class Learner:
    """An encoder that learns from an unlabelled image stream in one pass and can be used at any moment.

    Settings are given by name: ``Learner(strategy="cla-e", omega=0.3, memory_size=500)``. Which there are depends on
    the strategy, method, memory, optimiser, augmentation and backbone; ``ocssl list settings`` prints all of them. A
    setting that no part reads is refused. ``backbone`` may also be a module from images ``(n, 3, s, s)`` to vectors
    ``(n, d)``. ``weights`` names a file or another source of weights to start from; image size, mean and std come with
    it, and the strategy ``adapt``, unless you choose parts. The configuration is fixed: :attr:`config` holds every
    setting, defaults filled in.

    One thread may learn while others transform, save or copy; each waits until a minibatch of another is over. A second
    :meth:`partial_fit` meanwhile is refused.

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
    >>> Learner(strategy="er", memory_size=500, device="cpu")
    Learner(strategy='er', device='cpu', memory_size=500)
    """

    config: LearnerConfig
    __signature__ = _Signature()

    def __init__(self, **settings: Any) -> None:
        self._configure(settings)

    def _configure(self, settings: dict[str, Any], *, restored: bool = False) -> None:
        backbone = settings.get("backbone")
        self._module = backbone if isinstance(backbone, nn.Module) else None
        self._given = dict(settings)
        if settings.get("device") is not None:
            settings["device"] = str(settings["device"])  # a torch.device is taken too
        if self._module is not None:
            del settings["backbone"]
        elif not isinstance(backbone, str | None):
            raise ConfigError(f"backbone must be a name or a module, not {backbone!r}")
        if not restored:
            settings = with_source(settings, self._module)
        self.config = parse_learner(settings, own_backbone=self._module is not None)
        self._locks = LearnerLocks()
        self._begin(restored=restored)

    def _begin(self, *, restored: bool = False, networks: Networks | None = None) -> None:
        self.train_state = build(self.config, self._module, restored=restored, networks=networks)
        self.executor: Executor = make_executor(self.config.execution, self.train_state)
        self.budget = Budget()
        self.seen = 0
        """Images trained on so far; those still pending are not counted."""
        self.output: StepOutput | None = None
        """What the last step left: its samples, views, features and losses."""
        side = self.config.image_size
        self._pending = torch.empty(0, 3, side, side, dtype=torch.uint8, device=self.train_state.device)

    if not TYPE_CHECKING:  # settings can be read as attributes; code of the package reads them off the configuration

        def __getattr__(self, name: str) -> Any:
            config = vars(self).get("config")
            if config is not None and name in type(config).model_fields:
                return self._module if name == "backbone" and self._module is not None else getattr(config, name)
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

        def __setattr__(self, name: str, value: object) -> None:
            if "config" in vars(self) and name in type(self.config).model_fields:
                raise ConfigError(f"settings of a learner are fixed; make another with {name}={value!r}")
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.config.non_defaults())
        return f"{type(self).__name__}({shown})"

    def begin_with(self, networks: Networks) -> None:
        """Begin anew with trained networks. Targets, averages and the optimiser begin where these are."""
        self._begin(networks=networks)

    # ------------------------------------------------------------------ learning

    def partial_fit(
        self, images: Images, *, callback: Callable[[Learner], object] | None = None, progress: bool = False
    ) -> Learner:
        """Learn from images, in the order given, each seen once.

        They are cut into stream minibatches; a remainder waits for the next call.

        Args:
            images: a uint8 array ``(n, s, s, 3)``, a tensor ``(n, 3, s, s)``, or a list of PIL images or arrays of any
                sizes; :func:`ocssl.image_batch.as_uint8` says what else. In a group of processes, this one's part: the
                stream goes on with the first process's, then the second's, …
            callback: called with the learner after every stream minibatch.
            progress: show a bar on stderr.
        """
        pixels = self._pixels(images)
        with self._locks.learning(), progress_bar("learning", len(pixels) + self.pending, show=progress) as advance:
            with self._oom_guard(f"{len(pixels):,}", "send fewer of them at once"):
                arrived = pixels.to(self.train_state.device, non_blocking=True)
                self._pending = torch.cat([self._pending, self.train_state.group.concatenate(arrived)])
            while self.pending >= self.config.stream_batch:
                self._fit_next()
                advance(self.config.stream_batch)
                if callback is not None:
                    callback(self)
            self._pending = self._pending.clone()  # a slice would hold the memory of all
        return self

    def _pixels(self, images: Images) -> Tensor:
        return as_uint8(images, self.config.image_size, self.config.fit, self.config.pixel_range)

    def flush(self) -> Learner:
        """Train on the images that wait for a full minibatch, as a smaller one.

        Where :meth:`partial_fit` was cut short, what it had left waits too, and goes first, in full minibatches.
        """
        single = self.pending % self.config.stream_batch == 1
        if single and self.config.variant == "authors" and not self.train_state.joint_views:
            raise InputError("one waiting image cannot be trained on in variant authors; send at least one more first")
        with self._locks.learning():
            while self.pending:
                self._fit_next()
        return self

    def boundary(self) -> Learner:
        """Say that an experience has ended. Only CaSSLe-like strategies listen; images that wait keep waiting."""
        with self.lock():
            boundary(self.train_state)
        return self

    def anneal(self) -> Learner:
        """Let the learning rate fall to 0 over the next ``anneal`` steps; after them it is back at ``lr``.

        An encoder is often better at the end of an anneal than on the plateau before.
        """
        with self.lock():
            self.train_state.optimizer.anneal()
        return self

    @property
    def pending(self) -> int:
        """How many images wait for a full minibatch."""
        return len(self._pending)

    def _fit_next(self) -> None:
        """Train on the first of the images that wait, at most a minibatch.

        What waits is always exactly what was not trained on, so a callback or a thread may save the learner.
        """
        size = self.config.stream_batch
        with self.lock():
            stream, self._pending = self._pending[:size], self._pending[size:]
            self._fit(stream)

    def _fit(self, stream: Tensor) -> None:
        train_state = self.train_state
        before = train_state.strategy.insert_at == "before"
        remedy = "choose a smaller batch or backbone, or free the device, and go on from the last save"
        # A caller may have switched gradients off, or lower precision on, for networks of its own.
        gradients, autocast = torch.inference_mode(False), torch.autocast(train_state.device.type, enabled=False)
        with gradients, autocast, self._oom_guard(f"training on {self.config.batch}", remedy):
            self.executor.before_passes(stream)
            if train_state.memory is not None and before:
                train_state.memory.count(len(stream))
            for _ in range(self.config.passes_at(self.seen)):
                self.output = self.executor.step(stream)
                self.budget.charge(self.output.cbp)
            assert self.output is not None
            self.executor.after_passes(stream, self.output)
        if train_state.memory is not None and not before:
            train_state.memory.count(len(stream))
        self.seen += len(stream)
        on_host(train_state, self.seen)
        if train_state.device.type == "cpu" or self.seen // self.config.stream_batch % CHECK_EVERY == 0:
            self.check_finite()

    def _oom_guard(self, images: str, remedy: str) -> AbstractContextManager[None]:
        side = self.config.image_size
        return oom_guard(self.train_state.device, f"{images} images of {side}×{side}", remedy)

    def check_finite(self) -> None:
        """Raise :class:`DivergedError` if any loss so far was NaN or infinite."""
        losses = self.output.losses if self.output is not None else ()
        if found := self.train_state.first_nonfinite([name for name in losses if name != "total"]):
            step, parts = found[0], ", ".join(found[1]) or "unknown"
            raise DivergedError(
                f"the loss became NaN or infinite at step {step} (part: {parts}); a smaller learning rate usually helps"
            )

    # ------------------------------------------------------------------ using what was learned

    def transform(self, images: Images, *, batch: int = 512, crops: int = 1) -> np.ndarray:
        """Backbone features, ``(n, d)`` float32 (d = 512 for ``resnet18``).

        Args:
            images: as for :meth:`partial_fit`.
            batch: how many go through the network at once.
            crops: of each image; the features are the mean of theirs, and cost as many passes. From 1, the image
                itself, to 10; :func:`ocssl.augment.fixed_crops` says which.
        """
        return self.encode(images, batch=batch, crops=crops).cpu().numpy()

    @torch.no_grad()
    def encode(self, images: Images, *, batch: int = 512, crops: int = 1, full_precision: bool = False) -> Tensor:
        """As :meth:`transform`, but a tensor on the learner's device.

        Args:
            full_precision: no lower precision than float32, whatever ``precision`` says.
        """
        train_state, batch = self.train_state, check_batch(batch)
        pixels = self._pixels(images)
        network = train_state.deployed
        lower = train_state.autocast is not None and not full_precision
        # Weights in lower precision that were kept for the next call would be those of before the next step.
        kind, dtype = train_state.device.type, train_state.autocast
        autocast = torch.autocast(kind, dtype=dtype, enabled=lower, cache_enabled=False)
        room = self._oom_guard(f"{min(batch, len(pixels)):,}", "choose a smaller batch, or free the device")
        with self.lock(), room, autocast, evaluating(network):
            chunks = []
            for chunk in pixels.split(batch):
                plain = train_state.augment.normalize(chunk.to(train_state.device, non_blocking=True))
                found = [network.forward(crop).float() for crop in fixed_crops(plain, crops)]
                chunks.append(found[0] if crops == 1 else torch.stack(found).mean(0))
        return torch.cat(chunks)

    @property
    def network(self) -> nn.Module:
        """The network that computes features: images ``(n, 3, s, s)``, normalised, to ``(n, d)``.

        The backbone in training, unless the strategy deploys another network or ``average`` is set.
        """
        return self.train_state.deployed

    def lock(self) -> AbstractContextManager[None]:
        """While this is open, between two minibatches, no other thread trains: what is read of the network is whole."""
        return self._locks.step()

    @property
    def losses(self) -> dict[str, float]:
        """Each part of the last step's loss by name, ``"total"`` included; empty before the first step."""
        return {} if self.output is None else {name: float(loss) for name, loss in self.output.losses.items()}

    # ------------------------------------------------------------------ among scikit-learn's tools

    def fit(self, images: Images, y: object = None) -> Learner:
        """Begin anew and learn from the images in one pass, a last incomplete minibatch included.

        Pipelines call this. What was learned before is gone; :meth:`partial_fit` goes on with it.

        Args:
            images: as for :meth:`partial_fit`.
            y: ignored; pipelines pass labels, and a learner reads none.
        """
        pixels = self._pixels(images)
        if self._begun and self._module is not None:
            raise ConfigError("fit cannot begin anew with a backbone of your own, which has learned; make a Learner")
        with self._locks.learning(), self.lock():
            if self._begun:
                self._begin()
        return self.partial_fit(pixels).flush()

    def fit_transform(self, images: Images, y: object = None) -> np.ndarray:
        """:meth:`fit`, then the features of the same images, ``(n, d)`` float32."""
        return self.fit(images).transform(images)

    def __sklearn_clone__(self) -> Learner:
        """A learner as this one began, which grid searches change: what was not given follows from what they choose."""
        if self._begun and self._module is not None:
            raise ConfigError("a backbone of your own, which has learned, cannot be cloned as it began; make a Learner")
        return type(self)(**copy.deepcopy(self._given))

    def __sklearn_tags__(self) -> object:
        """That features are there before :meth:`fit`, too: pipelines of scikit-learn 1.6 and later ask for it."""
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags("transformer", TargetTags(required=False), TransformerTags(), requires_fit=False)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting by name: as it was given, or its default."""
        return dict(self.config) | {name: value for name, value in self._given.items() if value is not None}

    def set_params(self, **parameters: Any) -> Learner:
        """Change settings before anything was learned; those that the new parts do not read are dropped."""
        if self._begun:
            raise ConfigError("this learner has learned already; make another with the new settings")
        vars(self).update(vars(type(self)(**with_changes(self._given, parameters))))
        return self

    @property
    def _begun(self) -> bool:
        return self.seen + self.pending > 0

    # ------------------------------------------------------------------ saving

    def save(self, path: str | Path) -> None:
        """Write the whole state into a folder, atomically; an earlier state there survives any failure.

        In a group of processes each calls this, and the first one writes; a group of any size can load it.
        """
        with self.lock():
            self.check_finite()
            facts, tensors = self._facts(), self._tensors()
            self.train_state.group.on_main(lambda: checkpoint.write(path, "learner", facts, tensors))

    @classmethod
    def load(cls, path: str | Path, *, backbone: nn.Module | str | None = None, **overrides: Any) -> Learner:
        """A learner that goes on exactly where the saved one was.

        Args:
            path: the folder that :meth:`save` wrote.
            backbone: needed, with the architecture of then, if the learner was built on a module of your own.
            overrides: settings that may differ here, e.g. ``device="cpu"``.

        Plugins that it was saved with are imported; where their code has changed since, a warning says so.
        """
        is_other = any((Path(path) / name).exists() for name in ("checkpoints", "encoder.json"))
        if is_other and not (Path(path) / "learner.json").exists():
            raise CheckpointError(
                f"'{path}' is a run or a state of ocssl learn, or the encoder of one, not a saved learner; "
                "ocssl.export.load reads its encoder; the learner of a run is in checkpoints/NUMBER/learner"
            )
        facts, tensors = checkpoint.read(path, "learner")
        if isinstance(backbone, str):  # a setting like any other
            backbone, overrides = None, {**overrides, "backbone": backbone}
        plugins = recall_saved(facts.get("plugins"), f"'{path}'")
        refuse_unknown(overrides, settings())
        if overrides.get("device") is not None:
            pick_device(str(overrides["device"]))
        others: list[str] = []
        try:
            before = saved_settings(path, facts, backbone)
            others = [name for name in overrides if name != "device" and overrides[name] != before.get(name)]
            learner = cls._restored({**before, **overrides}, facts, tensors)
        except DeviceError as error:
            raise DeviceError(f"'{path}' cannot be loaded here: {error}") from error
        except (CheckpointError, ConfigError, KeyError, TypeError, RuntimeError) as error:
            if others:
                cls.load(path, backbone=backbone, device="cpu")  # says so where the saved settings do not fit, either
                said = " and ".join(f"{name}={overrides[name]!r}" for name in others)
                raise ConfigError(f"'{path}' was saved with other settings than {said}; leave that out") from error
            if isinstance(error, CheckpointError):
                raise
            reason = " ".join(str(error).split())  # torch lists misfits over several lines
            saved = facts.get("versions", {}).get("ocssl", "an unknown version")
            raise CheckpointError(
                f"'{path}' was saved by ocssl {saved} and does not fit ocssl {__version__}: {reason}"
            ) from error
        if difference := changed(plugins, learner.config.plugins()):
            warn(f"since '{path}' was saved, {difference}; what it learns from now on is that of the new code")
        return learner

    @classmethod
    def _restored(cls, given: Mapping[str, Any], facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Learner:
        learner = cls.__new__(cls)
        learner._configure(dict(given), restored=True)
        learner._given = {name: getattr(learner, name) for name in learner.config.non_defaults()}
        learner._restore(facts, tensors)
        return learner

    def snapshot(self) -> LearnerSnapshot:
        """What training has changed so far, copied to the CPU, for :meth:`go_back`."""
        with self.lock():
            self.check_finite()
            tensors = {name: tensor.detach().cpu().clone() for name, tensor in self._trained().items()}
            return LearnerSnapshot(dict(self.train_state.strategy.host_state()), tensors)

    def go_back(self, snapshot: LearnerSnapshot, **changes: Any) -> Learner:
        """A learner with the weights, targets and optimiser of a snapshot, and other settings, e.g. a smaller ``lr``.

        Images seen, cost, draws and the images that wait are this learner's. So is the memory, unless it stores
        features, which belong to the weights. Where an average is deployed, training goes on from it: the weights that
        it was made of would move it on, at any learning rate. This learner is of no use afterwards.
        """
        with self.lock():
            facts = {**self._facts(), "strategy": snapshot.strategy}
            settings = {**facts["config"], **({} if self._module is None else {"backbone": self._module}), **changes}
            learner = self._restored(settings, facts, {**self._tensors(), **snapshot.tensors})
            learner.train_state.train_average()
            return learner

    def _trained(self) -> dict[str, Tensor]:
        """The tensors of a saved state that belong to the weights."""
        memory = self.train_state.memory
        others = ("pending", "generator", "steps", *(() if memory is not None and memory.columns else ("memory.",)))
        return {name: tensor for name, tensor in self._tensors().items() if not name.startswith(others)}

    def _facts(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "seen": self.seen,
            "budget": {"spent": self.budget.spent, "steps": self.budget.steps},
            "strategy": self.train_state.strategy.host_state(),
            "deployed": self.train_state.deployed_name,
            "generator": self.train_state.device.type,
            "plugins": [plugin.model_dump() for plugin in self.config.plugins()],
            "versions": {"ocssl": __version__, "torch": torch.__version__},
        }

    def _tensors(self) -> dict[str, Tensor]:
        return {"pending": self._pending, **self.train_state.state_dict()}

    def _restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        train_state = self.train_state
        train_state.load_state_dict(tensors)
        train_state.strategy.load_host_state(facts["strategy"])
        if facts["generator"] == train_state.device.type:
            train_state.generator.set_state(tensors["generator"])
        else:  # another kind of device draws from another kind of generator: go on from a seed of this moment
            train_state.generator.manual_seed(seed_for(self.config.seed, facts["budget"]["steps"]))
        if tensors["pending"].shape[1:] != self._pending.shape[1:]:
            raise CheckpointError("the images that wait for a full minibatch are of another size")
        counts = {"seen": facts["seen"], **{name: facts["budget"][name] for name in ("spent", "steps")}}
        for name, value in counts.items():
            if type(value) is not int or not 0 <= value < 2**63:
                raise CheckpointError(f"its {name} must be a whole number of at least 0, not {value!r}")
        self.seen, self.budget.spent, self.budget.steps = counts.values()
        self._pending = tensors["pending"].to(train_state.device)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, since pickle reads it after this call, when another thread may learn again."""
        return self._copied({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Learner:
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__setstate__(self._copied(memo))
        return made

    def _copied(self, memo: dict[int, Any]) -> dict[str, Any]:
        """Everything but locks and executor, of a moment between two minibatches; tensors share memory as before."""
        own = ("_locks", "executor")  # captured graphs cannot be copied
        with self.lock():
            return copy.deepcopy({name: value for name, value in vars(self).items() if name not in own}, memo)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _locks=LearnerLocks())
        train_state = self.train_state
        self.executor = make_executor(self.config.execution, train_state)
        # Shares of the learning rate may be views of buffers, which pickle cuts off.
        train_state.optimizer.divide(train_state.strategy.groups(train_state.encoder))
