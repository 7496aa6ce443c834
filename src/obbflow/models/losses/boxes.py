"""Losses on box deltas and on the IoU of decoded boxes; in float32 also under autocast.

Every loss comes unreduced; heads divide by the number they are meant for.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from obbflow.ops import pairwise_iou_rotated

IouLossMode = Literal["log", "linear", "square"]

_LEAST_IOU = 1e-6


def smooth_l1(prediction: Tensor, target: Tensor, beta: float) -> Tensor:
    """Return the smooth L1 loss of each element; ``beta`` 0 gives the L1 loss.

    Args:
        prediction: (N, K) float; N may be 0.
        target: (N, K) float.
        beta: Where the parabola becomes a straight line, at least 0.

    Returns:
        (N, K) float32.

    Source:
        Girshick, Fast R-CNN, ICCV 2015, equation 3, with the corner moved from 1 to ``beta``.
    """
    return functional.smooth_l1_loss(
        prediction.float(), target.float(), beta=beta, reduction="none"
    )


def rotated_iou_loss(pred: Tensor, target: Tensor, *, mode: IouLossMode = "linear") -> Tensor:
    """Return a loss of the exact rotated IoU of each pair of boxes.

    The IoU and its derivative by all five parameters of ``pred`` are exact. Below 1e-6 the IoU
    counts as 1e-6, without gradient: boxes apart give no direction. A prediction that is not finite
    has the loss NaN.

    Args:
        pred: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        target: (N, 5), as ``pred``.
        mode: "log": -log(IoU); "linear": 1 - IoU; "square": 1 - IoU^2.

    Returns:
        (N,) float32 (float64 for float64 boxes), at least 0.

    Raises:
        ValueError: If a shape is not (N, 5), a target is not finite or the mode is unknown.

    Source:
        Zhou et al., IoU loss for 2D/3D object detection, 3DV 2019, with IoU in closed form.
    """
    pred = pred.to(torch.promote_types(pred.dtype, torch.float32))
    is_finite = pred.isfinite().all(dim=-1)
    iou = pairwise_iou_rotated(torch.where(is_finite[..., None], pred, 0), target.to(pred.dtype))
    iou = torch.where(is_finite, iou, torch.nan).clamp(min=_LEAST_IOU)
    if mode == "log":
        return -iou.log()
    if mode == "linear":
        return 1 - iou
    if mode == "square":
        return 1 - iou.square()
    raise ValueError(f"mode must be 'log', 'linear' or 'square', got {mode!r}")
