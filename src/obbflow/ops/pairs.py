"""Pairs of level boxes that touch, found without looking at every pair.

The plane is cut into horizontal strips about as high as a box, and a box into one piece for each
strip it lies in. Laid end to end, the strips form one long line, on which a sort and a binary
search find all pieces that begin within another one. What two boxes have in common begins in
exactly one strip; the pair is reported there. Time and memory grow with the number of boxes and
of pairs that touch, however large the scene.

Shapes: N and M boxes, S pieces (at most about 3 (N + M)), P pairs.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from obbflow.geometry.rbox import check_boxes

IouMode = Literal["iou", "iof"]

_PAIRS_PER_CHUNK = 1 << 20  # candidates in one go: two int64 rows and a few masks
# A box is sorted in the time of about 64 tests of pairs (measured on a CPU).
_TESTS_PER_SORTED_BOX = 64
_MAX_STRIPS = 1 << 20  # keeps strip x class x rank far below 2^63


class SparseOverlap(NamedTuple):
    """Overlaps above 0 of some boxes with some others; every other pair has overlap 0."""

    rows: Tensor
    """(P,) int64, into the first set of boxes."""
    columns: Tensor
    """(P,) int64, into the second set."""
    values: Tensor
    """(P,) IoU or IoF in (0, 1], in the dtype of the first set."""

    def above(self, threshold: float) -> "SparseOverlap":
        """Return the overlaps whose value is greater than ``threshold``."""
        return self.take((self.values > threshold).nonzero().squeeze(1))

    def take(self, which: Tensor) -> "SparseOverlap":
        """Return the overlaps at the places ``which`` (K,) int64, in this order."""
        return SparseOverlap(*(column.index_select(0, which) for column in self))


class _Pieces(NamedTuple):
    """Boxes cut into strips, sorted by strip and then by x1."""

    box: Tensor  # (S,) int64, the row of the whole box
    last: Tensor  # (S,) int64, where the pieces end that begin within this one
    top: Tensor  # (S,) y1 of the whole box
    bottom: Tensor  # (S,) y2 of the whole box
    is_first: Tensor  # (S,) bool: the uppermost piece of its box


def touching_pairs(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield every pair of boxes of ``a`` and ``b`` whose common area is positive, once.

    Args:
        a: (N, 4) float, finite, x1, y1, x2, y2 in px; N may be 0. A box without area touches
            nothing.
        b: (M, 4), as ``a``.

    Yields:
        Rows of ``a`` and rows of ``b``, both (P,) int64, in no particular order; chunks hold
        about a million pairs at most.

    Raises:
        ValueError: If a shape is not (.., 4).

    Example:
        >>> a = torch.tensor([[0.0, 0.0, 4.0, 2.0]])
        >>> b = torch.tensor([[4.0, 0.0, 6.0, 2.0], [3.0, 1.0, 5.0, 3.0]])
        >>> [(i.tolist(), j.tolist()) for i, j in touching_pairs(a, b)]
        [([0], [1])]
    """
    check_boxes(a, 4, "a")
    check_boxes(b, 4, "b")
    if len(a) * len(b) <= _TESTS_PER_SORTED_BOX * (len(a) + len(b)):
        yield from _test_every_pair(a, b)
        return
    pieces = _cut(torch.cat([a, b]))
    is_of_b = pieces.box >= len(a)
    in_a, in_b = (~is_of_b).nonzero().squeeze(1), is_of_b.nonzero().squeeze(1)
    of_a, of_b = _take(pieces, in_a), _take(pieces, in_b)
    of_b.box.sub_(len(a))
    # How many pieces of each set come before a place, which is where a run of them begins or ends.
    before_b = torch.cat([in_a.new_zeros(1), is_of_b.cumsum(0)])
    before_a = torch.arange(len(before_b), device=a.device) - before_b
    first, last = before_b.index_select(0, in_a), before_b.index_select(0, of_a.last)
    yield from _meet(of_a, of_b, first, last)
    first, last = before_a.index_select(0, in_b), before_a.index_select(0, of_b.last)
    for j, i in _meet(of_b, of_a, first, last):
        yield i, j


