"""Grouped cross-entropy: first tell groups of classes apart, then the classes within them.

At the start of training alike classes (kinds of vehicles, say) are one target; by a schedule the
loss goes over to the single classes.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from obbflow.errors import ConfigError, did_you_mean
from obbflow.models.losses.classification import cross_entropy

logger = logging.getLogger(__name__)

GroupSchedule = Literal["step", "linear_ramp"]


def resolve_groups(
    groups: Iterable[Sequence[str]], class_map: Mapping[str, int] | None
) -> list[list[int]]:
    """Return the class ids of each group; unknown names are left out with a warning.

    Args:
        groups: Names of classes, each in one group at most.
        class_map: Class name -> id, 1..C.

    Returns:
        Sorted ids, one list a group that has a known class.

    Raises:
        ConfigError: If there is no class map, a class is in two groups, or no name is known.
    """
    key = "loss.roi_grouped_ce_groups"
    if not class_map:
        raise ConfigError(
            f"{key}: groups are names of classes and need a class map; run pipeline 'data' first"
        )
    ids: list[list[int]] = []
    group_of: dict[str, int] = {}
    for number, names in enumerate(groups, start=1):
        known = []
        for name in names:
            if name in group_of:
                where = f"groups {group_of[name]} and {number}"
                if group_of[name] == number:
                    where = f"group {number} twice"
                raise ConfigError(
                    f"{key}: class {name!r} is in {where}; a class belongs to one group, once"
                )
            group_of[name] = number
            if name in class_map:
                known.append(class_map[name])
            else:
                hint = did_you_mean(name, class_map)
                logger.warning("%s: no class %r%s; it is left out", key, name, hint)
        if known:
            ids.append(sorted(known))
    if not ids:
        raise ConfigError(
            f"{key}: no name is a class of this data set; there are: {', '.join(class_map)}"
        )
    return ids


def grouped_alpha(
    epoch: int,
    schedule: GroupSchedule | None,
    *,
    start_epoch: int = 0,
    end_epoch: int = 8,
    power: float = 1.0,
) -> float:
    """Return the share of the grouped loss in an epoch, 1 at first and 0 in the end.

    Args:
        epoch: From 0.
        schedule: "step": 1 before ``end_epoch``, then 0. "linear_ramp": 1 up to ``start_epoch``,
            (1 - t)^power in between with t the elapsed share, 0 from ``end_epoch``; 0 when
            ``end_epoch`` is not after ``start_epoch``. None: always 0.
        start_epoch: Where the ramp begins.
        end_epoch: From where on classes alone count.
        power: Of the ramp, above 0.

    Returns:
        alpha in 0..1.

    Raises:
        ValueError: If the schedule is unknown.

    Example:
        >>> [grouped_alpha(epoch, "linear_ramp", start_epoch=1, end_epoch=3) for epoch in range(4)]
        [1.0, 1.0, 0.5, 0.0]
    """
    if schedule is None:
        return 0.0
    if schedule == "step":
        return 1.0 if epoch < end_epoch else 0.0
    if schedule != "linear_ramp":
        raise ValueError(f"schedule must be 'step', 'linear_ramp' or None, got {schedule!r}")
    if end_epoch <= start_epoch or epoch >= end_epoch:
        return 0.0
    elapsed = max(epoch - start_epoch, 0) / (end_epoch - start_epoch)
    return float((1 - elapsed) ** power)


def grouped_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    groups: Sequence[Sequence[int]],
    alpha: float,
    class_weights: Tensor | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """Return alpha x grouped + (1 - alpha) x fine cross-entropy of each sample.

    Grouped: of a sample of a grouped class the negative logarithm of the summed probability of its
    group; background and classes in no group have their fine loss.

    Args:
        logits: (N, C + 1) float, background first; N may be 0.
        labels: (N,) int64, 0 .. C.
        groups: Class ids of each group, disjoint, as from :func:`resolve_groups`.
        alpha: Share of the grouped loss, 0 .. 1.
        class_weights: (C + 1,) factor on each sample's loss, grouped or fine, by its label.
        smoothing: Share of the target spread over all classes in the fine loss.

    Returns:
        (N,) float32.
    """
    fine = cross_entropy(logits, labels, class_weights, smoothing)
    if alpha == 0 or not groups:
        return fine
    log_p = functional.log_softmax(logits.float(), dim=1)
    grouped = fine
    for ids in groups:
        members = torch.tensor(ids, device=labels.device)
        of_group = -log_p[:, members].logsumexp(dim=1).clamp(max=0)
        if class_weights is not None:
            of_group = of_group * class_weights.float()[labels]
        grouped = torch.where(torch.isin(labels, members), of_group, grouped)
    return alpha * grouped + (1 - alpha) * fine
