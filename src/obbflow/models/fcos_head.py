"""Head of FCOS: classes, distances to the sides, angle and centerness at every cell."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from obbflow.config import LossSection, ModelSection
from obbflow.models.anchors import level_points
from obbflow.models.batching import ImageSize
from obbflow.models.coders import DistanceAngleCoder
from obbflow.models.dense_head import (
    DenseHead,
    DenseOutput,
    Grid,
    box_overlap_loss,
    flatten_level,
    initialise,
)
from obbflow.models.losses import binary_cross_entropy
from obbflow.models.point_matching import centerness, ignore_inside, match_points
from obbflow.structures import Target

_FINEST_RANGE = 64  # px: the finest level finds objects whose farthest side is nearer than that
_DEPTH = 4  # of the towers


class Scale(nn.Module):
    """Multiplies by one number that is learnt, at first 1."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, values: Tensor) -> Tensor:
        """Return the values times the scale."""
        return values * self.scale


class FCOSHead(DenseHead):
    """One point a cell, which finds an object around it by the distances to its four sides.

    Args:
        config: Section ``model``.
        num_classes: C, background not counted.
        loss: Section ``loss``.
        class_weights: (C + 1,) weights of the classification loss, background first.
        strides: Of the levels, px a cell.

    Source:
        Tian et al., FCOS: fully convolutional one-stage object detection, ICCV 2019, with the
        sampling of centres and other improvements of the authors' later code; rotated as in
        MMRotate. There distances start at random around 0, where half of them learn nothing; here
        they start at one cell.
    """

    def __init__(
        self,
        config: ModelSection,
        num_classes: int,
        *,
        loss: LossSection,
        class_weights: Tensor | None,
        strides: Sequence[int],
    ) -> None:
        super().__init__(
            config,
            num_classes,
            loss=loss,
            class_weights=class_weights,
            depth=_DEPTH,
            per_cell=1,
            box_channels=4,
            norm=True,
        )
        self.strides = tuple(strides)
        self.angle = nn.Conv2d(config.fpn_channels, 1, kernel_size=3, padding=1)
        self.centerness = nn.Conv2d(config.fpn_channels, 1, kernel_size=3, padding=1)
        for layer in (self.angle, self.centerness):
            initialise(layer)
        nn.init.ones_(self.regressor.get_parameter("bias"))
        self.scales = nn.ModuleList(Scale() for _ in self.strides)
        self.angle_scale = Scale()
        self.coder = DistanceAngleCoder()
        limits = [_FINEST_RANGE * 2**level for level in range(len(self.strides) - 1)]
        self.ranges = list(zip([0, *limits], [*limits, math.inf], strict=True))

    def forward(self, levels: Sequence[Tensor]) -> DenseOutput:
        """Return class logits, distances and angle, and centerness of all points."""
        logits, codes, centre, points, grids = [], [], [], [], []
        for level, stride, scale in zip(levels, self.strides, self.scales, strict=True):
            height, width = level.shape[2:]
            hidden = self.box_tower(level)
            logits.append(flatten_level(self.classifier(self.cls_tower(level)), self.num_classes))
            distances = functional.relu(scale(flatten_level(self.regressor(hidden), 4))) * stride
            angle = self.angle_scale(flatten_level(self.angle(hidden), 1))
            codes.append(torch.cat([distances, angle], dim=2))
            centre.append(flatten_level(self.centerness(hidden), 1).squeeze(2))
            points.append(level_points(height, width, stride, level.device))
            grids.append(Grid(height, width, stride))
        return DenseOutput(
            torch.cat(logits, dim=1),
            torch.cat(codes, dim=1),
            torch.cat(centre, dim=1),
            torch.cat(points),
            grids,
            self.per_cell,
        )

    @torch.no_grad()
    def match(self, output: DenseOutput, target: Target) -> Tensor:
        """Return (M,) int64: for each point its object, ``BACKGROUND`` or ``IGNORED``.

        Points inside an ignore region that match no object are ignored.
        """
        radius = self.config.fcos_centre_radius
        matches = match_points(target["rboxes"], output.grids, self.ranges, radius)
        if "rboxes_ignore" in target:
            matches = ignore_inside(matches, target["rboxes_ignore"], output.priors)
        return matches

    def box_losses(
        self, output: DenseOutput, positive: tuple[Tensor, Tensor], matched: Tensor
    ) -> dict[str, Tensor]:
        """Return ``loss_box_reg``, weighted by the true centerness, and ``loss_centerness``."""
        if output.centerness is None:
            raise ValueError("FCOS needs an output with centerness")
        points = output.priors[positive[1]]
        wanted = centerness(self.coder.encode(points, matched))
        rboxes = self.coder.decode(points, output.codes[positive])
        box_losses = box_overlap_loss(self.config.fcos_box_loss_type, rboxes, matched) * wanted
        of_centre = binary_cross_entropy(output.centerness[positive], wanted)
        return {
            "loss_box_reg": self.config.box_reg_weight
            * box_losses.sum()
            / wanted.sum().clamp(min=1e-6),
            "loss_centerness": of_centre.sum() / max(len(matched), 1),
        }

    def decode(
        self,
        priors: Tensor,
        codes: Tensor,
        size: ImageSize,  # noqa: ARG002 - boxes may reach beyond the border, as published
    ) -> Tensor:
        """Return rboxes (K, 5), le90; nothing is cut at the border."""
        return self.coder.decode(priors, codes)
