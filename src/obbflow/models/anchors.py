"""Priors: anchors of fixed shapes, or points, at every cell of every level."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

AnchorAngle = Literal["le90", "zero"]


def base_anchors(stride: int, scales: Sequence[float], ratios: Sequence[float]) -> Tensor:
    """Return the anchors of the cell at the origin.

    Args:
        stride: px of the image a cell; an anchor of scale s covers about (s x stride) squared.
        scales: Side over stride.
        ratios: Height over width.

    Returns:
        (len(ratios) x len(scales), 4) hboxes around (0, 0), px; ratios vary slowest.

    Source:
        MMDetection's AnchorGenerator with ``center_offset`` 0, which the published weights expect.
    """
    root = torch.tensor(ratios, dtype=torch.float32).sqrt()
    scale = torch.tensor(scales, dtype=torch.float32)
    width = (stride / root[:, None] * scale).flatten()
    height = (stride * root[:, None] * scale).flatten()
    return torch.stack([-width, -height, width, height], dim=1) / 2


def level_anchors(
    height: int, width: int, stride: int, base: Tensor, device: torch.device
) -> Tensor:
    """Return the anchors of one level, (height x width x A, 4) hboxes in px: y, x, then shape."""
    x = torch.arange(width, device=device, dtype=torch.float32) * stride
    y = torch.arange(height, device=device, dtype=torch.float32) * stride
    shift_y, shift_x = torch.meshgrid(y, x, indexing="ij")
    shifts = torch.stack([shift_x, shift_y, shift_x, shift_y], dim=-1).reshape(-1, 1, 4)
    return (shifts + base.to(device)).reshape(-1, 4)


def octave_scales(base_scale: float, per_octave: int) -> list[float]:
    """Return ``per_octave`` scales from ``base_scale`` up, evenly spaced up to twice of it.

    Source:
        Lin et al., Focal loss for dense object detection, ICCV 2017, section 4.
    """
    return [base_scale * 2 ** (step / per_octave) for step in range(per_octave)]


def squarest_first(ratios: Sequence[float]) -> list[float]:
    """Return ratios, nearest to 1 first and a flat one before its upright twin.

    The order of a published RetinaNet's anchors: 1, 0.5, 2.
    """
    return sorted(ratios, key=lambda ratio: (abs(math.log(ratio)), ratio))


def anchor_rboxes(hboxes: Tensor, angle: AnchorAngle) -> Tensor:
    """Return level anchors (N, 4) as (cx, cy, w, h, angle), (N, 5).

    Args:
        hboxes: (N, 4), px.
        angle: "le90": w is the longer side, so an upright anchor has angle -pi/2, and a square one
            too, as MMRotate 1.x has them; "zero": w is the horizontal side and the angle 0
            throughout, as in MMRotate 0.x. What deltas mean differs between the two.
    """
    centre, size = (hboxes[:, :2] + hboxes[:, 2:]) / 2, hboxes[:, 2:] - hboxes[:, :2]
    width, height = size.split(1, dim=1)
    zero = torch.zeros_like(width)
    if angle == "zero":
        return torch.cat([centre, size, zero], dim=1)
    upright = width <= height
    long, short = torch.where(upright, height, width), torch.where(upright, width, height)
    return torch.cat([centre, long, short, zero.masked_fill(upright, -math.pi / 2)], dim=1)


def level_points(height: int, width: int, stride: int, device: torch.device) -> Tensor:
    """Return the centres of a level's cells, (height x width, 2) in px: y, then x."""
    x = (torch.arange(width, device=device, dtype=torch.float32) + 0.5) * stride
    y = (torch.arange(height, device=device, dtype=torch.float32) + 0.5) * stride
    grid_y, grid_x = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([grid_x, grid_y], dim=-1).reshape(-1, 2)


def shown_cells(
    height: int, width: int, stride: int, size: tuple[int, int], device: torch.device
) -> Tensor:
    """Return (height x width,) bool: does the cell show the image, not its padding?

    Args:
        height: Of the level, cells.
        width: Of the level, cells.
        stride: px of the image a cell.
        size: (height, width) of the image, px.
        device: Of the result.
    """
    cells = torch.zeros(height, width, dtype=torch.bool, device=device)
    cells[: math.ceil(size[0] / stride), : math.ceil(size[1] / stride)] = True
    return cells.flatten()
