"""Rotated RetinaNet: a one-stage detector with anchors."""

from torch import Tensor

from obbflow.config import LossSection, ModelSection
from obbflow.models.backbones import build_backbone
from obbflow.models.fpn import FPN
from obbflow.models.one_stage import OneStageDetector
from obbflow.models.retina_head import RetinaHead


class RotatedRetinaNet(OneStageDetector):
    """Backbone + FPN, and at every anchor of P3 .. P7 a focal class loss and five box deltas.

    Args:
        config: Section ``model``.
        num_classes: C, background not counted.
        loss: Section ``loss``; all defaults when absent.
        class_weights: (C + 1,) weights of the classification loss, background first.
        size_divisor: Batches are padded to multiples of it.

    Source:
        Lin et al., Focal loss for dense object detection, ICCV 2017; rotated as in MMRotate.
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
        fpn = FPN(backbone.out_channels, config.fpn_channels, start=1, extra="conv_on_input")
        head = RetinaHead(
            config,
            num_classes,
            loss=loss or LossSection(),
            class_weights=class_weights,
            strides=fpn.strides,
        )
        super().__init__(backbone, fpn, head, size_divisor=size_divisor)
