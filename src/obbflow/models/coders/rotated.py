"""Rotated boxes from rotated or level priors by five deltas."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from obbflow.geometry import normalize_le90
from obbflow.models.coders.deltas import (
    centre_and_size,
    log_ratio,
    normalise,
    restore,
    scale_size,
    shift_over_size,
    turn,
)


@dataclass(frozen=True)
class DeltaCoder:
    """Rotated boxes from rotated or level priors by (dx, dy, dw, dh, da).

    ``norm_factor`` divides the angle delta by norm_factor x pi (null: radians). ``edge_swap``
    compares both readings of the target, (w, h, angle) and (h, w, angle + pi / 2), and regresses
    the one turned less. ``proj_xy`` measures the centre's shift along the prior's own axes.
    A level prior is one of angle 0 whose w axis is horizontal, even if it is taller than wide.

    Source:
        Ding et al., Learning RoI Transformer for oriented object detection, CVPR 2019, equation 1;
        options as named by MMRotate.
    """

    means: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)
    stds: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0)
    norm_factor: float | None = None
    edge_swap: bool = True
    proj_xy: bool = True

    def encode(self, priors: Tensor, targets: Tensor) -> Tensor:
        """Return deltas (N, 5) of target rboxes (N, 5).

        Args:
            priors: (N, 5) rboxes or (N, 4) hboxes, px.
            targets: (N, 5) rboxes of any angle, px.
        """
        prior_centre, prior_size, prior_angle = _split(priors)
        shift = targets[:, :2] - prior_centre
        if self.proj_xy:
            shift = turn(shift, -prior_angle)
        size = targets[:, 2:4]
        difference = targets[:, 4] - prior_angle
        da = _wrap(difference)
        if self.edge_swap:
            swapped = _wrap(difference + math.pi / 2)
            keep = da.abs() < swapped.abs()
            da = torch.where(keep, da, swapped)
            size = torch.where(keep[:, None], size, size.flip(1))
        if self.norm_factor is not None:
            da = da / (self.norm_factor * math.pi)
        deltas = [shift_over_size(shift, prior_size), log_ratio(size, prior_size), da[:, None]]
        return normalise(torch.cat(deltas, dim=1), self.means, self.stds)

    def decode(
        self, priors: Tensor, deltas: Tensor, image_size: tuple[int, int] | None = None
    ) -> Tensor:
        """Return rboxes (N, 5); le90 with ``edge_swap``, else w and h stay as regressed.

        Args:
            priors: (N, 5) rboxes or (N, 4) hboxes, px.
            deltas: (N, 5).
            image_size: (height, width), px: keeps the centres within [0, size - 1].
        """
        deltas = restore(deltas, self.means, self.stds)
        prior_centre, prior_size, prior_angle = _split(priors)
        shift = deltas[:, :2] * prior_size
        if self.proj_xy:
            shift = turn(shift, prior_angle)
        centre = prior_centre + shift
        if image_size is not None:
            limit = centre.new_tensor([image_size[1] - 1, image_size[0] - 1])
            centre = torch.minimum(centre.clamp(min=0), limit)
        da = deltas[:, 4]
        if self.norm_factor is not None:
            da = da * (self.norm_factor * math.pi)
        angle = _wrap(prior_angle + da)
        size = scale_size(prior_size, deltas[:, 2:4])
        rboxes = torch.cat([centre, size, angle[:, None]], dim=1)
        return normalize_le90(rboxes) if self.edge_swap else rboxes


def _split(priors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return centres (N, 2), sides (N, 2) and angles (N,) of rboxes or hboxes."""
    if priors.shape[1] == 4:
        return *centre_and_size(priors), priors.new_zeros(len(priors))
    return priors[:, :2], priors[:, 2:4], priors[:, 4]


def _wrap(angle: Tensor) -> Tensor:
    """Return angles modulo pi, in [-pi/2, pi/2)."""
    return (angle + math.pi / 2).remainder(math.pi) - math.pi / 2
