"""IoU and IoF of rotated boxes: of all pairs that touch, of all pairs, and row by row.

Shapes: N and M boxes, P pairs. Values are exact (:mod:`obbflow.ops.intersection`) and computed in
float64; only pairs whose enclosing level boxes touch are looked at.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from obbflow.geometry.rbox import rbox_to_hbox
from obbflow.ops.intersection import overlap_of_pairs, split_columns
from obbflow.ops.iou_gradient import intersection_gradient
from obbflow.ops.pairs import IouMode, SparseOverlap, check_overlap_arguments, touching_pairs


@torch.no_grad()
def box_iou_rotated(a: Tensor, b: Tensor, mode: IouMode = "iou") -> Tensor:
    """Return the IoU or IoF of every box of ``a`` with every box of ``b``.

    Time grows with the pairs that touch and memory beyond the result is bounded;
    :func:`sparse_iou_rotated` does without the (N, M) result. No gradient is computed.

    Args:
        a: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        b: (M, 5), as ``a``; M may be 0.
        mode: "iou": over the area of the union; "iof": over the area of the box of ``a``.

    Returns:
        (N, M) in [0, 1], dtype of ``a``; 0 where the area to divide by is 0.

    Raises:
        ValueError: If a shape is not (.., 5), a box is not finite or the mode is unknown.

    Example:
        >>> a = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])
        >>> b = torch.tensor([[5.0, 3.0, 4.0, 2.0, 0.0], [9.0, 3.0, 2.0, 2.0, 0.0]])
        >>> box_iou_rotated(a, b, mode="iof").tolist()
        [[0.75, 0.0]]
    """
    result = a.new_zeros(len(a), len(b))
    for rows, columns, values in overlaps_rotated(a, b, mode):
        result[rows, columns] = values
    return result


@torch.no_grad()
def sparse_iou_rotated(
    a: Tensor, b: Tensor, mode: IouMode = "iou", threshold: float = 0.0
) -> SparseOverlap:
    """Return the IoU or IoF of those boxes of ``a`` and ``b`` that overlap.

    Time and memory grow with the pairs that touch, not with N x M. No gradient is computed.

    Args:
        a: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        b: (M, 5), as ``a``; M may be 0.
        mode: "iou": over the area of the union; "iof": over the area of the box of ``a``.
        threshold: Only overlaps above it are returned; at least 0.

    Returns:
        Rows of ``a``, columns (rows of ``b``) and values, dtype of ``a``, all (P,); sorted by row
        and then by column.

    Raises:
        ValueError: If a shape is not (.., 5), a box is not finite, the mode is unknown or the
            threshold is negative.

    Example:
        >>> a = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])
        >>> b = torch.tensor([[9.0, 3.0, 2.0, 2.0, 0.0], [5.0, 3.0, 4.0, 2.0, 0.0]])
        >>> rows, columns, values = sparse_iou_rotated(a, b, mode="iof")
        >>> rows.tolist(), columns.tolist(), values.tolist()
        ([0], [1], [0.75])
    """
    if not threshold >= 0:
        raise ValueError(f"threshold must not be negative, got {threshold}")
    none = torch.empty(0, dtype=torch.int64, device=a.device)
    chunks = [SparseOverlap(none, none, a.new_empty(0))]
    chunks += [chunk.above(threshold) for chunk in overlaps_rotated(a, b, mode)]
    whole = SparseOverlap(*(torch.cat(parts) for parts in zip(*chunks, strict=True)))
    return whole.take((whole.rows * len(b) + whole.columns).argsort())


@torch.no_grad()
def overlaps_rotated(a: Tensor, b: Tensor, mode: IouMode = "iou") -> Iterator[SparseOverlap]:
    """Yield the IoU or IoF of all rotated boxes that overlap, in chunks.

    Args:
        a: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        b: (M, 5), as ``a``; M may be 0.
        mode: "iou": over the area of the union; "iof": over the area of the box of ``a``.

    Yields:
        Each pair with a value above 0 once, in no particular order; chunks hold about a million
        pairs at most.

    Raises:
        ValueError: If a shape is not (.., 5), a box is not finite or the mode is unknown.
    """
    check_overlap_arguments(a, b, 5, mode)
    boxes = torch.cat([a, b]).double()
    columns, hboxes = split_columns(boxes), rbox_to_hbox(boxes)
    for i, j in touching_pairs(hboxes[: len(a)], hboxes[len(a) :]):
        values = overlap_of_pairs(columns, i, j + len(a), mode)
        yield SparseOverlap(i, j, values.to(a.dtype)).above(0)


def pairwise_iou_rotated(a: Tensor, b: Tensor, mode: IouMode = "iou") -> Tensor:
    """Return the IoU or IoF of each box of ``a`` with the box of ``b`` in the same row.

    The result can be differentiated, once, with respect to both: see
    :func:`~obbflow.ops.iou_gradient.intersection_gradient`.

    Args:
        a: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        b: (N, 5), as ``a``.
        mode: "iou": over the area of the union; "iof": over the area of the box of ``a``.

    Returns:
        (N,) in [0, 1], dtype of ``a``; 0, with gradient 0, where the area to divide by is 0.

    Raises:
        ValueError: If a shape is not (N, 5), the lengths differ, a box is not finite or the mode
            is unknown.

    Example:
        >>> a = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])
        >>> pairwise_iou_rotated(a, torch.tensor([[6.0, 3.0, 4.0, 2.0, 0.0]]), "iof").tolist()
        [0.5]
    """
    check_overlap_arguments(a, b, 5, mode)
    if len(a) != len(b):
        raise ValueError(f"a and b must have the same length, got {len(a)} and {len(b)}")
    return _PairwiseIou.apply(a, b, mode)


class _Context(FunctionCtx):
    """What the forward pass leaves for the backward one."""

    saved_tensors: tuple[Tensor, Tensor, Tensor]
    mode: IouMode


class _PairwiseIou(torch.autograd.Function):
    """IoU or IoF of pairs with the closed form of its derivative."""

    @staticmethod
    def forward(ctx: _Context, a: Tensor, b: Tensor, mode: IouMode) -> Tensor:
        columns = split_columns(torch.cat([a, b]))
        rows = torch.arange(len(a), device=a.device)
        values = overlap_of_pairs(columns, rows, rows + len(a), mode)
        ctx.save_for_backward(a, b, values)
        ctx.mode = mode
        return values.to(a.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Apply the quotient rule; the intersection I is not needed: for IoU u, I = u D.

        The divisor D is A + B - I = (A + B) / (1 + u) for IoU, A for IoF (areas A and B).
        """
        a, b, values = ctx.saved_tensors
        grad_a, grad_b = intersection_gradient(a, b)
        area_a, area_b = a[:, 2].double() * a[:, 3], b[:, 2].double() * b[:, 3]
        divisor = area_a
        grad_divisor_a, grad_divisor_b = _area_gradient(a), torch.zeros_like(grad_b)
        if ctx.mode == "iou":
            divisor = (area_a + area_b) / (1 + values)
            grad_divisor_a = _area_gradient(a) - grad_a
            grad_divisor_b = _area_gradient(b) - grad_b
        factor = torch.where(divisor > 0, grad / divisor, 0)[:, None]
        values = values[:, None]
        grad_a = factor * (grad_a - values * grad_divisor_a)
        grad_b = factor * (grad_b - values * grad_divisor_b)
        return grad_a.to(a.dtype), grad_b.to(b.dtype), None


def _area_gradient(rboxes: Tensor) -> Tensor:
    """Return (N, 5) float64: the derivative of w h by (cx, cy, w, h, angle)."""
    w, h = rboxes.double()[:, 2:4].unbind(1)
    nothing = torch.zeros_like(w)
    return torch.stack([nothing, nothing, h, w, nothing], dim=1)
