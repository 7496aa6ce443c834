"""Rotated Faster R-CNN: horizontal proposals, of which a head makes rotated boxes."""

from torch import Tensor

from obbflow.config import LossSection, ModelSection
from obbflow.models.backbones import build_backbone
from obbflow.models.fpn import FPN
from obbflow.models.roi_heads import RotatedRoIHead
from obbflow.models.rpn import HorizontalRPN
from obbflow.models.two_stage import TwoStageDetector


class RotatedFasterRCNN(TwoStageDetector):
    """Backbone + FPN, horizontal proposals, RoIAlign, a head that adds the angle.

    Args:
        config: Section ``model``.
        num_classes: C, background not counted.
        loss: Section ``loss``; all defaults when absent.
        class_weights: (C + 1,) weights of the classification loss, background first.
        size_divisor: Batches are padded to multiples of it.

    Source:
        Ren et al., Faster R-CNN, NeurIPS 2015, with a fifth delta for the angle: the baseline
        "Faster R-CNN OBB" of Xia et al., DOTA, CVPR 2018, as MMRotate has it.
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
            HorizontalRPN(config),
            RotatedRoIHead(
                config,
                num_classes,
                loss=loss or LossSection(),
                class_weights=class_weights,
                is_horizontal=True,
            ),
            size_divisor=size_divisor,
        )
