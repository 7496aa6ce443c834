"""Backbones: from images to the feature maps C2 .. C5, with torchvision's networks and names."""

from obbflow.config import ModelSection
from obbflow.models.backbones.base import Backbone
from obbflow.models.backbones.extracted import NETWORKS, ExtractedBackbone
from obbflow.models.backbones.resnet import RESNETS, ResNet

__all__ = ["BACKBONES", "Backbone", "build_backbone"]

BACKBONES = (*RESNETS, *NETWORKS)
"""Names for ``model.backbone``, as torchvision writes them."""


def build_backbone(config: ModelSection) -> Backbone:
    """Return the backbone that section ``model`` names, with random weights."""
    if config.backbone in RESNETS:
        return ResNet(
            config.backbone,
            width=config.backbone_width,
            trainable_layers=config.learning_layers,
            freeze_batch_norm=config.freeze_batch_norm,
        )
    return ExtractedBackbone(
        config.backbone,
        trainable_layers=config.learning_layers,
        freeze_batch_norm=config.freeze_batch_norm,
    )
