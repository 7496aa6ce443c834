"""Narrow one-stage detectors learn eight drawn images by heart: matching, losses, NMS agree."""

import pytest
import torch

from obbflow.config import LossSection, ModelSection
from obbflow.models import build_model
from obbflow.ops import box_iou_rotated
from overfit import SIDES, average_precision, learn, scene

NARROW = {
    "backbone": "resnet18",
    "pretrained_backbone": False,
    "backbone_width": 0.25,
    "freeze_batch_norm": False,
    "fpn_channels": 32,
    "final_nms_iou_threshold": 0.3,
}
# Level anchors overlap a thin object at 45 degrees little: RetinaNet has few anchors to learn from.
RETINANET = {
    "use_hbb_for_matching": False,
    "box_reg_loss_type": "riou",
    "box_reg_weight": 2.0,
}


@pytest.mark.parametrize(
    ("kind", "settings", "steps", "rate"),
    [("rotated_retinanet", RETINANET, 240, 5e-3), ("rotated_fcos", {}, 100, 3e-3)],
    ids=["retinanet", "fcos"],
)
def test_every_object_is_found_and_nothing_else(kind, settings, steps, rate):
    scenes = [scene(seed) for seed in range(8)]
    torch.manual_seed(0)
    section = ModelSection.model_validate({**NARROW, **settings})
    loss = LossSection(loss_type="cross_entropy")
    model = build_model(section, len(SIDES), model_type=kind, loss=loss)
    learn(model, scenes, steps, batch=4, rate=rate)
    images, targets = [list(part) for part in zip(*scenes, strict=True)]
    with torch.no_grad():
        found = model(images)
    for label in SIDES:
        assert average_precision(found, targets, label) >= 0.9  # measured: 1.0
    # Boxes of these shapes that are level instead of turned by 45 degrees reach 0.3 to 0.5.
    best = [
        box_iou_rotated(target["rboxes"], detections["rboxes"]).amax(dim=1)
        for detections, target in zip(found, targets, strict=True)
    ]
    assert torch.cat(best).mean() > 0.8
