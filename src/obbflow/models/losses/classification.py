"""Classification losses; computed in float32 also under autocast.

Shapes: N samples, C classes. Softmax logits are (N, C + 1) with background first, sigmoid logits
(N, C). Every loss comes unreduced; heads divide by the number they are meant for.
"""

import torch
from torch import Tensor
from torch.nn import functional

# (1 - p)^gamma has no finite slope at p = 1 for gamma below 1.
_LEAST_ERROR = 1e-12


def cross_entropy(
    logits: Tensor, labels: Tensor, class_weights: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Return the (class-weighted) softmax cross-entropy of each sample.

    Args:
        logits: (N, C + 1) float, background first; N may be 0.
        labels: (N,) int64, 0 .. C.
        class_weights: (C + 1,) factor on each sample's loss by its label. A mean over the samples
            is then one over rows, not over weights: a batch of rare objects weighs more than one
            of background.
        smoothing: Share of the target spread evenly over all classes, 0 to below 1; what falls to
            a class has that class's weight.

    Returns:
        (N,) float32.

    Source:
        Szegedy et al., Rethinking the Inception architecture, CVPR 2016, section 7 (smoothing).
    """
    return functional.cross_entropy(
        logits.float(),
        labels,
        weight=None if class_weights is None else class_weights.float(),
        label_smoothing=smoothing,
        reduction="none",
    )


def softmax_focal(
    logits: Tensor,
    labels: Tensor,
    alpha: float,
    gamma: float,
    class_weights: Tensor | None = None,
) -> Tensor:
    """Return alpha (1 - p)^gamma times the softmax cross-entropy of each sample.

    Args:
        logits: (N, C + 1) float, background first; N may be 0.
        labels: (N,) int64, 0 .. C.
        alpha: Factor on all samples.
        gamma: How fast the loss of samples that are right already fades, at least 0.
        class_weights: (C + 1,) factor on each sample's loss by its label.

    Returns:
        (N,) float32.

    Source:
        Lin et al., Focal loss for dense object detection, ICCV 2017, equation 5, on the softmax
        probability p of the true class.
    """
    log_p = functional.log_softmax(logits.float(), dim=1).gather(1, labels[:, None]).squeeze(1)
    losses = -alpha * (-log_p.expm1()).clamp(min=_LEAST_ERROR).pow(gamma) * log_p
    if class_weights is not None:
        losses = losses * class_weights.float()[labels]
    return losses


def sigmoid_focal(logits: Tensor, targets: Tensor, alpha: float, gamma: float) -> Tensor:
    """Return the focal loss of each sample and class, every class by itself.

    Args:
        logits: (N, C) float; N may be 0.
        targets: (N, C), 1 for the sample's class and else 0, or anything between (soft targets).
        alpha: Weight of positive targets, 1 - alpha that of negative ones, 0 .. 1.
        gamma: How fast the loss of what is right already fades, at least 0.

    Returns:
        (N, C) float32.

    Source:
        Lin et al., Focal loss for dense object detection, ICCV 2017, equation 5; for soft targets
        alpha and the error |target - p| are interpolated, as MMRotate's SmoothFocalLoss.
    """
    logits, targets = logits.float(), targets.float()
    p = logits.sigmoid()
    error = (p * (1 - targets) + (1 - p) * targets).clamp(min=_LEAST_ERROR)
    weight = alpha * targets + (1 - alpha) * (1 - targets)
    return weight * error.pow(gamma) * binary_cross_entropy(logits, targets)


def one_hot_targets(labels: Tensor, num_classes: int) -> Tensor:
    """Return (N, C) float32 targets of sigmoid losses; background (label 0) is a row of zeros.

    Args:
        labels: (N,) int64, 0 .. C; N may be 0.
        num_classes: C.

    Example:
        >>> one_hot_targets(torch.tensor([2, 0]), 3).tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return functional.one_hot(labels, num_classes + 1)[:, 1:].float()


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the sigmoid cross-entropy of each element, in float32; N may be 0."""
    return functional.binary_cross_entropy_with_logits(
        logits.float(), targets.to(torch.float32), reduction="none"
    )
