"""Anchors: horizontal boxes of fixed shapes at every cell of every level."""

from collections.abc import Sequence

import torch
from torch import Tensor


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
