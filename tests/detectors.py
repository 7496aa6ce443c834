"""Narrow detectors of every type, and what each owes to a training loop."""

import torch

from obbflow.config import ModelSection
from obbflow.models import build_model

ONE_STAGE_LOSSES = {"loss_classifier", "loss_box_reg"}
TWO_STAGE_LOSSES = ONE_STAGE_LOSSES | {"loss_objectness", "loss_rpn_box_reg"}
NARROW = ModelSection(
    backbone="resnet18",
    pretrained_backbone=False,
    backbone_width=0.125,
    fpn_channels=32,
    roi_fc_channels=32,
    anchor_scales=(8.0,),
    rpn_pre_nms_top_n=200,
    rpn_post_nms_top_n=100,
    rpn_batch_size_per_image=64,
    roi_batch_size_per_image=32,
    inference_pre_nms_score_threshold=0.01,
)
BOXES = ((30.0, 40.0, 40.0, 20.0, 0.4), (70.0, 60.0, 34.0, 30.0, -1.2))


def detector(model_type="oriented_rcnn", *, class_weights=None, **changes):
    torch.manual_seed(0)
    section = ModelSection.model_validate({**NARROW.model_dump(), **changes})
    return build_model(section, 3, model_type=model_type, class_weights=class_weights)


def images(*sizes):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, height, width, generator=generator) for height, width in sizes]


def target(boxes=BOXES, ignore=None):
    found = {
        "rboxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 5),
        "labels": torch.arange(len(boxes)) % 3 + 1,
    }
    if ignore is not None:
        found["rboxes_ignore"] = torch.tensor(ignore, dtype=torch.float32).reshape(-1, 5)
        found["labels_ignore"] = torch.ones(len(found["rboxes_ignore"]), dtype=torch.int64)
    return found


def crowd(count, side, seed=2):
    """Return a target of small objects at random places of a square image."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.rand(count, 2, generator=generator) * side
    sides = 3 + torch.rand(count, 2, generator=generator).sort(dim=1, descending=True).values * 9
    angle = torch.rand(count, 1, generator=generator) * 3 - 1.5
    rboxes = torch.cat([centre, sides, angle], dim=1)
    return {"rboxes": rboxes, "labels": torch.ones(count, dtype=torch.int64)}


def losses_of(model, pictures, targets, seed=0):
    torch.manual_seed(seed)
    return model.train()(pictures, targets)


def assert_healthy_step(model, pictures, targets):
    """Losses are finite scalars, and every parameter that learns gets a finite gradient."""
    model.zero_grad(set_to_none=True)
    losses = losses_of(model, pictures, targets)
    assert all(loss.shape == () and loss.isfinite() for loss in losses.values())
    sum(losses.values()).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    return {name: loss.item() for name, loss in losses.items()}
