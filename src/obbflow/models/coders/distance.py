"""Rotated boxes from points by the distances to their four sides."""

import torch
from torch import Tensor

from obbflow.geometry import normalize_le90
from obbflow.models.coders.deltas import turn


class DistanceAngleCoder:
    """Rotated boxes from points by (left, top, right, bottom, angle).

    The distances, px, are measured along the target's own axes: left and right along w, top and
    bottom along h. One is negative where the point lies beyond that side.

    Source:
        Tian et al., FCOS: fully convolutional one-stage object detection, ICCV 2019, equation 1;
        in the frame of a rotated box as MMRotate.
    """

    def encode(self, points: Tensor, targets: Tensor) -> Tensor:
        """Return distances and angle (N, 5) of target rboxes (N, 5) from points (N, 2)."""
        half, angle = targets[:, 2:4] / 2, targets[:, 4]
        offset = turn(points - targets[:, :2], -angle)  # of the point from the box's centre
        return torch.cat([half + offset, half - offset, angle[:, None]], dim=1)

    def decode(self, points: Tensor, distances: Tensor) -> Tensor:
        """Return rboxes (N, 5), le90, of distances and angle (N, 5) from points (N, 2).

        Sides that do not add up to more than 0 px give one of 0 px.
        """
        start, end, angle = distances[:, :2], distances[:, 2:4], distances[:, 4]
        centre = points + turn((end - start) / 2, angle)
        size = (start + end).clamp(min=0)
        return normalize_le90(torch.cat([centre, size, angle[:, None]], dim=1))
