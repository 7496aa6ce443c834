"""Losses of detectors: of classes, of box deltas, and of boxes as they are decoded."""

from obbflow.models.losses.boxes import rotated_iou_loss, smooth_l1
from obbflow.models.losses.classification import (
    binary_cross_entropy,
    cross_entropy,
    one_hot_targets,
    sigmoid_focal,
    softmax_focal,
)
from obbflow.models.losses.gaussian import (
    bcd_loss,
    gwd_loss,
    kfiou_loss,
    kld_loss,
    kld_v1_loss,
    probiou_loss,
)
from obbflow.models.losses.grouped import grouped_alpha, grouped_cross_entropy, resolve_groups

__all__ = [
    "bcd_loss",
    "binary_cross_entropy",
    "cross_entropy",
    "grouped_alpha",
    "grouped_cross_entropy",
    "gwd_loss",
    "kfiou_loss",
    "kld_loss",
    "kld_v1_loss",
    "one_hot_targets",
    "probiou_loss",
    "resolve_groups",
    "rotated_iou_loss",
    "sigmoid_focal",
    "smooth_l1",
    "softmax_focal",
]
