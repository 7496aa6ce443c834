"""Which ground truth a prior box has to predict, and which priors a step learns from.

Shapes: N ground truth boxes, M priors, K ignore regions, P pairs. Overlaps come as a stream of
chunks of pairs that touch: memory grows with N and M, time with the pairs, never with N x M.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from obbflow.ops.pairs import SparseOverlap

BACKGROUND = -1
IGNORED = -2
_LEAST_OVERLAP = 1e-6  # of the best priors of a ground truth that is hardly met at all

Overlap = Callable[[Tensor, Tensor], Iterator[SparseOverlap]]


@dataclass(frozen=True)
class MaxIoUMatcher:
    """Matches a prior to the ground truth it overlaps most.

    A prior is positive from ``positive`` IoU on, background below ``negative``, ignored between.
    With ``low_quality`` every ground truth whose best IoU is at least ``min_positive`` also takes
    all priors that reach that best, so that odd shapes are learnt too; where several take the same
    prior, the last of them has it.
    """

    positive: float
    negative: float
    min_positive: float = 0.0
    low_quality: bool = False

    def match(self, gt: Tensor, priors: Tensor, overlap: Overlap) -> Tensor:
        """Return (M,) int64: the index of the ground truth, ``BACKGROUND`` or ``IGNORED``.

        Args:
            gt: (N, k) ground truth boxes; N may be 0.
            priors: (M, k) boxes; M may be 0.
            overlap: :func:`~obbflow.ops.pairs.overlaps_horizontal` for hboxes,
                :func:`~obbflow.ops.iou.overlaps_rotated` for rboxes, or any function that yields
                each pair of its two sets of boxes with an IoU above 0 once.
        """
        best, index, of_gt = _best_overlaps(gt, priors, overlap)
        missed = torch.where(best < self.negative, BACKGROUND, IGNORED)
        matches = torch.where(best >= self.positive, index, missed)
        if self.low_quality:
            enough = max(self.min_positive, _LEAST_OVERLAP)
            reach = of_gt.best.masked_fill(of_gt.best < enough, torch.inf)
            rows, columns, values = of_gt.pairs
            is_best = values >= reach[rows]
            last = torch.full_like(matches, -1)
            last.scatter_reduce_(0, columns[is_best], rows[is_best], "amax")
            matches = torch.where(last >= 0, last, matches)
        return matches


class _BestOfGt(NamedTuple):
    """The best IoU (N,) of each ground truth, and pairs among which are all that reach it."""

    best: Tensor
    pairs: SparseOverlap


def _best_overlaps(
    gt: Tensor, priors: Tensor, overlap: Overlap
) -> tuple[Tensor, Tensor, _BestOfGt]:
    """Return the best IoU (M,) of each prior, with which gt (M,), and what is best for each gt.

    The first of several equal ones is named, whatever the order of the pairs. Without any, the
    IoU is 0.
    """
    best, best_of_gt = gt.new_zeros(len(priors)), gt.new_zeros(len(gt))
    index = torch.zeros(len(priors), dtype=torch.int64, device=gt.device)
    leading = [SparseOverlap(index[:0], index[:0], best[:0])]
    for rows, columns, values in overlap(gt, priors):
        best_of_gt.scatter_reduce_(0, rows, values, "amax")
        # Few pairs are as good as the best so far; a later chunk may still beat them.
        is_leading = (values >= best_of_gt[rows]).nonzero().squeeze(1)
        leading.append(SparseOverlap(rows[is_leading], columns[is_leading], values[is_leading]))
        before, best = best, best.scatter_reduce(0, columns, values, "amax")
        index = index.masked_fill(best > before, len(gt))
        equal = (values == best[columns]).nonzero().squeeze(1)
        index.scatter_reduce_(0, columns[equal], rows[equal], "amin")
    pairs = SparseOverlap(*(torch.cat(parts) for parts in zip(*leading, strict=True)))
    return best, index, _BestOfGt(best_of_gt, pairs)


def ignore_covered(
    matches: Tensor, ignore_regions: Tensor, priors: Tensor, iof: Overlap, threshold: float = 0.5
) -> Tensor:
    """Return matches in which background priors inside an ignore region are ``IGNORED``.

    Args:
        matches: (M,) as from :class:`MaxIoUMatcher`.
        ignore_regions: (K, k) boxes; K may be 0.
        priors: (M, k) boxes.
        iof: (m, k), (K, k) -> chunks of pairs with their intersection over the first box's area.
        threshold: Share of a prior's area, above 0, that has to lie in one region.
    """
    covered = find_overlapping(priors, ignore_regions, iof, threshold)
    return torch.where(covered & (matches == BACKGROUND), IGNORED, matches)


def find_overlapping(priors: Tensor, boxes: Tensor, overlap: Overlap, threshold: float) -> Tensor:
    """Return (M,) bool: which priors overlap one of the boxes by ``threshold`` or more.

    Args:
        priors: (M, k) boxes.
        boxes: (K, k) boxes; K may be 0.
        overlap: (M, k), (K, k) -> chunks of pairs with their IoU, or another measure.
        threshold: Above 0.
    """
    found = torch.zeros(len(priors), dtype=torch.bool, device=priors.device)
    for rows, _, values in overlap(priors, boxes):
        found[rows[values >= threshold]] = True
    return found


def sample(
    matches: Tensor,
    size: int,
    positive_fraction: float,
    generator: Generator | None = None,
    *,
    first: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return indices of a random choice of positive and of background priors.

    At most ``size x positive_fraction`` positives, filled up with background to ``size``. Drawn on
    the CPU: the same seed gives the same choice on every device.

    Args:
        matches: (M,) as from :class:`MaxIoUMatcher`.
        size: The number of priors to choose.
        positive_fraction: The largest share of positives, 0 to 1.
        generator: Of the CPU; torch's global one when None.
        first: (M,) bool, background that is chosen before any other, at random only where it is
            too much; it may fill the whole place of the background. Without any, the choice is
            the same as for None.
    """
    positive = (matches >= 0).nonzero().squeeze(1)
    positive = _choose(positive, int(size * positive_fraction), generator)
    count, preferred = size - len(positive), positive[:0]
    negative = matches == BACKGROUND
    if first is not None:
        preferred = _choose((negative & first).nonzero().squeeze(1), count, generator)
        negative &= ~first
    others = _choose(negative.nonzero().squeeze(1), count - len(preferred), generator)
    return positive, torch.cat([preferred, others])


def _choose(indices: Tensor, count: int, generator: Generator | None) -> Tensor:
    if len(indices) <= count:
        return indices
    chosen = torch.randperm(len(indices), generator=generator)[:count]
    return indices[chosen.to(indices.device)]
