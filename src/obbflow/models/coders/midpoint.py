"""Rotated boxes from horizontal priors: Oriented R-CNN's midpoint offsets."""

from dataclasses import dataclass

import torch
from torch import Tensor

from obbflow.geometry import normalize_le90, rbox_to_hbox, rbox_to_qbox
from obbflow.models.coders.deltas import (
    centre_and_size,
    decode_hboxes,
    encode_hboxes,
    normalise,
    restore,
    shift_over_size,
)

# Corners whose coordinate differs by less are taken as level: then the right or lower one counts.
_LEVEL_TOLERANCE = 0.1


@dataclass(frozen=True)
class MidpointOffsetCoder:
    """Rotated boxes from horizontal priors by six numbers.

    (dx, dy, dw, dh) move the prior to the target's enclosing box; da and db say where the target's
    top corner lies on the upper edge (from its middle, over the width) and its right corner on the
    right edge (from its middle, over the height).

    Source:
        Xie et al., Oriented R-CNN for object detection, ICCV 2021, section 3.1.
    """

    means: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    stds: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 0.5, 0.5)

    def encode(self, priors: Tensor, targets: Tensor) -> Tensor:
        """Return deltas (N, 6) of target rboxes (N, 5) from prior hboxes (N, 4)."""
        x, y = rbox_to_qbox(targets).reshape(-1, 4, 2).unbind(dim=2)
        hboxes = rbox_to_hbox(targets)
        low = torch.full_like(x, -torch.inf)
        level_top = (y - hboxes[:, 1:2]).abs() <= _LEVEL_TOLERANCE
        level_right = (x - hboxes[:, 2:3]).abs() <= _LEVEL_TOLERANCE
        top_x = torch.where(level_top, x, low).amax(dim=1)
        right_y = torch.where(level_right, y, low).amax(dim=1)
        corner = torch.stack([top_x, right_y], dim=1)
        centre, size = centre_and_size(hboxes)
        offsets = shift_over_size(corner - centre, size)
        deltas = torch.cat([encode_hboxes(priors, hboxes), offsets], dim=1)
        return normalise(deltas, self.means, self.stds)

    def decode(self, priors: Tensor, deltas: Tensor) -> Tensor:
        """Return rboxes (N, 5), le90, of deltas (N, 6) from prior hboxes (N, 4).

        The four corners form a parallelogram; its shorter diagonal is stretched to the longer one,
        which makes it a rectangle.
        """
        deltas = restore(deltas, self.means, self.stds)
        centre, size = decode_hboxes(priors, deltas[:, :4])
        offset = deltas[:, 4:].clamp(-0.5, 0.5) * size
        top = torch.stack([offset[:, 0], -size[:, 1] / 2], dim=1)  # from the centre
        right = torch.stack([size[:, 0] / 2, offset[:, 1]], dim=1)
        reach_top, reach_right = top.norm(dim=1, keepdim=True), right.norm(dim=1, keepdim=True)
        reach = torch.maximum(reach_top, reach_right)
        top = top * reach / reach_top.clamp(min=1e-6)
        right = right * reach / reach_right.clamp(min=1e-6)
        along, across = right - top, right + top  # edges top -> right and left -> top
        length, breadth = along.norm(dim=1, keepdim=True), across.norm(dim=1, keepdim=True)
        # Of a needle only the long edge has a direction, the short one is rounding.
        upright = torch.stack([across[:, 1], -across[:, 0]], dim=1)  # turned back to ``along``
        axis = torch.where(length >= breadth, along, upright)
        angle = torch.atan2(axis[:, 1:], axis[:, :1])
        return normalize_le90(torch.cat([centre, length, breadth, angle], dim=1))
