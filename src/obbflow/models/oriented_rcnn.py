"""Oriented R-CNN: a two-stage detector of rotated boxes."""

from torch import Tensor

from obbflow.config import LossSection, ModelSection
from obbflow.models.backbones import build_backbone
from obbflow.models.fpn import FPN
from obbflow.models.roi_heads import RotatedRoIHead
from obbflow.models.rpn import OrientedRPN
from obbflow.models.two_stage import TwoStageDetector


class OrientedRCNN(TwoStageDetector):
    """Backbone + FPN, oriented proposals by midpoint offsets, rotated RoIAlign, rotated box head.

    Args:
        config: Section ``model``.
        num_classes: C, background not counted.
        loss: Section ``loss``; all defaults when absent.
        class_weights: (C + 1,) weights of the classification loss, background first.
        size_divisor: Batches are padded to multiples of it.

    Source:
        Xie et al., Oriented R-CNN for object detection, ICCV 2021.
    """

    def __init__(
        self,
        config: ModelSection,
        num_classes: int,
        *,
        loss: LossSection | None = None,
        class_weights: Tensor | None = None,
        size_divisor: int = 32,
    ) -> None:
        backbone = build_backbone(config)
        super().__init__(
            backbone,
            FPN(backbone.out_channels, config.fpn_channels),
            OrientedRPN(config),
            RotatedRoIHead(
                config, num_classes, loss=loss or LossSection(), class_weights=class_weights
            ),
            size_divisor=size_divisor,
        )
