"""Rotated FCOS: a one-stage detector without anchors."""

from torch import Tensor

from obbflow.config import LossSection, ModelSection
from obbflow.models.backbones import build_backbone
from obbflow.models.fcos_head import FCOSHead
from obbflow.models.fpn import FPN
from obbflow.models.one_stage import OneStageDetector


class RotatedFCOS(OneStageDetector):
    """Backbone + FPN, and at every cell of P3 .. P7 classes, four distances, angle, centerness.

    Args:
        config: Section ``model``.
        num_classes: C, background not counted.
        loss: Section ``loss``; all defaults when absent.
        class_weights: (C + 1,) weights of the classification loss, background first.
        size_divisor: Batches are padded to multiples of it.

    Source:
        Tian et al., FCOS: fully convolutional one-stage object detection, ICCV 2019; rotated as in
        MMRotate.
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
        fpn = FPN(backbone.out_channels, config.fpn_channels, start=1, extra="conv_on_output")
        head = FCOSHead(
            config,
            num_classes,
            loss=loss or LossSection(),
            class_weights=class_weights,
            strides=fpn.strides,
        )
        super().__init__(backbone, fpn, head, size_divisor=size_divisor)
