"""Losses between rotated boxes seen as 2-D Gaussians: GWD, KLD, Bhattacharyya, KFIoU, ProbIoU.

Angles enter by their sines and cosines alone: nothing jumps at the border of le90, and every
description of a rectangle gives the same loss. Sides below 1e-7 px count as that long.

Shapes: N pairs of boxes; a loss is (N,), neither reduced nor weighted, in float32 (float64 for
float64 boxes), with a finite gradient for degenerate boxes too.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from obbflow.models.losses.gaussian_distance import (
    bhattacharyya,
    excess_spread,
    kullback_leibler,
    pair_gaussians,
    safe_sqrt,
    wasserstein,
)

DistanceFunction = Literal["log1p", "sqrt", "none"]

_UNIFORM_VARIANCE = 1 / 3  # a box filled evenly has variance w^2 / 12, a third of (w / 2)^2


def gwd_loss(
    pred: Tensor,
    target: Tensor,
    *,
    fun: DistanceFunction = "log1p",
    tau: float = 1.0,
    normalize: bool = True,
) -> Tensor:
    """Return the Gaussian Wasserstein distance loss of each pair of boxes.

    Args:
        pred: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        target: (N, 5), as ``pred``.
        fun: Of the distance d take log(1 + d), its root, or d itself.
        tau: 0: that is the loss. From 1 up: the loss is 1 - 1 / (tau + that).
        normalize: Divide d by twice the geometric mean of the four half sides, which makes the
            loss independent of scale; without, d is in px.

    Returns:
        (N,), >= 0; least for equal rectangles: 0, or 1 - 1 / tau.

    Raises:
        ValueError: If a shape is not (N, 5), N differs, ``fun`` is unknown or ``tau`` is neither 0
            nor at least 1.

    Source:
        Yang et al., Rethinking rotated object detection with Gaussian Wasserstein distance loss,
        ICML 2021, whose form is fun="none", tau=2, normalize=False; the others are those of
        MMRotate's ``GDLoss``.

    Example:
        >>> a = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])
        >>> b = torch.tensor([[7.0, 7.0, 4.0, 2.0, 0.0]])
        >>> gwd_loss(a, b, fun="none", tau=0, normalize=False).tolist()  # moved by (3, 4) px
        [5.0]
    """
    distance = safe_sqrt(wasserstein(pair_gaussians(pred, target), normalize=normalize))
    return _loss_of(distance, fun, tau)


def kld_loss(
    pred: Tensor,
    target: Tensor,
    *,
    fun: DistanceFunction = "log1p",
    tau: float = 1.0,
    sqrt: bool = True,
    symmetric: Literal["jeffreys", "max", "min"] | None = None,
) -> Tensor:
    """Return the Kullback-Leibler divergence loss of each pair of boxes.

    Args:
        pred: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        target: (N, 5), as ``pred``.
        fun: Of the distance d take log(1 + d), its root, or d itself.
        tau: 0: that is the loss. From 1 up: the loss is 1 - 1 / (tau + that).
        sqrt: d is the root of the divergence; otherwise the divergence itself.
        symmetric: None: the divergence of the target from the prediction, whose covariance is the
            one inverted. "jeffreys", "max", "min": mean, larger or smaller one of both directions.

    Returns:
        (N,), >= 0; least for equal rectangles: 0, or 1 - 1 / tau. Independent of scale.

    Raises:
        ValueError: If a shape is not (N, 5), N differs, ``fun`` or ``symmetric`` is unknown or
            ``tau`` is neither 0 nor at least 1.

    Source:
        Yang et al., Learning high-precision bounding box for rotated object detection via
        Kullback-Leibler divergence, NeurIPS 2021; ``sqrt`` is that of MMRotate's ``GDLoss``.
    """
    from_pred, from_target = kullback_leibler(pair_gaussians(pred, target))
    match symmetric:
        case None:
            divergence = from_pred
        case "jeffreys":
            divergence = (from_pred + from_target) / 2
        case "max":
            divergence = torch.maximum(from_pred, from_target)
        case "min":
            divergence = torch.minimum(from_pred, from_target)
        case _:
            raise ValueError(f"symmetric must be jeffreys, max, min or None, got {symmetric!r}")
    return _loss_of(safe_sqrt(divergence) if sqrt else divergence, fun, tau)


def kld_v1_loss(
    pred: Tensor, target: Tensor, *, fun: DistanceFunction = "log1p", tau: float = 1.0
) -> Tensor:
    """Return the first published form of :func:`kld_loss`.

    The distance is twice the divergence of the prediction from the target: the target's covariance
    is inverted, and the half in front of the divergence is left out.

    Args:
        pred: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        target: (N, 5), as ``pred``.
        fun: As in :func:`kld_loss`.
        tau: As in :func:`kld_loss`.

    Returns:
        (N,), >= 0; least for equal rectangles: 0, or 1 - 1 / tau. Independent of scale.

    Raises:
        ValueError: As :func:`kld_loss`.

    Source:
        MMRotate 0.x and 1.x, ``GDLoss_v1`` with ``loss_type="kld"``.
    """
    return _loss_of(2 * kullback_leibler(pair_gaussians(pred, target))[1], fun, tau)


def bcd_loss(
    pred: Tensor, target: Tensor, *, fun: DistanceFunction = "log1p", tau: float = 1.0
) -> Tensor:
    """Return the Bhattacharyya distance loss of each pair of boxes.

    Args:
        pred: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        target: (N, 5), as ``pred``.
        fun: As in :func:`kld_loss`.
        tau: As in :func:`kld_loss`.

    Returns:
        (N,), >= 0; least for equal rectangles: 0, or 1 - 1 / tau. Independent of scale.

    Raises:
        ValueError: As :func:`kld_loss`.

    Source:
        MMRotate 0.x and 1.x, ``GDLoss_v1`` with ``loss_type="bcd"``.
    """
    return _loss_of(bhattacharyya(pair_gaussians(pred, target)), fun, tau)


def kfiou_loss(
    pred: Tensor,
    target: Tensor,
    pred_deltas: Tensor,
    target_deltas: Tensor,
    *,
    fun: Literal["ln", "exp"] | None = None,
    beta: float = 1 / 9,
) -> Tensor:
    """Return the Kalman filter IoU loss of each pair of boxes.

    KFIoU compares the shapes alone, as if the centres were one; 1/3 is its largest value. A smooth
    L1 loss of the first two encoded deltas brings the centres together.

    Args:
        pred: (N, 5) float, decoded (cx, cy, w, h, angle) in px and radians; N may be 0.
        target: (N, 5), as ``pred``.
        pred_deltas: (N, 2 or more) float, encoded predictions (dx, dy, ...).
        target_deltas: (N, 2 or more), as ``pred_deltas``.
        fun: Of the KFIoU k take -log(k), exp(1 - k) - 1 or, None, 1 - k.
        beta: Where the centre term turns from a parabola into a line; >= 0.

    Returns:
        (N,), >= 0; least for equal rectangles and deltas: log(3), exp(2/3) - 1 or 2/3.
        Independent of scale but for the deltas.

    Raises:
        ValueError: If a shape is another one, N differs or ``fun`` is unknown.

    Source:
        Yang et al., The KFIoU loss for rotated object detection, 2022. MMRotate adds 1e-6 to k in
        the logarithm; this does not, so the worst shapes keep their gradient.
    """
    pair = pair_gaussians(pred, target)
    (a, b), (c, d) = pair.pred_sides, pair.target_sides
    log_area = (a / c).log() + (b / d).log()
    # KFIoU from three areas, which are 4 times the roots of det P, det T and, for what the filter
    # keeps, det P det T / det(P + T).
    inverse = 4 * (log_area / 2).cosh() * (1 + excess_spread(pair)).sqrt() - 1
    match fun:
        case None:
            shape = 1 - 1 / inverse
        case "ln":
            shape = inverse.log()
        case "exp":
            shape = (1 - 1 / inverse).expm1()
        case _:
            raise ValueError(f"fun must be ln, exp or None, got {fun!r}")
    return shape + _centre_loss(pred_deltas, target_deltas, beta, len(pred))


def probiou_loss(pred: Tensor, target: Tensor, *, mode: Literal["l1", "l2"] = "l1") -> Tensor:
    """Return the probabilistic IoU loss of each pair of boxes.

    Here a box has the variance of its own area, w^2 / 12, not (w / 2)^2.

    Args:
        pred: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        target: (N, 5), as ``pred``.
        mode: "l1": 1 - ProbIoU, which is the Hellinger distance, in [0, 1], flat for boxes far
            apart; "l2": -log(1 - l1^2), the Bhattacharyya distance, which pulls from anywhere.

    Returns:
        (N,), >= 0; 0 for equal rectangles. Independent of scale.

    Raises:
        ValueError: If a shape is not (N, 5), N differs or the mode is unknown.

    Source:
        Llerena et al., Gaussian bounding boxes and probabilistic intersection-over-union for
        object detection, 2021.
    """
    if mode not in ("l1", "l2"):
        raise ValueError(f"mode must be l1 or l2, got {mode!r}")
    distance = bhattacharyya(pair_gaussians(pred, target), _UNIFORM_VARIANCE)
    return distance if mode == "l2" else safe_sqrt(-(-distance).expm1())


def _loss_of(distance: Tensor, fun: DistanceFunction, tau: float) -> Tensor:
    """Return ``fun`` of distances >= 0, kept below 1 where ``tau`` is not 0."""
    if tau != 0 and not tau >= 1:
        raise ValueError(f"tau must be 0 or at least 1, got {tau}")
    match fun:
        case "log1p":
            distance = distance.log1p()
        case "sqrt":
            distance = safe_sqrt(distance)
        case "none":
            pass
        case _:
            raise ValueError(f"fun must be log1p, sqrt or none, got {fun!r}")
    return 1 - 1 / (tau + distance) if tau else distance


def _centre_loss(pred_deltas: Tensor, target_deltas: Tensor, beta: float, count: int) -> Tensor:
    """Return the smooth L1 loss of the first two deltas, summed: (N,)."""
    for name, deltas in (("pred_deltas", pred_deltas), ("target_deltas", target_deltas)):
        if deltas.ndim != 2 or len(deltas) != count or deltas.shape[1] < 2:
            raise ValueError(f"{name} must be ({count}, 2 or more), got {tuple(deltas.shape)}")
    pred_deltas, target_deltas = (
        deltas[:, :2].to(torch.promote_types(deltas.dtype, torch.float32))
        for deltas in (pred_deltas, target_deltas)
    )
    losses = functional.smooth_l1_loss(pred_deltas, target_deltas, beta=beta, reduction="none")
    return losses.sum(dim=1)
