"""Classification and regression losses; computed in float32 also under autocast."""

import torch
from torch import Tensor
from torch.nn import functional


def smooth_l1(prediction: Tensor, target: Tensor, beta: float) -> Tensor:
    """Return the sum over all elements of the smooth L1 loss; 0 for none.

    Source:
        Girshick, Fast R-CNN, ICCV 2015, equation 3, with the corner moved from 1 to ``beta``.
    """
    return functional.smooth_l1_loss(prediction.float(), target.float(), beta=beta, reduction="sum")


def cross_entropy(
    logits: Tensor, labels: Tensor, class_weights: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Return the mean over rows of the (class-weighted) softmax cross-entropy.

    Args:
        logits: (N, C + 1), background first.
        labels: (N,) int64, 0 .. C.
        class_weights: (C + 1,) factor on each row's loss by its label. The mean is over rows, not
            over weights: a batch of rare objects weighs more than one of background.
        smoothing: Share of the target spread over all classes.
    """
    losses = functional.cross_entropy(
        logits.float(),
        labels,
        weight=None if class_weights is None else class_weights.float(),
        label_smoothing=smoothing,
        reduction="none",
    )
    return losses.sum() / max(len(labels), 1)


def softmax_focal(
    logits: Tensor,
    labels: Tensor,
    alpha: float,
    gamma: float,
    class_weights: Tensor | None = None,
) -> Tensor:
    """Return the mean over rows of alpha (1 - p)^gamma times the softmax cross-entropy.

    Source:
        Lin et al., Focal loss for dense object detection, ICCV 2017, equation 5, on the softmax
        probability p of the true class.
    """
    log_p = functional.log_softmax(logits.float(), dim=1).gather(1, labels[:, None]).squeeze(1)
    losses = -alpha * (1 - log_p.exp()).clamp(min=0).pow(gamma) * log_p
    if class_weights is not None:
        losses = losses * class_weights.float()[labels]
    return losses.sum() / max(len(labels), 1)


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the sum over all elements of the sigmoid cross-entropy; 0 for none."""
    return functional.binary_cross_entropy_with_logits(
        logits.float(), targets.to(torch.float32), reduction="sum"
    )
