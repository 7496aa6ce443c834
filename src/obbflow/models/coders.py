"""Box coders: from a prior box and a target to regression targets (deltas), and back.

Widths and heights are regressed as logarithms; a decoded side is at most 62.5 times (and at least
1 / 62.5 of) the prior's, so that an untrained head cannot overflow.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from obbflow.geometry import normalize_le90, rbox_to_hbox, rbox_to_qbox

_MAX_LOG_RATIO = abs(math.log(16 / 1000))
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
        centre, size = _centre_and_size(hboxes)
        low = torch.full_like(x, -torch.inf)
        level_top = (y - hboxes[:, 1:2]).abs() <= _LEVEL_TOLERANCE
        level_right = (x - hboxes[:, 2:3]).abs() <= _LEVEL_TOLERANCE
        top_x = torch.where(level_top, x, low).amax(dim=1)
        right_y = torch.where(level_right, y, low).amax(dim=1)
        corner = torch.stack([top_x, right_y], dim=1)
        prior_centre, prior_size = _centre_and_size(priors)
        deltas = torch.cat(
            [
                (centre - prior_centre) / prior_size,
                (size / prior_size).log(),
                (corner - centre) / size,
            ],
            dim=1,
        )
        return _normalise(deltas, self.means, self.stds)

    def decode(self, priors: Tensor, deltas: Tensor) -> Tensor:
        """Return rboxes (N, 5), le90, of deltas (N, 6) from prior hboxes (N, 4).

        The four corners form a parallelogram; its shorter diagonal is stretched to the longer one,
        which makes it a rectangle.
        """
        deltas = _restore(deltas, self.means, self.stds)
        prior_centre, prior_size = _centre_and_size(priors)
        centre = prior_centre + deltas[:, :2] * prior_size
        size = prior_size * deltas[:, 2:4].clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
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


@dataclass(frozen=True)
class DeltaCoder:
    """Rotated boxes from rotated priors by (dx, dy, dw, dh, da).

    ``norm_factor`` divides the angle delta by norm_factor x pi (null: radians). ``edge_swap``
    compares both readings of the target, (w, h, angle) and (h, w, angle + pi / 2), and regresses
    the one turned less. ``proj_xy`` measures the centre's shift along the prior's own axes.

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
        """Return deltas (N, 5) of target rboxes (N, 5) from prior rboxes (N, 5)."""
        shift = targets[:, :2] - priors[:, :2]
        if self.proj_xy:
            shift = _turn(shift, -priors[:, 4])
        size = targets[:, 2:4]
        difference = targets[:, 4] - priors[:, 4]
        turn = _wrap(difference)
        if self.edge_swap:
            swapped_turn = _wrap(difference + math.pi / 2)
            keep = turn.abs() < swapped_turn.abs()
            turn = torch.where(keep, turn, swapped_turn)
            size = torch.where(keep[:, None], size, size.flip(1))
        if self.norm_factor is not None:
            turn = turn / (self.norm_factor * math.pi)
        deltas = torch.cat(
            [shift / priors[:, 2:4], (size / priors[:, 2:4]).log(), turn[:, None]], dim=1
        )
        return _normalise(deltas, self.means, self.stds)

    def decode(
        self, priors: Tensor, deltas: Tensor, image_size: tuple[int, int] | None = None
    ) -> Tensor:
        """Return rboxes (N, 5) of deltas (N, 5) from prior rboxes (N, 5).

        With ``edge_swap`` they are le90; else w and h stay as regressed.
        ``image_size`` (height, width) keeps the centres within [0, size - 1].
        """
        deltas = _restore(deltas, self.means, self.stds)
        shift = deltas[:, :2] * priors[:, 2:4]
        if self.proj_xy:
            shift = _turn(shift, priors[:, 4])
        centre = priors[:, :2] + shift
        if image_size is not None:
            limit = centre.new_tensor([image_size[1] - 1, image_size[0] - 1])
            centre = torch.minimum(centre.clamp(min=0), limit)
        size = priors[:, 2:4] * deltas[:, 2:4].clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
        turn = deltas[:, 4]
        if self.norm_factor is not None:
            turn = turn * (self.norm_factor * math.pi)
        angle = _wrap(priors[:, 4] + turn)
        rboxes = torch.cat([centre, size, angle[:, None]], dim=1)
        return normalize_le90(rboxes) if self.edge_swap else rboxes


def _centre_and_size(hboxes: Tensor) -> tuple[Tensor, Tensor]:
    return (hboxes[:, :2] + hboxes[:, 2:]) / 2, hboxes[:, 2:] - hboxes[:, :2]


def _turn(vectors: Tensor, angle: Tensor) -> Tensor:
    """Return (N, 2) vectors turned by (N,) angles, clockwise on the screen."""
    cos, sin = angle.cos(), angle.sin()
    x, y = vectors.unbind(dim=1)
    return torch.stack([cos * x - sin * y, sin * x + cos * y], dim=1)


def _wrap(angle: Tensor) -> Tensor:
    """Return angles modulo pi, in [-pi/2, pi/2)."""
    return (angle + math.pi / 2).remainder(math.pi) - math.pi / 2


def _normalise(deltas: Tensor, means: Sequence[float], stds: Sequence[float]) -> Tensor:
    return (deltas - deltas.new_tensor(means)) / deltas.new_tensor(stds)


def _restore(deltas: Tensor, means: Sequence[float], stds: Sequence[float]) -> Tensor:
    return deltas * deltas.new_tensor(stds) + deltas.new_tensor(means)
