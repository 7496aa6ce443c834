"""What the papers say about boxes as Gaussians, with covariance matrices and in float64: an oracle.

Shapes: N pairs of boxes (cx, cy, w, h, angle); every function returns (N,).
"""

import torch
from torch import Tensor


def covariances(boxes: Tensor) -> Tensor:
    """Return (N, 2, 2): half sides as standard deviations, turned by the angle."""
    _, _, w, h, angle = boxes.double().unbind(dim=1)
    cos, sin = angle.cos(), angle.sin()
    rotation = torch.stack([cos, -sin, sin, cos], dim=1).reshape(-1, 2, 2)
    return rotation @ torch.diag_embed(torch.stack([w, h], dim=1).square() / 4) @ rotation.mT


def squared_wasserstein(pred: Tensor, target: Tensor, couplings: int = 1) -> Tensor:
    """Return the squared distance; the coupling term has to be subtracted once."""
    p, t = covariances(pred), covariances(target)
    root = (p.det() * t.det()).sqrt()
    coupling = (_trace(p @ t) + 2 * root).sqrt()
    return (
        _offset(pred, target).square().sum(dim=1) + _trace(p) + _trace(t) - 2 * couplings * coupling
    )


def mean_side(pred: Tensor, target: Tensor) -> Tensor:
    """Return the geometric mean of w and h of both boxes."""
    return (pred[:, 2:4].double().prod(dim=1) * target[:, 2:4].double().prod(dim=1)) ** 0.25


def kullback_leibler(of: Tensor, other: Tensor) -> Tensor:
    """Return KL(of || other): the covariance of ``other`` is inverted."""
    p, q, offset = covariances(of), covariances(other), _offset(of, other)
    inverse = torch.linalg.inv(q)
    sizes = _trace(inverse @ p) - 2 + (q.det() / p.det()).log()
    return (_quadratic(inverse, offset) + sizes) / 2


def bhattacharyya(pred: Tensor, target: Tensor, variance: float = 1.0) -> Tensor:
    """Return the distance with all covariances times ``variance``."""
    p, t = (variance * covariances(boxes) for boxes in (pred, target))
    mean = (p + t) / 2
    distance = _quadratic(torch.linalg.inv(mean), _offset(pred, target)) / 8
    return distance + (mean.det() / (p.det() * t.det()).sqrt()).log() / 2


def kfiou(pred: Tensor, target: Tensor) -> Tensor:
    """Return the IoU of the areas that the Kalman filter's covariances stand for."""
    p, t = covariances(pred), covariances(target)
    gain = p @ torch.linalg.inv(p + t)
    area, target_area, both = (4 * matrix.det().sqrt() for matrix in (p, t, p - gain @ p))
    return both / (area + target_area - both)


def _offset(pred: Tensor, target: Tensor) -> Tensor:
    return pred[:, :2].double() - target[:, :2].double()


def _trace(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2).sum(dim=1)


def _quadratic(matrices: Tensor, vectors: Tensor) -> Tensor:
    return torch.einsum("ni,nij,nj->n", vectors, matrices, vectors)
