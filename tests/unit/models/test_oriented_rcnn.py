import math

import pytest
import torch

from detectors import (
    BOXES,
    NARROW,
    TWO_STAGE_LOSSES,
    assert_healthy_step,
    detector,
    images,
    losses_of,
    target,
)
from obbflow.models.matching import BACKGROUND, IGNORED
from obbflow.ops import box_iou_rotated

LOSSES = TWO_STAGE_LOSSES


def test_a_step_without_any_proposal_or_object_is_healthy():
    model = detector(rpn_min_size=1e6)
    losses = assert_healthy_step(model, images((96, 96)), [target(())])
    assert losses["loss_classifier"] == 0
    assert [len(found["scores"]) for found in model.eval()(images((96, 96)))] == [0]


def test_images_of_different_sizes_share_a_batch():
    model = detector()
    pictures = images((96, 64), (70, 130))
    assert_healthy_step(model, pictures, [target(), target()])
    for picture, found in zip(pictures, model.eval()(pictures), strict=True):
        assert len(found["scores"]) > 0
        height, width = picture.shape[1:]
        assert (found["rboxes"][:, :2] >= 0).all()
        assert (found["rboxes"][:, 0] <= width - 1).all()
        assert (found["rboxes"][:, 1] <= height - 1).all()


def test_detections_are_le90_whatever_the_coder_regresses():
    model = detector(roi_edge_swap=False)
    torch.nn.init.normal_(model.roi_head.regressor.bias, std=2.0)  # sides and turns of any size
    with torch.no_grad():
        model.roi_head.regressor.bias[2:] = torch.tensor([-2.0, 2.0, 1.3])
    rboxes = model.eval()(images((96, 96)))[0]["rboxes"]
    assert len(rboxes) > 0
    assert (rboxes[:, 2] >= rboxes[:, 3]).all()
    assert ((rboxes[:, 4] >= -math.pi / 2) & (rboxes[:, 4] < math.pi / 2)).all()


@pytest.mark.parametrize("channels_last", [True, False])
def test_images_take_the_memory_layout_of_the_weights(channels_last):
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = detector().to(memory_format=layout).eval()
    seen = []
    model.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(images((64, 96)))
    assert seen[0].is_contiguous(memory_format=layout)


def test_the_most_certain_detections_stay():
    some = detector(max_detections_per_image=5).eval()(images((96, 96)))[0]
    every = detector(max_detections_per_image=1000).eval()(images((96, 96)))[0]
    assert len(some["scores"]) == 5 < len(every["scores"])
    assert torch.equal(some["scores"], every["scores"][:5])


def test_class_agnostic_suppression_keeps_one_class_a_place():
    found = detector(nms_class_agnostic=True).eval()(images((96, 96)))[0]
    overlaps = box_iou_rotated(found["rboxes"], found["rboxes"]).fill_diagonal_(0)
    assert (overlaps <= NARROW.final_nms_iou_threshold + 1e-6).all()


def test_a_region_inside_an_ignore_region_is_no_background():
    model = detector(roi_batch_size_per_image=100, add_gt_as_proposals=False)
    proposals = torch.tensor(
        [[30.0, 40.0, 38.0, 20.0, 0.4], [80.0, 20.0, 12.0, 6.0, 0.2], [20.0, 80.0, 12.0, 6.0, 0.2]]
    )
    region = ((80.0, 20.0, 30.0, 30.0, 0.7),)
    plain = model.roi_head.sample_regions(proposals, target(BOXES[:1]))
    ignoring = model.roi_head.sample_regions(proposals, target(BOXES[:1], ignore=region))
    assert plain.labels.tolist() == [1, 0, 0]
    assert ignoring.labels.tolist() == [1, 0]
    assert torch.equal(ignoring.rboxes, proposals[[0, 2]])
    assert torch.equal(ignoring.matched, target()["rboxes"][:1])


def test_anchors_inside_an_ignore_region_are_not_judged():
    model = detector(rpn_allowed_border=None).eval()
    with torch.no_grad():
        output = model.rpn(model.fpn(model.backbone(images((96, 96))[0][None])))
    region = target((), ignore=((48.0, 48.0, 70.0, 70.0, 0.0),))
    plain = model.rpn._match(output, target(()), (96, 96))
    ignoring = model.rpn._match(output, region, (96, 96))
    assert (plain == BACKGROUND).all()
    small = (output.anchors[:, 2:] - output.anchors[:, :2]).amax(dim=1) < 50
    centre = (output.anchors[:, :2] + output.anchors[:, 2:]) / 2
    inside = small & ((centre - 48).abs().amax(dim=1) < 10)
    outside = small & ((centre - 48).abs().amax(dim=1) > 60)
    assert inside.any()
    assert (ignoring[inside] == IGNORED).all()
    assert (ignoring[outside] == BACKGROUND).all()


def test_ignore_regions_change_the_losses_of_both_stages():
    model, pictures = detector(), images((96, 96))
    plain = losses_of(model, pictures, [target()])
    region = ((48.0, 48.0, 90.0, 40.0, 0.0),)
    ignoring = losses_of(model, pictures, [target(ignore=region)])
    nothing = losses_of(model, pictures, [target(ignore=())])
    assert plain["loss_objectness"] != ignoring["loss_objectness"]
    assert plain["loss_classifier"] != ignoring["loss_classifier"]
    assert all(torch.equal(plain[name], nothing[name]) for name in LOSSES)


def test_padding_is_not_learnt_as_background():
    model = detector(rpn_allowed_border=None).eval()
    batch = torch.zeros(1, 3, 96, 96)
    with torch.no_grad():
        output = model.rpn(model.fpn(model.backbone(batch)))
    judged = model.rpn._match(output, target(()), (40, 64)) != IGNORED
    centre = (output.anchors[:, :2] + output.anchors[:, 2:]) / 2
    assert torch.equal(judged, (centre[:, 0] < 64) & (centre[:, 1] < 40))


def test_diagnostics_count_what_the_region_head_learnt_from():
    model = detector()
    losses_of(model, images((96, 96), (96, 96)), [target(), target(())])
    counts = {name: value.item() for name, value in model.diagnostics.items()}
    assert counts["roi_matched_gt"] == 2  # each object is among the proposals itself
    assert counts["roi_match_rate"] == 1
    assert counts["roi_sampled_fg"] >= 2
    assert counts["roi_sampled_fg"] + counts["roi_sampled_bg"] == 2 * 32
