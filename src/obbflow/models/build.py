"""From the ``model`` section to a detector."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from obbflow.config import LossSection, ModelSection
from obbflow.models.detector import Detector
from obbflow.models.oriented_rcnn import OrientedRCNN
from obbflow.models.rotated_faster_rcnn import RotatedFasterRCNN
from obbflow.models.rotated_fcos import RotatedFCOS
from obbflow.models.rotated_retinanet import RotatedRetinaNet
from obbflow.models.weights import load_backbone_weights

DETECTORS: dict[str, Callable[..., Detector]] = {
    "oriented_rcnn": OrientedRCNN,
    "rotated_faster_rcnn": RotatedFasterRCNN,
    "rotated_retinanet": RotatedRetinaNet,
    "rotated_fcos": RotatedFCOS,
}


def build_model(
    model_config: ModelSection | Mapping[str, Any],
    num_classes: int,
    *,
    model_type: str = "oriented_rcnn",
    loss: LossSection | None = None,
    class_weights: Tensor | None = None,
    size_divisor: int = 32,
) -> nn.Module:
    """Return a detector with random weights, its backbone pretrained where the section says so.

    Args:
        model_config: Section ``model``, or its keys.
        num_classes: C, background not counted.
        model_type: A key of ``DETECTORS``.
        loss: Section ``loss``.
        class_weights: (C + 1,) weights of the classification loss, background first.
        size_divisor: Batches are padded to multiples of it.

    Raises:
        ValueError: If ``model_type`` is unknown or ``num_classes`` is below 1.
        CheckpointError: If the backbone's weights are not on this machine, or do not fit.
    """
    if model_type not in DETECTORS:
        raise ValueError(f"model_type must be one of {', '.join(DETECTORS)}, got {model_type!r}")
    if num_classes < 1:
        raise ValueError(f"num_classes counts foreground classes, at least 1, got {num_classes}")
    config = ModelSection.model_validate(model_config)
    model = DETECTORS[model_type](
        config,
        num_classes,
        loss=loss,
        class_weights=class_weights,
        size_divisor=size_divisor,
    )
    if config.pretrained_backbone:
        load_backbone_weights(model.backbone, config.backbone, config.backbone_weights)
    return model
