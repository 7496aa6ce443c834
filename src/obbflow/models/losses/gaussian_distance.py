"""Distances between rotated boxes seen as 2-D Gaussians.

A box (cx, cy, w, h, angle) is the Gaussian with its centre as mean and w/2 and h/2 as standard
deviations along its axes. No covariance matrix is formed. What the published formulas take from
one (traces, determinants, Mahalanobis distances) is written in the boxes' own axes as sums of terms
that are never negative, so nothing cancels for slivers and near-identical boxes, and in ratios of
sides, so nothing overflows. Everything is elementwise and float32, under autocast too; float64
input stays float64.

Shapes: N pairs of boxes; every quantity of a pair is (N,). In formulas (a, b) are the half sides of
one box and (c, d) those of the other, P and T the covariances of prediction and target.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from obbflow.geometry.rbox import check_boxes

_SHORTEST, _LONGEST = 1e-7, 1e7  # px; a side beyond counts as this long and gets no gradient

Sides = tuple[Tensor, Tensor]  # px, halves of the first and the second side


class GaussianPair(NamedTuple):
    """Pairs of boxes, both described with the longer or both with the shorter side first.

    (w, h, angle) and (h, w, angle + pi/2) are one rectangle. With the target described the way the
    prediction is, every term that tells their shapes apart is >= 0, and 0 for equal rectangles.
    """

    dx: Tensor  # px, from the target's centre to the prediction's
    dy: Tensor
    pred_sides: Sides
    target_sides: Sides
    cos: Tensor  # of the angle between the first sides, but for the sign
    sin: Tensor
    pred_mahalanobis: Tensor  # squared distance between the centres in the prediction's metric
    target_mahalanobis: Tensor


def pair_gaussians(pred: Tensor, target: Tensor) -> GaussianPair:
    """Return the Gaussians of two (N, 5) tensors of boxes, row by row.

    Raises:
        ValueError: If a shape is not (N, 5), or N differs.
        TypeError: If the boxes are not floating-point.
    """
    check_boxes(pred, 5, "pred")
    check_boxes(target, 5, "target")
    if len(pred) != len(target):
        raise ValueError(f"pred and target must pair up, got {len(pred)} and {len(target)} boxes")
    x, y, a, b, angle = _columns(pred)
    target_x, target_y, c, d, target_angle = _columns(target)
    dx, dy, turn = x - target_x, y - target_y, angle - target_angle
    unlike = (a > b) != (c > d)
    return GaussianPair(
        dx,
        dy,
        (a, b),
        (torch.where(unlike, d, c), torch.where(unlike, c, d)),
        cos=torch.where(unlike, turn.sin(), turn.cos()),
        sin=torch.where(unlike, turn.cos(), turn.sin()),
        pred_mahalanobis=_mahalanobis(dx, dy, a, b, angle),
        target_mahalanobis=_mahalanobis(dx, dy, c, d, target_angle),
    )


def wasserstein(pair: GaussianPair, *, normalize: bool) -> Tensor:
    """Return the squared 2-Wasserstein distance of each pair, (N,).

    It is |dx, dy|^2 + tr(P + T - 2 (P^1/2 T P^1/2)^1/2), where the trace is (a - c)^2 + (b - d)^2
    for parallel boxes, and larger by what turning one of them takes from the trace of the root.

    Args:
        pair: The Gaussians.
        normalize: Measure lengths not in px but by twice the geometric mean of the four half sides.

    Source:
        Yang et al., Rethinking rotated object detection with Gaussian Wasserstein distance loss,
        ICML 2021; the unit is MMRotate's.
    """
    (a, b), (c, d) = pair.pred_sides, pair.target_sides
    dx, dy = pair.dx, pair.dy
    if normalize:
        unit = 2 * (a * b * c * d).sqrt().sqrt()
        dx, dy, a, b, c, d = (length / unit for length in (dx, dy, a, b, c, d))
    parallel = a * c + b * d
    root_trace = torch.hypot(pair.cos * parallel, pair.sin * (a * d + b * c))
    # parallel - root_trace, as the difference of the squares over the sum.
    turned = pair.sin.square() * (a - b) * (a + b) * (c - d) * (c + d) / (parallel + root_trace)
    return dx.square() + dy.square() + (a - c).square() + (b - d).square() + 2 * turned


def kullback_leibler(pair: GaussianPair) -> tuple[Tensor, Tensor]:
    """Return KL(target || prediction) and KL(prediction || target) of each pair, (N,) each.

    The first inverts the covariance of the prediction, the second that of the target.

    Source:
        Yang et al., Learning high-precision bounding box for rotated object detection via
        Kullback-Leibler divergence, NeurIPS 2021.
    """

    def divergence(mahalanobis: Tensor, sides: Sides, other: Sides) -> Tensor:
        (a, b), (c, d) = sides, other
        sizes = _beyond_linear(2 * (c / a).log()) + _beyond_linear(2 * (d / b).log())
        return (mahalanobis + sizes + _trace_by_turning(pair.sin, sides, other)) / 2

    return (
        divergence(pair.pred_mahalanobis, pair.pred_sides, pair.target_sides),
        divergence(pair.target_mahalanobis, pair.target_sides, pair.pred_sides),
    )


def bhattacharyya(pair: GaussianPair, variance: float = 1.0) -> Tensor:
    """Return the Bhattacharyya distance of each pair, (N,).

    Args:
        pair: The Gaussians.
        variance: Factor on all variances, which are (side / 2)^2.

    Source:
        Llerena et al., Gaussian bounding boxes and probabilistic intersection-over-union for
        object detection, 2021.
    """

    def share(mahalanobis: Tensor, sides: Sides, other: Sides) -> Tensor:
        # One of the two terms of (P + T)^-1 = (det P P^-1 + det T T^-1) / det(P + T). Where the
        # square of an area ratio of 1e20 or more overflows, the share is rightly 0.
        (a, b), (c, d) = sides, other
        trace = (c / a).square() + (d / b).square() + _trace_by_turning(pair.sin, sides, other)
        return mahalanobis / (1 + trace + (c / a * (d / b)).square())

    distance = share(pair.pred_mahalanobis, pair.pred_sides, pair.target_sides) + share(
        pair.target_mahalanobis, pair.target_sides, pair.pred_sides
    )
    return distance / (4 * variance) + excess_spread(pair).log1p() / 2


def excess_spread(pair: GaussianPair) -> Tensor:
    """Return det((P + T) / 2) / sqrt(det P det T) - 1 of the covariances of each pair, (N,)."""
    (a, b), (c, d) = pair.pred_sides, pair.target_sides
    first, second = (a / c).log(), (b / d).log()
    sizes = ((first + second) / 2).sinh().square() + ((first - second) / 2).sinh().square()
    return sizes + pair.sin.square() * _elongation(a, b) * _elongation(c, d)


def safe_sqrt(values: Tensor) -> Tensor:
    """Return the roots of values >= 0, with the gradient 0, not infinite, where they are 0."""
    smallest = torch.finfo(values.dtype).tiny
    return torch.where(values > 0, values.clamp(min=smallest).sqrt(), 0)


def _columns(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return cx, cy, half w, half h and the angle."""
    wide = boxes.to(torch.promote_types(boxes.dtype, torch.float32))
    cx, cy, w, h, angle = wide.unbind(dim=1)
    w, h = w.clamp(_SHORTEST, _LONGEST), h.clamp(_SHORTEST, _LONGEST)
    return cx, cy, w / 2, h / 2, angle


def _mahalanobis(dx: Tensor, dy: Tensor, a: Tensor, b: Tensor, angle: Tensor) -> Tensor:
    """Return the squared length of (dx, dy) in the metric of a box."""
    cos, sin = angle.cos(), angle.sin()
    return ((dx * cos + dy * sin) / a).square() + ((dy * cos - dx * sin) / b).square()


def _elongation(a: Tensor, b: Tensor) -> Tensor:
    """Return (a / b - b / a) / 2."""
    return (a - b) * (a + b) / (2 * a * b)


def _beyond_linear(exponent: Tensor) -> Tensor:
    """Return e^x - 1 - x, which is >= 0."""
    return exponent.expm1() - exponent


def _trace_by_turning(sin: Tensor, sides: Sides, other: Sides) -> Tensor:
    """Return what turning ``other`` adds to the trace of the one's inverse times the other."""
    (a, b), (c, d) = sides, other
    return (sin * ((a - b) / a) * ((c - d) / a)) * (sin * ((a + b) / b) * ((c + d) / b))
