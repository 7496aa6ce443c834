"""Rotated overlaps that can decide how a prior is matched, and no others.

Around each object lie hundreds of anchors that touch it and overlap it far too little. Their IoU is
bounded from areas and enclosing level boxes at a tenth of the cost of the exact one.

Shapes: N objects, M priors, P pairs.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from obbflow.geometry import rbox_to_hbox
from obbflow.ops.intersection import overlap_of_pairs, split_columns
from obbflow.ops.pairs import SparseOverlap, touching_pairs

_SLACK = 1e-6  # above the rounding of level boxes, even 1e-4 px small at 1e5 px


@torch.no_grad()
def decisive_overlaps(gt: Tensor, priors: Tensor, floor: float) -> list[SparseOverlap]:
    """Return the IoU of all pairs that have at least ``floor`` or are the best of their object.

    Others may be among them. Each value is that of
    :func:`~obbflow.ops.iou.overlaps_rotated`, and the best overlap of each object is there, with
    all that equal it: a matcher that treats priors below ``floor`` alike comes to the same result.

    Args:
        gt: (N, 5) rboxes, px; N may be 0.
        priors: (M, 5) rboxes, px.
        floor: Above 0.
    """
    boxes = torch.cat([gt, priors]).double()
    columns, hboxes, area = split_columns(boxes), rbox_to_hbox(boxes), boxes[:, 2:4].prod(dim=1)
    sides, count = hboxes.T.contiguous(), len(gt)  # (4, N + M): gathering from one row is fast

    def bounded_pairs() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for i, j in touching_pairs(hboxes[:count], hboxes[count:]):
            yield i, j + count, _bound(sides, area, i, j + count)

    # Of each object the pair of the largest bound: its exact IoU is what the best one reaches.
    largest = boxes.new_zeros(count)
    partner = torch.zeros(count, dtype=torch.int64, device=gt.device)
    for i, j, bound in bounded_pairs():
        largest.scatter_reduce_(0, i, bound, "amax")
        is_largest = (bound >= largest[i]).nonzero().squeeze(1)
        partner[i[is_largest]] = j[is_largest]  # any of several will do
    reached = overlap_of_pairs(columns, torch.arange(count, device=gt.device), partner)
    needed = reached.clamp(max=floor)

    found = []
    for i, j, bound in bounded_pairs():
        chosen = (bound * (1 + _SLACK) >= needed[i]).nonzero().squeeze(1)
        i, j = i[chosen], j[chosen]
        values = overlap_of_pairs(columns, i, j).to(gt.dtype)
        found.append(SparseOverlap(i, j - count, values).above(0))
    return found


def _bound(sides: Tensor, area: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Return (P,) what the IoU of pairs is at most.

    Args:
        sides: (4, N) x1, y1, x2, y2 of the level boxes round the rotated ones.
        area: (N,) of the rotated boxes.
        i: (P,) rows.
        j: (P,) rows.
    """
    x1, y1 = (torch.maximum(s.index_select(0, i), s.index_select(0, j)) for s in sides[:2])
    x2, y2 = (torch.minimum(s.index_select(0, i), s.index_select(0, j)) for s in sides[2:])
    area_i, area_j = area.index_select(0, i), area.index_select(0, j)
    most = torch.minimum((x2 - x1) * (y2 - y1), torch.minimum(area_i, area_j))
    union = area_i + area_j - most
    return torch.where(union > 0, most / union, 0.0)
