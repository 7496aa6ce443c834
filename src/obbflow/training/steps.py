"""One optimizer step: losses of its batches, gradient norms, clipping, and non-finite values."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from obbflow.errors import ConfigError, TrainingError, did_you_mean
from obbflow.structures import Target, move_to
from obbflow.training.device import Runtime

logger = logging.getLogger(__name__)

TOTAL = "total_loss"


class LossGuard:
    """Counts steps in a row that could not be taken, and stops a run that learns nothing."""

    def __init__(self, limit: int) -> None:
        """Allow fewer than ``limit`` non-finite steps in a row."""
        self.limit = limit
        self.in_a_row = 0

    def stepped(self) -> None:
        """Note a step that was taken."""
        self.in_a_row = 0

    def dropped(self, problem: str) -> None:
        """Note a step that was not taken.

        Raises:
            TrainingError: If it is the ``limit``-th in a row.
        """
        self.in_a_row += 1
        if self.in_a_row >= self.limit:
            raise TrainingError(
                f"training: {self.in_a_row} optimizer steps in a row were not finite; the last: "
                f"{problem}. Likely causes: the learning rate is too high or the warm-up too short "
                "(lower training.learning_rate, raise training.lr_warmup_steps), numbers that "
                "float16 cannot hold (training.amp_dtype, training.use_amp), or faulty boxes in "
                "the tiles named."
            )


@dataclass(frozen=True)
class Window:
    """The batches of one optimizer step.

    Attributes:
        batches: Each a list of images and a list of targets.
        size: How many there are; the gradient is that of the mean of their losses.
        name: "epoch 3, step 7", for messages.
        tile_ids: Names of the data set's samples by ``target["index"]``; may be empty.
    """

    batches: Iterable[tuple[Sequence[Tensor], Sequence[Target]]]
    size: int
    name: str
    tile_ids: Sequence[str] = ()


@dataclass
class StepResult:
    """What one optimizer step gave.

    Attributes:
        losses: One (values by name, number of images) a batch with finite losses.
        images: Images in all batches.
        norms: Gradient norm of each component and of ``total``, before clipping; empty when a
            loss was not finite.
        problem: Why the step was not taken, None when it was.
    """

    losses: list[tuple[dict[str, float], int]] = field(default_factory=list)
    images: int = 0
    norms: dict[str, float] = field(default_factory=dict)
    problem: str | None = None


def accumulate(
    model: nn.Module,
    window: Window,
    runtime: Runtime,
    scaler: torch.amp.GradScaler | None,
    loss_weights: Mapping[str, float] | None,
) -> StepResult:
    """Add up the gradient of the mean loss of a window's batches.

    After a non-finite loss the rest of the window is read but not computed: its gradient would be
    dropped anyway.

    Raises:
        ConfigError: If ``loss_weights`` names a loss that the model does not return.
    """
    result = StepResult()
    for number, (images, targets) in enumerate(window.batches, start=1):
        result.images += len(images)
        if result.problem is not None:
            continue
        on_device, truth = move_to(images, targets, runtime.device)
        with runtime.autocast():
            losses = model(on_device, truth)
        total = weighted_total(losses, loss_weights)
        mean = total / window.size
        (scaler.scale(mean) if scaler else mean).backward()
        values = _read({TOTAL: total, **losses, **getattr(model, "diagnostics", {})})
        parts = [name for name, loss in losses.items() if isinstance(loss, Tensor)]
        if all(math.isfinite(values[name]) for name in (TOTAL, *parts)):
            known = {name: value for name, value in values.items() if math.isfinite(value)}
            result.losses.append((known, len(images)))
            continue
        shown = ", ".join(f"{name} {values[name]:g}" for name in parts)
        tiles = _name_tiles(targets, window.tile_ids)
        result.problem = f"{window.name}, batch {number} of {window.size}{tiles}: {shown}"
    return result


def weighted_total(losses: Mapping[str, Any], weights: Mapping[str, float] | None) -> Tensor:
    """Return the sum of weight x loss over the tensors in ``losses``; the weight is 1 by default.

    Raises:
        ConfigError: If ``weights`` names a loss that is not there.
        ValueError: If there is no tensor at all.
    """
    given = weights or {}
    terms = {name: loss for name, loss in losses.items() if isinstance(loss, Tensor)}
    if not terms:
        raise ValueError("in training mode the model must return a dictionary of losses, got none")
    unknown = [name for name in given if name not in terms]
    if unknown:
        raise ConfigError(
            f"training.loss_weights: the model has no loss {unknown[0]!r}"
            f"{did_you_mean(unknown[0], terms)}; it returns {', '.join(terms)}."
        )
    weighted = [loss * given[name] if name in given else loss for name, loss in terms.items()]
    return torch.stack([term.float().reshape(()) for term in weighted]).sum()


def apply_gradients(
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler | None,
    parts: Mapping[str, Sequence[nn.Parameter]],
    max_norm: float | None,
) -> dict[str, float]:
    """Measure, clip and apply the gradients; without finite gradients no weight changes.

    Args:
        optimizer: Over the parameters in ``parts``.
        scaler: The gradients are unscaled before anything else; it adapts its scale.
        parts: Parameters by component.
        max_norm: Largest norm of all gradients together; None measures only.

    Returns:
        Norm of each component and of ``total``, before clipping.
    """
    if scaler:
        scaler.unscale_(optimizer)
    norms = gradient_norms(parts)
    finite = math.isfinite(norms["total"])
    if finite and max_norm is not None:
        everything = [parameter for parameters in parts.values() for parameter in parameters]
        total = torch.tensor(norms["total"], device=everything[0].device)
        nn.utils.clip_grads_with_norm_(everything, max_norm, total)
    if scaler:
        scaler.step(optimizer)  # skips non-finite gradients itself
        scaler.update()
    elif finite:
        optimizer.step()
    return norms


def gradient_norms(parts: Mapping[str, Sequence[nn.Parameter]]) -> dict[str, float]:
    """Return the 2-norm of the gradients of each component, and of all as ``total``."""
    norms = []
    for parameters in parts.values():
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norms.append(nn.utils.get_total_norm(gradients).float().to(parameters[0].device))
    values = torch.stack(norms).tolist()  # one wait for the device
    return {**dict(zip(parts, values, strict=True)), "total": math.hypot(*values)}


def _read(tensors: Mapping[str, Any]) -> dict[str, float]:
    """Return scalar tensors as numbers, with one wait for the device."""
    scalars = {name: value for name, value in tensors.items() if isinstance(value, Tensor)}
    device = scalars[TOTAL].device
    stacked = torch.stack(
        [value.detach().float().reshape(()).to(device) for value in scalars.values()]
    )
    return dict(zip(scalars, stacked.tolist(), strict=True))


def _name_tiles(targets: Sequence[Target], tile_ids: Sequence[str]) -> str:
    """Return " (tiles a, b)" for the samples of a batch, "" where they have no names."""
    indices = [int(target["index"]) for target in targets if "index" in target]
    names = [tile_ids[index] for index in indices if index < len(tile_ids)]
    return f" (tiles {', '.join(names)})" if names else ""
