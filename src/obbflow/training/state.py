"""What a run is between two epochs: the object that the loop holds, saves and restores."""

import hashlib
import logging
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from obbflow.errors import CheckpointError
from obbflow.training.metrics import Row
from obbflow.training.schedules import LearningRateSchedule
from obbflow.training.steps import LossGuard

logger = logging.getLogger(__name__)

_WRAPPERS = ("module.", "_orig_mod.")
_NAMED = 5  # names that a message lists


@dataclass(frozen=True)
class BestMark:
    """The best epoch so far: the metrics column that decides, its value, and the epoch."""

    metric: str
    value: float
    epoch: int


@dataclass
class TrainingState:
    """Model, optimizer, schedule and history after ``epoch`` finished epochs."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LearningRateSchedule
    scaler: torch.amp.GradScaler | None
    guard: LossGuard
    epoch: int = 0
    best: BestMark | None = None
    history: list[Row] = field(default_factory=list)

    def full_content(self) -> dict[str, Any]:
        """Return everything that a resumed run needs, as tensors and plain data."""
        return {
            "kind": "full",
            "model": unwrapped_state(self.model),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict() if self.scaler else None,
            "epoch": self.epoch,
            "best": asdict(self.best) if self.best else None,
            "history": [dict(row) for row in self.history],
            "nonfinite_in_a_row": self.guard.in_a_row,
            "rng": rng_state(),
        }

    def model_content(self) -> dict[str, Any]:
        """Return the weights of this epoch and why they are worth keeping."""
        mark = self.best
        return {
            "kind": "model",
            "model": unwrapped_state(self.model),
            "epoch": self.epoch,
            "metric": mark.metric if mark else None,
            "value": mark.value if mark else None,
            "metrics": dict(self.history[-1]) if self.history else {},
        }

    def restore(self, content: Mapping[str, Any], path: Path, *, steps_per_epoch: int) -> None:
        """Continue after the epoch of a checkpoint.

        Rates and decays of the optimizer stay those of the configuration; its momentum is the
        checkpoint's. A file that holds only the weights of an epoch restarts the momentum, with
        one warning.

        Args:
            content: From ``read_checkpoint``.
            path: Where it came from, for messages.
            steps_per_epoch: Optimizer steps; the schedule goes on at the epoch.

        Raises:
            CheckpointError: If it does not fit the model or the optimizer.
        """
        load_weights(self.model, content["model"], path)
        self.epoch = int(content["epoch"])
        if content["kind"] != "full":
            logger.warning(
                "%s holds weights only: momentum, metrics history and best marks start anew after "
                "epoch %d. The last.pt of the same run continues exactly.",
                path,
                self.epoch,
            )
            self.scheduler.load_state_dict({"position": self.epoch * steps_per_epoch})
            return
        _load_optimizer(self.optimizer, content["optimizer"], path)
        self.scheduler.load_state_dict({"position": self.epoch * steps_per_epoch})
        if self.scaler and content["scaler"]:
            self.scaler.load_state_dict(content["scaler"])
        self.guard.in_a_row = int(content["nonfinite_in_a_row"])
        self.best = BestMark(**content["best"]) if content["best"] else None
        self.history = [dict(row) for row in content["history"]]
        set_rng_state(content["rng"])


def unwrapped_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's tensors under their own names, without those of wrappers around it."""
    state = {}
    for name, value in model.state_dict().items():
        for wrapper in _WRAPPERS:
            name = name.removeprefix(wrapper)
        state[name] = value
    return state


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load all weights of a checkpoint into ``model``.

    Raises:
        CheckpointError: If a tensor is missing, left over or of another shape; nothing is changed.
    """
    own = unwrapped_state(model)
    problems = [
        f"{name} is {tuple(weights[name].shape)}, the model's {tuple(own[name].shape)}"
        for name in own
        if name in weights and weights[name].shape != own[name].shape
    ]
    problems += [f"{name} is missing" for name in own if name not in weights]
    problems += [f"{name} is not in the model" for name in weights if name not in own]
    if problems:
        more = f" and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise CheckpointError(
            f"{path}: does not fit the model: {'; '.join(problems[:_NAMED])}{more}. Use the model "
            "settings that it was trained with, or name what to leave out in "
            "checkpoint.load_exclude_prefixes."
        )
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])


def _load_optimizer(optimizer: Optimizer, saved: dict[str, Any], path: Path) -> None:
    """Load momentum and step counts; the groups keep their own settings."""
    settings = [
        {name: value for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]
    try:
        optimizer.load_state_dict(saved)
    except (ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path}: its optimizer state does not fit ({error}). Set training.optimizer and the "
            "training.lr_mult_* settings as in the run that wrote it, or start from its weights "
            "with checkpoint.resume_from_checkpoint_epoch=false."
        ) from error
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        group.update(own)


def is_better(value: float | None, best: BestMark | None, *, higher_is_better: bool) -> bool:
    """Return whether ``value`` beats ``best``; equal or non-finite values never do."""
    if value is None or not math.isfinite(value):
        return False
    if best is None:
        return True
    return value > best.value if higher_is_better else value < best.value


def seed_everything(seed: int, epoch: int) -> None:
    """Seed python, numpy and torch (all devices) for one epoch of a run; epoch 0 is before it.

    Each (seed, epoch) has a stream of its own, so that an epoch does not depend on those before.
    """
    digest = hashlib.sha256(f"obbflow {seed} {epoch}".encode()).digest()
    random.seed(digest)
    np.random.seed(int.from_bytes(digest[:4], "little"))  # noqa: NPY002  (users' global stream)
    torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def rng_state() -> dict[str, Any]:
    """Return the state of all global random streams as plain data and tensors."""
    numpy_state: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    numpy_state["state"]["key"] = numpy_state["state"]["key"].tolist()
    on_cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        "python": random.getstate(),
        "numpy": numpy_state,
        "torch": torch.get_rng_state(),
        "cuda": on_cuda,
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put the global random streams where ``rng_state`` found them."""
    random.setstate(state["python"])
    numpy_state = dict(state["numpy"])
    key = np.asarray(numpy_state["state"]["key"], dtype=np.uint32)
    numpy_state["state"] = {**numpy_state["state"], "key": key}
    np.random.set_state(numpy_state)  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])
