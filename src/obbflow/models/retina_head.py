"""Head of RetinaNet: classes and deltas of rotated boxes at every anchor."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from obbflow.config import LossSection, ModelSection
from obbflow.geometry import rbox_to_hbox
from obbflow.models.anchors import (
    anchor_rboxes,
    base_anchors,
    level_anchors,
    octave_scales,
    squarest_first,
)
from obbflow.models.batching import ImageSize
from obbflow.models.coders import DeltaCoder
from obbflow.models.dense_head import (
    DenseHead,
    DenseOutput,
    Grid,
    box_overlap_loss,
    flatten_level,
)
from obbflow.models.losses import kfiou_loss, smooth_l1
from obbflow.models.matching import MaxIoUMatcher, ignore_covered
from obbflow.ops.iou import overlaps_rotated
from obbflow.ops.pairs import overlaps_horizontal
from obbflow.structures import Target

_OCTAVE_BASE_SCALE, _SCALES_PER_OCTAVE = 4.0, 3  # as published
_BETA = 1 / 9  # of smooth L1


class RetinaHead(DenseHead):
    """Anchors of several scales and ratios a cell, matched by IoU; five deltas each.

    Args:
        config: Section ``model``.
        num_classes: C, background not counted.
        loss: Section ``loss``.
        class_weights: (C + 1,) weights of the classification loss, background first.
        strides: Of the levels, px a cell.

    Source:
        Lin et al., Focal loss for dense object detection, ICCV 2017, sections 3 and 4; rotated as
        in MMRotate.
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
        scales = octave_scales(
            config.anchor_octave_base_scale or _OCTAVE_BASE_SCALE,
            config.anchor_scales_per_octave or _SCALES_PER_OCTAVE,
        )
        ratios = squarest_first(config.anchor_ratios)
        super().__init__(
            config,
            num_classes,
            loss=loss,
            class_weights=class_weights,
            depth=config.retinanet_stacked_convs,
            per_cell=len(scales) * len(ratios),
            box_channels=5,
            norm=False,
        )
        self.strides = tuple(strides)
        self.base_anchors = [base_anchors(stride, scales, ratios) for stride in strides]
        self.coder = DeltaCoder()
        self.matcher = MaxIoUMatcher(
            positive=config.retinanet_positive_iou_threshold,
            negative=config.retinanet_negative_iou_threshold,
            low_quality=True,
        )

    def forward(self, levels: Sequence[Tensor]) -> DenseOutput:
        """Return class logits and box deltas of all anchors on all levels."""
        logits, deltas, anchors, grids = [], [], [], []
        for level, stride, base in zip(levels, self.strides, self.base_anchors, strict=True):
            height, width = level.shape[2:]
            logits.append(flatten_level(self.classifier(self.cls_tower(level)), self.num_classes))
            deltas.append(flatten_level(self.regressor(self.box_tower(level)), 5))
            hboxes = level_anchors(height, width, stride, base, level.device)
            anchors.append(anchor_rboxes(hboxes, self.config.retinanet_anchor_angle))
            grids.append(Grid(height, width, stride))
        return DenseOutput(
            torch.cat(logits, dim=1),
            torch.cat(deltas, dim=1),
            None,
            torch.cat(anchors),
            grids,
            self.per_cell,
        )

    @torch.no_grad()
    def match(self, output: DenseOutput, target: Target) -> Tensor:
        """Return (M,) int64: for each anchor its object, ``BACKGROUND`` or ``IGNORED``.

        Anchors inside an ignore region that match no object are ignored.
        """
        anchors, gt, regions = output.priors, target["rboxes"], target.get("rboxes_ignore")
        overlaps = overlaps_rotated
        if self.config.use_hbb_for_matching:
            overlaps = overlaps_horizontal
            anchors, gt = rbox_to_hbox(anchors), rbox_to_hbox(gt)
            regions = None if regions is None else rbox_to_hbox(regions)
        matches = self.matcher.match(gt, anchors, overlaps)
        if regions is not None:
            matches = ignore_covered(matches, regions, anchors, partial(overlaps, mode="iof"))
        return matches

    def box_losses(
        self, output: DenseOutput, positive: tuple[Tensor, Tensor], matched: Tensor
    ) -> dict[str, Tensor]:
        """Return ``loss_box_reg``, over the positive anchors of the batch."""
        losses = self._box_loss(output.priors[positive[1]], output.codes[positive], matched)
        return {"loss_box_reg": self.config.box_reg_weight * losses.sum() / max(len(matched), 1)}

    def _box_loss(self, anchors: Tensor, deltas: Tensor, matched: Tensor) -> Tensor:
        """Return the loss (P,) of anchors (P, 5), their deltas (P, 5) and objects (P, 5)."""
        match self.config.box_reg_loss_type:
            case "smooth_l1":
                return smooth_l1(deltas, self.coder.encode(anchors, matched), _BETA).sum(dim=1)
            case "l1":
                return smooth_l1(deltas, self.coder.encode(anchors, matched), 0).sum(dim=1)
            case "kfiou":
                wanted = self.coder.encode(anchors, matched)
                return kfiou_loss(self.coder.decode(anchors, deltas), matched, deltas, wanted)
            case kind:
                return box_overlap_loss(kind, self.coder.decode(anchors, deltas), matched)

    def decode(self, priors: Tensor, codes: Tensor, size: ImageSize) -> Tensor:
        """Return rboxes (K, 5), le90, with their centres in the image, as published."""
        return self.coder.decode(priors, codes, image_size=size)
