"""Precision, recall and average precision of a ranked list of hits and misses."""

from typing import Literal, get_args

import torch
from torch import Tensor

Interpolation = Literal["area", "voc07"]


def precision_recall(is_hit: Tensor, n_gt: int) -> tuple[Tensor, Tensor]:
    """Return precision and recall after each detection of a ranked list.

    Args:
        is_hit: (K,) bool, best score first: true positive or false positive.
        n_gt: Number of objects that can be found, at least 1.

    Returns:
        Precision (K,) and recall (K,), float64 in [0, 1].
    """
    hits = is_hit.cumsum(0).double()
    return hits / torch.arange(1, len(is_hit) + 1, dtype=torch.float64), hits / n_gt


def average_precision(
    is_hit: Tensor, n_gt: int, interpolation: Interpolation = "area"
) -> float | None:
    """Return the average precision of one class at one IoU threshold.

    Precision is first made monotone: at each recall the best precision at that or a higher
    recall counts. "area" integrates it over all recall steps (PASCAL VOC from 2010 on); "voc07"
    averages it at the recalls 0, 0.1, ..., 1 (PASCAL VOC 2007, the DOTA server).

    Args:
        is_hit: (K,) bool, best score first: true positive or false positive; K may be 0.
        n_gt: Number of objects that can be found.
        interpolation: "area" or "voc07".

    Returns:
        AP in [0, 1]; None when ``n_gt`` is 0, for then there is nothing to find.

    Raises:
        ValueError: If ``interpolation`` is unknown.

    Source:
        Everingham et al., "The PASCAL Visual Object Classes (VOC) Challenge", IJCV 2010,
        section 4.2.

    Example:
        >>> average_precision(torch.tensor([True, False, True]), n_gt=2)
        0.8333333333333333
    """
    if interpolation not in get_args(Interpolation):
        raise ValueError(f"interpolation must be 'area' or 'voc07', got {interpolation!r}")
    if n_gt == 0:
        return None
    precision, recall = precision_recall(is_hit, n_gt)
    precision, recall = precision[is_hit], recall[is_hit]  # only hits raise recall
    if len(recall) == 0:
        return 0.0
    envelope = precision.flip(0).cummax(0).values.flip(0)
    if interpolation == "area":
        return float(envelope.sum() / n_gt)
    # As the development kits do it: in float64 against 0.1 x k, so that recall 3 / 10 stays below
    # the fourth point, 0.30000000000000004. Published numbers depend on it.
    points = 0.1 * torch.arange(11, dtype=torch.float64)
    first = torch.searchsorted(recall, points)
    return float(torch.cat([envelope, envelope.new_zeros(1)])[first].sum() / 11)
