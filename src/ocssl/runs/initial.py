"""Starting from another run's networks: early pretraining with one strategy, then something else."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ocssl import checkpoint
from ocssl.errors import CheckpointError, ConfigError
from ocssl.learner import Learner
from ocssl.nn import Encoder
from ocssl.nn.ema import copy_weights
from ocssl.runs.folder import RunFolder


def warm_start(learner: Learner, run: str | Path) -> int:
    """Give a new learner the encoder of a run's last checkpoint, and the objective's head where both have one.

    The optimiser, the memory and the strategy begin afresh.

    Returns:
        the CBP that went into those networks; the learner's own account goes on from there.
    """
    folder = RunFolder(run)
    folder.read_config()
    checkpoints = folder.list_checkpoints()
    if not checkpoints:
        raise ConfigError(f"'{run}' has no checkpoint to start from")
    facts, tensors = checkpoint.read(checkpoints[-1] / "learner", "learner")
    machine = learner.train_state
    try:
        machine.encoder.load_state_dict(_part(tensors, "encoder."))
        same_objective = facts["parameters"]["method"] == learner.method
        if machine.strategy.method is not None and same_objective:
            machine.strategy.method.load_state_dict(_part(tensors, "strategy.method."))
        spent = int(facts["budget"]["spent"])
    except (KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"the networks of '{run}' do not fit this run's: {reason}") from error
    # Teachers and snapshots were copied from an untrained encoder when the strategy was built.
    for module in machine.strategy.modules():
        if isinstance(module, Encoder):
            copy_weights(module, machine.encoder)
    learner.budget.spent = spent
    return spent


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