def touching_pairs_within(
    boxes: Tensor, groups: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield every pair of ``boxes`` whose common area is positive, once.

    Args:
        boxes: (N, 4) float, finite, x1, y1, x2, y2 in px; N may be 0. A box without area touches
            nothing.
        groups: (N,) int64, from 0 on without large gaps, or None; boxes of different groups do
            not make a pair.

    Yields:
        Rows i and j with i < j, both (P,) int64, in no particular order; chunks hold about a
        million pairs at most.

    Raises:
        ValueError: If ``boxes`` is not (N, 4).

    Example:
        >>> boxes = torch.tensor([[3.0, 1.0, 5.0, 3.0], [0.0, 0.0, 4.0, 2.0]])
        >>> [(i.tolist(), j.tolist()) for i, j in touching_pairs_within(boxes)]
        [([0], [1])]
    """
    check_boxes(boxes, 4, "boxes")
    pieces = _cut(boxes, groups)
    first = torch.arange(1, len(pieces.box) + 1, device=boxes.device)
    for i, j in _meet(pieces, pieces, first, pieces.last):
        yield torch.minimum(i, j), torch.maximum(i, j)


@torch.no_grad()
def overlaps_horizontal(a: Tensor, b: Tensor, mode: IouMode = "iou") -> Iterator[SparseOverlap]:
    """Yield the IoU or IoF of all level boxes that touch, in chunks.

    The values are those of ``torchvision.ops.box_iou`` bit by bit: equal boxes on a grid of
    anchors stay equal.

    Args:
        a: (N, 4) float, finite, x1, y1, x2, y2 in px; N may be 0.
        b: (M, 4), dtype of ``a``.
        mode: "iou": over the area of the union; "iof": over the area of the box of ``a``.

    Yields:
        Each touching pair once, in no particular order; chunks hold about a million pairs at
        most.

    Raises:
        ValueError: If a shape is not (.., 4), a box is not finite or the mode is unknown.
    """
    check_overlap_arguments(a, b, 4, mode)
    sides_a, sides_b = a.T.contiguous(), b.T.contiguous()
    area_a, area_b = _area(sides_a), _area(sides_b)
    for i, j in touching_pairs(a, b):
        corners_a = [side.index_select(0, i) for side in sides_a]
        corners_b = [side.index_select(0, j) for side in sides_b]
        x1, y1 = map(torch.maximum, corners_a[:2], corners_b[:2])
        x2, y2 = map(torch.minimum, corners_a[2:], corners_b[2:])
        common = (x2 - x1) * (y2 - y1)
        divisor = area_a.index_select(0, i)
        if mode == "iou":
            divisor = divisor + area_b.index_select(0, j) - common
        yield SparseOverlap(i, j, common / divisor).above(0)  # nor 0 / 0 of the tiniest boxes


def check_overlap_arguments(a: Tensor, b: Tensor, columns: int, mode: str) -> None:
    """Raise for wrong shapes, boxes that are not finite and unknown modes.

    Args:
        a: Should be (N, columns).
        b: Should be (M, columns).
        columns: 4 for hboxes, 5 for rboxes.
        mode: Should be "iou" or "iof".

    Raises:
        ValueError: If one of them is not.
    """
    for boxes, name in ((a, "a"), (b, "b")):
        check_boxes(boxes, columns, name)
        if not boxes.isfinite().all():
            raise ValueError(f"{name} must be finite: some coordinate is NaN or infinite")
    if mode not in ("iou", "iof"):
        raise ValueError(f"mode must be 'iou' or 'iof', got {mode!r}")


def _area(sides: Tensor) -> Tensor:
    """Return (N,) areas of boxes given as (4, N): x1, y1, x2, y2."""
    return (sides[2] - sides[0]) * (sides[3] - sides[1])


def _test_every_pair(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield touching pairs of a (N, 4) and b (M, 4) from bounded parts of the (N, M) table."""
    if len(a) == 0 or len(b) == 0:
        return
    left_b, top_b, right_b, bottom_b = _exclude_empty(b).T.contiguous()
    rows = max(1, _PAIRS_PER_CHUNK // len(b))
    for start in range(0, len(a), rows):
        left, top, right, bottom = _exclude_empty(a[start : start + rows])[..., None].unbind(1)
        is_touching = left < right_b
        is_touching &= left_b < right
        is_touching &= top < bottom_b
        is_touching &= top_b < bottom
        i, j = is_touching.nonzero(as_tuple=True)
        yield i + start, j


def _exclude_empty(boxes: Tensor) -> Tensor:
    """Return the boxes (N, 4), with those that have no area where nothing is."""
    return torch.where(_has_area(boxes)[:, None], boxes, torch.inf)


def _has_area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])


