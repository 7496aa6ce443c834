"""Oriented R-CNN: a two-stage detector of rotated boxes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from obbflow.config import LossSection, ModelSection
from obbflow.models.backbone import ResNet
from obbflow.models.batching import pad_batch
from obbflow.models.fpn import FPN
from obbflow.models.roi_heads import RotatedRoIHead, SampledRegions
from obbflow.models.rpn import OrientedRPN
from obbflow.structures import Detections, Target


class OrientedRCNN(nn.Module):
    """ResNet + FPN, oriented proposals by midpoint offsets, rotated RoIAlign, rotated box head.

    After a training step ``diagnostics`` holds counts of that step; they are no losses.

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
        super().__init__()
        self.size_divisor = size_divisor
        self.backbone = ResNet(
            config.backbone,
            width=config.backbone_width,
            trainable_layers=config.trainable_layers,
            freeze_batch_norm=config.freeze_batch_norm,
        )
        self.fpn = FPN(self.backbone.out_channels, config.fpn_channels)
        self.rpn = OrientedRPN(config)
        self.roi_head = RotatedRoIHead(
            config, num_classes, loss=loss or LossSection(), class_weights=class_weights
        )
        self.diagnostics: dict[str, Tensor] = {}

    def forward(
        self, images: Sequence[Tensor], targets: Sequence[Target] | None = None
    ) -> dict[str, Tensor] | list[Detections]:
        """Return the losses of a batch in training mode, its detections in evaluation mode.

        Args:
            images: (3, H, W) float each, normalised; sizes may differ.
            targets: One an image, only in training mode.

        Returns:
            Losses (scalars) by name, or for each image its detections in its own px, best first.

        Raises:
            ValueError: If training gets no targets, or not one an image.
        """
        layout = _is_channels_last(self.backbone)
        batch, sizes = pad_batch(images, self.size_divisor, channels_last=layout)
        levels = self.fpn(self.backbone(batch))
        proposed = self.rpn(levels)
        proposals = self.rpn.propose(proposed)
        if not self.training:
            return self.roi_head.detect(levels, proposals, sizes)
        if targets is None or len(targets) != len(images):
            raise ValueError("training needs one target an image")
        objectness_loss, rpn_box_loss = self.rpn.losses(proposed, targets, sizes)
        samples = [
            self.roi_head.sample_regions(boxes, target)
            for boxes, target in zip(proposals, targets, strict=True)
        ]
        class_loss, box_loss = self.roi_head.losses(levels, samples)
        self.diagnostics = _diagnose(samples, targets)
        return {
            "loss_objectness": objectness_loss,
            "loss_rpn_box_reg": rpn_box_loss,
            "loss_classifier": class_loss,
            "loss_box_reg": box_loss,
        }


def _is_channels_last(backbone: nn.Module) -> bool:
    """Return whether the weights lie in the channels-last layout, which the images then share."""
    weight = next(each for each in backbone.parameters() if each.ndim == 4)
    return weight.is_contiguous(memory_format=torch.channels_last)


def _diagnose(samples: Sequence[SampledRegions], targets: Sequence[Target]) -> dict[str, Tensor]:
    """Return what the region head learnt from: sampled foreground, background, matched objects."""
    labels = torch.cat([piece.labels for piece in samples])
    foreground = (labels > 0).sum()
    matched = sum(len(torch.unique(piece.matched, dim=0)) for piece in samples)
    objects = sum(len(target["rboxes"]) for target in targets)
    return {
        "roi_sampled_fg": foreground.float(),
        "roi_sampled_bg": (len(labels) - foreground).float(),
        "roi_matched_gt": torch.tensor(float(matched)),
        "roi_match_rate": torch.tensor(matched / objects if objects else float("nan")),
    }
