"""Which ground truth each detection stands for.

Shapes: N detections, M objects (ground truth), Q places, P pairs, G groups. A group is one class in
one image. A place is a box at which one or more objects of a group lie: labels may hold an object
twice, and two detections may then find it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from obbflow.geometry import rbox_to_hbox
from obbflow.ops import pairwise_iou_rotated

HIT, MISS, NEUTRAL = 1, 0, -1
"""Verdicts: true positive, false positive, counts neither way."""

IOU_DECIMALS = 9
"""IoUs are rounded to this: the last bits of a float64 must not decide what reaches a threshold."""

_PAIRS_PER_CHUNK = 1 << 20


@dataclass(frozen=True)
class Boxes:
    """Rows of a detection or ground truth table as tensors.

    ``images`` (N,) int64, in the order of the image ids as text; ``classes`` (N,) int64 from 0;
    ``rboxes`` (N, 5) float64.
    """

    images: Tensor
    classes: Tensor
    rboxes: Tensor

    def __len__(self) -> int:
        """Return the number of boxes."""
        return len(self.rboxes)


@dataclass(frozen=True)
class Matches:
    """The best place of every detection, in the order in which detections are judged.

    Attributes:
        order: (N,) int64, row of the detection: by class, then best score first. Equal scores
            are ordered by image id and box, so that the order of the rows does not matter.
        classes: (N,) int64, class of the detection.
        ious: (N,) float64, IoU with the best place; 0 for none.
        places: (N,) int64, the best place; -1 for none.
        place_objects: (Q,) int64, number of objects at each place that count.
        place_is_neutral: (Q,) bool, whether a difficult object lies there as well.
        place_starts: (Q,) int64, index into ``object_rows`` of the first object of each place.
        object_rows: (M,) int64, row of the ground truth, place by place, difficult ones last.
    """

    order: Tensor
    classes: Tensor
    ious: Tensor
    places: Tensor
    place_objects: Tensor
    place_is_neutral: Tensor
    place_starts: Tensor
    object_rows: Tensor

    def judge(self, iou_threshold: float) -> tuple[Tensor, Tensor]:
        """Return the verdict on each detection, and the object that it found.

        A detection whose best place lies at ``iou_threshold`` or above is a hit while an object
        there is not yet found, counts neither way when a difficult object lies there, and is
        else a miss (a duplicate). It does not fall back to its second best place.

        Args:
            iou_threshold: In (0, 1].

        Returns:
            Verdicts (N,) int8 (HIT, MISS or NEUTRAL) and rows of the ground truth (N,) int64
            that hits and neutral detections stand for, -1 for misses; both as ``order``.
        """
        matched = (self.places >= 0) & (self.ious >= round(iou_threshold, IOU_DECIMALS))
        rows = matched.nonzero().squeeze(1)
        places = self.places[rows]
        rank = _rank_within(places)
        verdicts = torch.full((len(self.order),), MISS, dtype=torch.int8)
        found = torch.full((len(self.order),), -1, dtype=torch.int64)
        is_hit = rank < self.place_objects[places]
        is_neutral = ~is_hit & self.place_is_neutral[places]
        verdicts[rows[is_hit]] = HIT
        verdicts[rows[is_neutral]] = NEUTRAL
        objects = torch.minimum(rank, self.place_objects[places])
        stands_for = is_hit | is_neutral
        found[rows[stands_for]] = self.object_rows[
            (self.place_starts[places] + objects)[stands_for]
        ]
        return verdicts, found


def match_detections(
    detections: Boxes, scores: Tensor, ground_truth: Boxes, difficult: Tensor
) -> Matches:
    """Return the place with the highest IoU for every detection.

    IoU is exact and computed once, only for pairs of one image and class whose enclosing level
    boxes overlap; nothing loops over images. Time grows with the number of such pairs.

    Args:
        detections: N boxes.
        scores: (N,) float64.
        ground_truth: M boxes.
        difficult: (M,) bool, objects that count neither way.

    Returns:
        The matches; see ``Matches.judge`` for the verdicts at a threshold.
    """
    order = _sort_rows(
        [detections.classes, -scores, detections.images, *detections.rboxes.unbind(1)]
    )
    judged = Boxes(detections.images[order], detections.classes[order], detections.rboxes[order])
    # Objects sorted by group and left edge: a detection's candidates are one run of places.
    left = rbox_to_hbox(ground_truth.rboxes)[:, 0]
    object_rows = _sort_rows(
        [ground_truth.images, ground_truth.classes, left, *ground_truth.rboxes.unbind(1), difficult]
    )
    objects = torch.column_stack(
        [ground_truth.images, ground_truth.classes, ground_truth.rboxes]
    ).double()[object_rows]
    is_new = torch.ones(len(objects), dtype=torch.bool)
    is_new[1:] = (objects[1:] != objects[:-1]).any(1)
    starts = is_new.nonzero().squeeze(1)
    place_of_object = is_new.cumsum(0) - 1
    place_objects = torch.bincount(place_of_object[~difficult[object_rows]], minlength=len(starts))
    place_counts = torch.bincount(place_of_object, minlength=len(starts))
    first = object_rows[starts]
    places = Boxes(
        ground_truth.images[first], ground_truth.classes[first], ground_truth.rboxes[first]
    )
    ious, best = _best_places(judged, places)
    return Matches(
        order=order,
        classes=judged.classes,
        ious=ious,
        places=best,
        place_objects=place_objects,
        place_is_neutral=place_counts > place_objects,
        place_starts=starts,
        object_rows=object_rows,
    )


def _best_places(boxes: Boxes, places: Boxes) -> tuple[Tensor, Tensor]:
    """Return the best IoU (N,) and its place (N,), 0 and -1 where nothing overlaps."""
    ious = torch.zeros(len(boxes), dtype=torch.float64)
    best = torch.full((len(boxes),), -1, dtype=torch.int64)
    if len(places) == 0 or len(boxes) == 0:
        return ious, best
    hboxes, place_hboxes = rbox_to_hbox(boxes.rboxes), rbox_to_hbox(places.rboxes)
    first, last = _candidate_runs(boxes, hboxes, places, place_hboxes)
    for i, j in _pairs(first, last):
        a, b = hboxes[i], place_hboxes[j]
        touching = ((a[:, :2] < b[:, 2:]) & (b[:, :2] < a[:, 2:])).all(1)
        i, j = i[touching], j[touching]
        overlap = pairwise_iou_rotated(boxes.rboxes[i], places.rboxes[j])
        overlap = overlap.round(decimals=IOU_DECIMALS)
        ious.scatter_reduce_(0, i, overlap, "amax")
        is_best = (overlap > 0) & (overlap == ious[i])
        # Among equal IoUs the first place in the sorted order wins: flipped, it is written last.
        best[i[is_best].flip(0)] = j[is_best].flip(0)
    return ious, best


def _candidate_runs(
    boxes: Boxes, hboxes: Tensor, places: Boxes, place_hboxes: Tensor
) -> tuple[Tensor, Tensor]:
    """Return first and one-past-last place (N,) of the run that holds all a box can overlap.

    Places are sorted by group and left edge. Both go into one number, group x span + left edge,
    where span is more than any difference of coordinates, so one binary search finds the run.
    """
    n_classes = int(torch.cat([boxes.classes, places.classes]).max()) + 1
    groups, place_groups = torch.unique_consecutive(
        places.images * n_classes + places.classes, return_inverse=True
    )
    codes = boxes.images * n_classes + boxes.classes
    group = torch.searchsorted(groups, codes).clamp(max=len(groups) - 1)
    widths = torch.zeros(len(groups), dtype=torch.float64).scatter_reduce_(
        0, place_groups, place_hboxes[:, 2] - place_hboxes[:, 0], "amax"
    )
    low = min(float(hboxes[:, 0].min()), float(place_hboxes[:, 0].min())) - float(widths.max())
    span = 1 + max(float(hboxes[:, 2].max()), float(place_hboxes[:, 2].max())) - low
    slack = 4 * torch.finfo(torch.float64).eps * span * (len(groups) + 1)  # rounding of the sums
    keys = place_groups * span + (place_hboxes[:, 0] - low)
    from_key = group * span + (hboxes[:, 0] - widths[group] - low) - slack
    to_key = group * span + (hboxes[:, 2] - low) + slack
    starts = torch.searchsorted(place_groups, torch.arange(len(groups) + 1))
    begin, end = starts[group], starts[group + 1]
    first = torch.searchsorted(keys, from_key).clamp(begin, end)
    last = torch.searchsorted(keys, to_key, right=True).clamp(begin, end)
    return first, torch.where(groups[group] == codes, last, first)


def _pairs(first: Tensor, last: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (box, place) indices of all runs, box by box, in chunks of bounded size."""
    counts = last - first
    total = counts.cumsum(0)
    start = 0
    while start < len(counts):
        before = int(total[start - 1]) if start else 0
        stop = int(torch.searchsorted(total, before + _PAIRS_PER_CHUNK, right=True))
        stop = max(stop, start + 1)
        chunk = counts[start:stop]
        i = torch.arange(start, stop).repeat_interleave(chunk)
        offset = torch.arange(len(i)) - (total[start:stop] - chunk - before).repeat_interleave(
            chunk
        )
        yield i, first[i] + offset
        start = stop


def _rank_within(groups: Tensor) -> Tensor:
    """Return for each element (K,) how many equal ones stand before it."""
    order = groups.argsort(stable=True)
    ordered = groups[order]
    positions = torch.arange(len(groups))
    rank = torch.empty_like(positions)
    rank[order] = positions - torch.searchsorted(ordered, ordered)
    return rank


def _sort_rows(keys: Sequence[Tensor]) -> Tensor:
    """Return the order (N,) that sorts by the first key, then the second, and so on."""
    order = torch.arange(len(keys[0]))
    for key in reversed(keys):
        order = order[key[order].argsort(stable=True)]
    return order