def _cut(boxes: Tensor, groups: Tensor | None = None) -> _Pieces:
    """Return the pieces of those ``boxes`` (N, 4) that have an area."""
    rows = _has_area(boxes).nonzero().squeeze(1)
    rows = rows[boxes[rows, 0].argsort()]
    left, top, right, bottom = boxes.index_select(0, rows).double().T.contiguous()
    first, last = _strips(top, bottom)
    counts = last - first + 1
    owner = torch.arange(len(rows), device=rows.device).repeat_interleave(counts)
    skipped = counts.cumsum(0) - counts - first
    strip = torch.arange(len(owner), device=rows.device) - skipped.index_select(0, owner)
    is_first = strip == first.index_select(0, owner)
    if groups is not None:
        strip += (groups * _MAX_STRIPS).index_select(0, rows).index_select(0, owner)
    # Ranks in place of x: an integer is exact, strip * width + x would be rounded.
    line = strip * (len(rows) + 1)
    line, order = (line + owner).sort()
    owner = owner.index_select(0, order)
    end = line - owner + torch.searchsorted(left, right).index_select(0, owner)
    return _Pieces(
        box=rows.index_select(0, owner),
        last=torch.searchsorted(line, end),
        top=top.index_select(0, owner),
        bottom=bottom.index_select(0, owner),
        is_first=is_first.index_select(0, order),
    )


def _strips(top: Tensor, bottom: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and the last strip (N,) of boxes, which lie in 2 on average."""
    if len(top) == 0:
        return top.long(), bottom.long()
    scene_top, scene_bottom = top.min(), bottom.max()
    least = ((scene_bottom - scene_top) / (_MAX_STRIPS - 1)).clamp(min=torch.finfo(top.dtype).tiny)
    height = torch.maximum((bottom - top).mean(), least)
    return ((top - scene_top) / height).long(), ((bottom - scene_top) / height).long()


def _take(pieces: _Pieces, which: Tensor) -> _Pieces:
    return _Pieces(*(column.index_select(0, which) for column in pieces))


def _meet(
    outer: _Pieces, inner: _Pieces, first: Tensor, last: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the boxes of outer pieces with the boxes they touch of ``inner[first:last]``."""
    counts = last - first
    for start, end in _chunks(counts):
        count = counts[start:end]
        p = torch.arange(start, end, device=count.device).repeat_interleave(count)
        skipped = first[start:end] - (count.cumsum(0) - count)
        q = torch.arange(len(p), device=p.device) + skipped.repeat_interleave(count)
        is_common = outer.top.index_select(0, p) < inner.bottom.index_select(0, q)
        is_common &= inner.top.index_select(0, q) < outer.bottom.index_select(0, p)
        # Their common part begins in the strip where the lower of the two begins.
        is_common &= outer.is_first.index_select(0, p) | inner.is_first.index_select(0, q)
        found = is_common.nonzero().squeeze(1)
        p, q = p.index_select(0, found), q.index_select(0, found)
        yield outer.box.index_select(0, p), inner.box.index_select(0, q)


def _chunks(counts: Tensor) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of runs of ``counts`` (S,) that add up to about the chunk size."""
    group = counts.cumsum(0).div(_PAIRS_PER_CHUNK, rounding_mode="floor")
    sizes = group.unique_consecutive(return_counts=True)[1]
    ends = sizes.cumsum(0).tolist()
    yield from zip([0, *ends], ends, strict=False)
