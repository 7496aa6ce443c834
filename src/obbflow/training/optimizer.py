"""The optimizer: which parameter learns at which rate, and with how much decay."""

import logging
import math
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import SGD, AdamW, Optimizer

from obbflow.config import TrainingSection
from obbflow.errors import ConfigError

logger = logging.getLogger(__name__)

COMPONENTS = ("backbone", "rpn", "roi", "other")
_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def component_of(parameter_name: str) -> str:
    """Return the part of a detector that a parameter belongs to, by the name of its module.

    Example:
        >>> [component_of(name) for name in ("backbone.conv1.weight", "rpn_head.bias", "neck.0")]
        ['backbone', 'rpn', 'other']
    """
    first = parameter_name.removeprefix("module.").partition(".")[0]
    return next((part for part in COMPONENTS if first.startswith(part)), "other")


def effective_learning_rate(training: TrainingSection) -> float:
    """Return the base rate, scaled for the batches that one optimizer step sums up."""
    steps = training.gradient_accumulation_steps
    factors = {"linear": float(steps), "sqrt": math.sqrt(steps), "none": 1.0}
    return training.learning_rate * factors[training.lr_scaling_with_accumulation]


def build_optimizer(model: nn.Module, training: TrainingSection) -> Optimizer:
    """Return SGD or AdamW over the trainable parameters of ``model``.

    Every trainable parameter is in exactly one group and frozen ones are in none; parameters with
    equal settings share a group. ``use_lr_param_groups`` multiplies the rate of backbone, rpn, roi
    and the rest by their ``lr_mult_*``.

    Raises:
        ConfigError: If nothing is trainable.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    base = effective_learning_rate(training)
    for name, parameter, decays in _trainable(model):
        rate = base * _multiplier(name, training)
        decay = 0.0 if training.no_decay_norm_and_bias and not decays else training.weight_decay
        groups.setdefault((rate, decay), []).append(parameter)
    if not groups:
        raise ConfigError(
            "model.trainable_layers: every parameter of the model is frozen, nothing can be "
            "trained. Let at least one part learn."
        )
    settings = [
        {"params": parameters, "lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
    logger.info(
        "Optimizer %s: learning rate %g (base %g, batches a step: %d), parameter groups: %d",
        training.optimizer,
        base,
        training.learning_rate,
        training.gradient_accumulation_steps,
        len(settings),
    )
    if training.optimizer == "adamw":
        return AdamW(settings, lr=base, betas=(training.momentum, 0.999))
    return SGD(settings, lr=base, momentum=training.momentum)


def parameters_by_component(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Return the trainable parameters of each component that has any, in fixed order."""
    parts: dict[str, list[nn.Parameter]] = {part: [] for part in COMPONENTS}
    for name, parameter, _ in _trainable(model):
        parts[component_of(name)].append(parameter)
    return {part: parameters for part, parameters in parts.items() if parameters}


def _multiplier(name: str, training: TrainingSection) -> float:
    """Return the factor on the rate of one parameter."""
    if not training.use_lr_param_groups:
        return 1.0
    factors = {
        "backbone": training.lr_mult_backbone,
        "rpn": training.lr_mult_rpn,
        "roi": training.lr_mult_roi,
        "other": training.lr_mult_other,
    }
    return factors[component_of(name)]


def _trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, bool]]:
    """Yield (name, parameter, is neither norm nor bias), a shared parameter once."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen or not parameter.requires_grad:
                continue
            seen.add(id(parameter))
            decays = name != "bias" and not isinstance(module, _NORMS)
            yield f"{prefix}.{name}" if prefix else name, parameter, decays
