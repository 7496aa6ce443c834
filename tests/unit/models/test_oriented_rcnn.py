import math

import pytest
import torch

from obbflow.config import ModelSection
from obbflow.models import build_model
from obbflow.models.matching import BACKGROUND, IGNORED
from obbflow.ops import box_iou_rotated

LOSSES = {"loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg"}
NARROW = ModelSection(
    backbone="resnet18",
    pretrained_backbone=False,
    backbone_width=0.125,
    fpn_channels=16,
    roi_fc_channels=32,
    anchor_scales=(8.0,),
    rpn_pre_nms_top_n=200,
    rpn_post_nms_top_n=100,
    rpn_batch_size_per_image=64,
    roi_batch_size_per_image=32,
    inference_pre_nms_score_threshold=0.01,
)
BOXES = ((30.0, 40.0, 40.0, 20.0, 0.4), (70.0, 60.0, 34.0, 30.0, -1.2))


def detector(*, class_weights=None, **changes):
    torch.manual_seed(0)
    section = NARROW.model_copy(update=changes)
    return build_model(section, 3, class_weights=class_weights)


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


def losses_of(model, pictures, targets, seed=0):
    torch.manual_seed(seed)
    return model.train()(pictures, targets)


def assert_healthy_step(model, pictures, targets):
    """Losses are finite scalars, and every parameter that learns gets a finite gradient."""
    model.zero_grad(set_to_none=True)
    losses = losses_of(model, pictures, targets)
    assert set(losses) == LOSSES
    assert all(loss.shape == () and loss.isfinite() for loss in losses.values())
    sum(losses.values()).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    return {name: loss.item() for name, loss in losses.items()}


@pytest.mark.parametrize(
    "targets",
    [
        [target(), target(())],
        [target(()), target(())],
        [target((), ignore=BOXES), target((), ignore=())],
        [target(((50.5, 50.5, 1.0, 1.0, 0.0),)), target(((200.0, 20.0, 0.01, 0.01, 0.3),))],
        [target(((48.0, 48.0, 900.0, 500.0, 0.7),)), target(((48.0, 48.0, 5e4, 3.0, -0.2),))],
        [target(((-40.0, 20.0, 60.0, 20.0, 0.1),)), target(BOXES * 2)],
    ],
    ids=["one empty", "all empty", "only ignore regions", "dots", "huge", "outside and doubled"],
)
def test_losses_and_gradients_are_finite_for(targets):
    losses = assert_healthy_step(detector(), images((96, 96), (96, 96)), targets)
    if not any(len(each["rboxes"]) for each in targets):
        assert losses["loss_rpn_box_reg"] == losses["loss_box_reg"] == 0
        assert losses["loss_objectness"] > 0


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


def test_detections_are_sorted_le90_boxes_of_known_classes():
    found = detector().eval()(images((96, 96)))[0]
    count = len(found["scores"])
    assert 0 < count <= NARROW.max_detections_per_image
    assert found["rboxes"].shape == (count, 5)
    assert found["labels"].dtype == torch.int64
    assert set(found["labels"].tolist()) <= {1, 2, 3}
    assert (found["scores"].diff() <= 0).all()
    assert (found["scores"] > 0.01).all()
    assert (found["rboxes"][:, 2] >= found["rboxes"][:, 3]).all()
    assert (found["rboxes"][:, 4].abs() <= math.pi / 2).all()
    for label in (1, 2, 3):
        boxes = found["rboxes"][found["labels"] == label]
        overlaps = box_iou_rotated(boxes, boxes).fill_diagonal_(0)
        assert (overlaps <= NARROW.final_nms_iou_threshold + 1e-6).all()


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


def test_no_detection_reaches_a_score_of_one():
    found = detector(inference_pre_nms_score_threshold=1.0).eval()(images((96, 96)))[0]
    assert found["rboxes"].shape == (0, 5)
    assert found["scores"].shape == found["labels"].shape == (0,)


def test_the_most_certain_detections_stay():
    some = detector(max_detections_per_image=5).eval()(images((96, 96)))[0]
    every = detector(max_detections_per_image=1000).eval()(images((96, 96)))[0]
    assert len(some["scores"]) == 5 < len(every["scores"])
    assert torch.equal(some["scores"], every["scores"][:5])


def test_class_agnostic_suppression_keeps_one_class_a_place():
    found = detector(nms_class_agnostic=True).eval()(images((96, 96)))[0]
    overlaps = box_iou_rotated(found["rboxes"], found["rboxes"]).fill_diagonal_(0)
    assert (overlaps <= NARROW.final_nms_iou_threshold + 1e-6).all()


def test_the_same_seed_gives_the_same_losses_bit_by_bit():
    model, pictures, targets = detector(), images((96, 96), (64, 96)), [target(), target(())]
    one, same, other = (losses_of(model, pictures, targets, seed) for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in LOSSES)
    assert any(not torch.equal(one[name], other[name]) for name in LOSSES)


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


def test_two_thousand_objects_in_a_tile_are_learnt_from():
    generator = torch.Generator().manual_seed(2)
    centre = torch.rand(2000, 2, generator=generator) * 256
    side = 3 + torch.rand(2000, 2, generator=generator).sort(dim=1, descending=True).values * 9
    angle = torch.rand(2000, 1, generator=generator) * 3 - 1.5
    crowd = {"rboxes": torch.cat([centre, side, angle], dim=1), "labels": torch.ones(2000).long()}
    model = detector()
    assert_healthy_step(model, images((256, 256)), [crowd])
    assert model.diagnostics["roi_sampled_fg"] == 0.25 * NARROW.roi_batch_size_per_image


def test_diagnostics_count_what_the_region_head_learnt_from():
    model = detector()
    losses_of(model, images((96, 96), (96, 96)), [target(), target(())])
    counts = {name: value.item() for name, value in model.diagnostics.items()}
    assert counts["roi_matched_gt"] == 2  # each object is among the proposals itself
    assert counts["roi_match_rate"] == 1
    assert counts["roi_sampled_fg"] >= 2
    assert counts["roi_sampled_fg"] + counts["roi_sampled_bg"] == 2 * 32


def test_class_weights_act_on_the_classification_loss_alone():
    weights = torch.full((4,), 3.0)
    pictures, targets = images((96, 96)), [target()]
    plain = losses_of(detector(), pictures, targets)
    weighted = losses_of(detector(class_weights=weights), pictures, targets)
    ratio = {name: (weighted[name] / plain[name]).item() for name in LOSSES}
    assert ratio.pop("loss_classifier") == pytest.approx(3, rel=1e-5)
    assert set(ratio.values()) == {1.0}


@pytest.mark.parametrize("targets", [None, [], [target()] * 2], ids=["none", "too few", "too many"])
def test_training_needs_one_target_an_image(targets):
    with pytest.raises(ValueError, match="one target an image"):
        detector().train()(images((96, 96)), targets)
