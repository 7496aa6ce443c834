"""What is particular to Rotated RetinaNet and Rotated FCOS; test_detectors.py has the rest."""

import pytest
import torch
from torch import nn

from detectors import BOXES, detector, images, losses_of, target
from obbflow.config import LossSection, ModelSection
from obbflow.models import build_model
from obbflow.models.fpn import FPN
from obbflow.models.matching import BACKGROUND

KINDS = ["rotated_retinanet", "rotated_fcos"]
BOX_LOSSES = ["smooth_l1", "l1", "riou", "kfiou", "probiou", "gwd", "kld"]


def outputs(model, pictures):
    with torch.no_grad():
        return model.head(model.fpn(model.backbone(torch.stack(pictures))))


@pytest.mark.parametrize(
    ("extra", "p6_of_c5", "p7_rectifies"),
    [("conv_on_input", True, False), ("conv_on_output", False, True)],
)
def test_levels_above_p5_come_from_where_the_pyramid_says(extra, p6_of_c5, p7_rectifies):
    torch.manual_seed(0)
    fpn = FPN([4, 5, 6, 7], 8, start=1, extra=extra)
    levels = [torch.randn(1, 4 + n, 64 >> n, 48 >> n) for n in range(4)]
    found = fpn(levels)
    assert fpn.strides == (8, 16, 32, 64, 128)
    assert [tuple(each.shape) for each in found] == [
        (1, 8, 32 >> n, 24 >> n) if n < 4 else (1, 8, 2, 2) for n in range(5)
    ]
    blocks = fpn.pyramid.extra_blocks
    p6 = blocks.p6(levels[-1] if p6_of_c5 else found[2])
    p7 = blocks.p7(nn.functional.relu(p6) if p7_rectifies else p6)
    torch.testing.assert_close(found[3], p6)
    torch.testing.assert_close(found[4], p7)
    assert not torch.equal(blocks.p7(nn.functional.relu(p6)), blocks.p7(p6))


@pytest.mark.parametrize("kind", KINDS)
def test_classes_are_rare_before_training(kind):
    scores = outputs(detector(kind).eval(), images((96, 96))).logits.sigmoid()
    assert scores.mean().item() == pytest.approx(0.01, rel=0.1)


def test_anchors_of_retinanet_follow_the_configuration():
    model = detector(
        "rotated_retinanet",
        anchor_octave_base_scale=3.0,
        anchor_scales_per_octave=2,
        anchor_ratios=(2.0, 1.0),
    )
    output = outputs(model.eval(), images((64, 64)))
    assert len(output.priors) == 4 * (64 + 16 + 4 + 1 + 1)
    cell = output.priors[:4]
    area = (cell[:, 2] * cell[:, 3]).sqrt() / 8
    torch.testing.assert_close(area, torch.tensor([3.0, 3 * 2**0.5] * 2))
    torch.testing.assert_close(cell[:, 2] / cell[:, 3], torch.tensor([1.0, 1, 2, 2]))


@pytest.mark.parametrize("use_hbb", [True, False])
def test_anchors_are_matched_by_enclosing_or_by_rotated_boxes(use_hbb):
    model = detector("rotated_retinanet", use_hbb_for_matching=use_hbb)
    output = outputs(model.eval(), images((96, 96)))
    # Its enclosing box is a square of 50 px, as is an anchor; itself it covers a third of it.
    diagonal = target(((48.0, 48.0, 60.0, 11.0, 0.7853981),))
    matches = model.head.match(output, diagonal)
    centre, sides = output.priors[:, :2], output.priors[:, 2:4]
    is_square = (sides - 50.8).abs().amax(dim=1) < 0.1
    central = is_square & ((centre - 48).abs().amax(dim=1) < 1)
    assert central.sum() == 1
    # The one that overlaps the object most is its own whatever the overlap.
    assert ((matches[central] >= 0) == use_hbb).all()
    assert (matches >= 0).any()


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_not_learnt_as_background(kind):
    model = detector(kind).train()
    output = outputs(model, images((96, 96)))
    seen = output._replace(logits=output.logits.clone().requires_grad_())
    model.head.losses(seen, [target(())], [(40, 64)])["loss_classifier"].backward()
    learns = (seen.logits.grad[0] != 0).any(dim=1)
    corner = output.priors[:, :2]  # the upper left one of the cell, about which anchors lie
    if kind == "rotated_fcos":  # points lie in the middle
        half = torch.tensor([[grid.stride / 2] for grid in output.grids])
        corner = corner - half.repeat_interleave(torch.tensor(output.level_sizes), dim=0)
    shown = (corner < torch.tensor([63.9, 39.9])).all(dim=1)
    assert torch.equal(learns, shown)
    assert model.head.diagnostics["prior_num_bg"] == shown.sum()
    assert model.head.diagnostics["prior_num_ignore"] == (~shown).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_in_an_ignore_region_is_learnt_and_its_surroundings_are_not(kind):
    model = detector(kind)
    output = outputs(model.eval(), images((96, 96)))
    plain = model.head.match(output, target(BOXES[:1]))
    region = ((48.0, 48.0, 96.0, 96.0, 0.0),)
    ignoring = model.head.match(output, target(BOXES[:1], ignore=region))
    assert torch.equal(ignoring >= 0, plain >= 0)
    assert (plain == BACKGROUND).sum() > 10
    small = torch.arange(len(plain)) < output.level_sizes[0]
    inside = small & ((output.priors[:, :2] - 48).abs().amax(dim=1) < 25)
    assert (ignoring[inside] != BACKGROUND).all()


@pytest.mark.parametrize("kind", KINDS)
def test_lookalikes_are_plain_background(kind):
    model, pictures = detector(kind), images((96, 96))
    alike = {**target(), "rboxes_lookalike": torch.tensor([[70.0, 20.0, 30.0, 12.0, 0.2]])}
    plain, with_them = (losses_of(model, pictures, [each]) for each in (target(), alike))
    assert all(torch.equal(plain[name], with_them[name]) for name in plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss_type", ["class_weighted", "focal_weighted", "cross_entropy", "none"])
def test_class_weights_go_by_the_label_of_a_prior(kind, loss_type):
    def class_loss(weights, targets):
        torch.manual_seed(0)
        section = ModelSection(
            backbone="resnet18", backbone_width=0.125, pretrained_backbone=False, fpn_channels=16
        )
        loss = LossSection(loss_type=loss_type)
        model = build_model(section, 3, model_type=kind, loss=loss, class_weights=weights)
        return losses_of(model, images((96, 96)), targets)["loss_classifier"].item()

    plain = class_loss(None, [target()])
    weighted = [class_loss(torch.eye(4)[label], [target()]) for label in range(4)]
    if loss_type in ("cross_entropy", "none"):
        assert weighted == [plain] * 4
    else:
        assert sum(weighted) == pytest.approx(plain, rel=1e-5)  # each prior has one label
        assert all(loss > 0 for loss in weighted[:3])  # background and two objects
        assert weighted[3] == 0  # no object of that class


@pytest.mark.parametrize("loss_type", BOX_LOSSES)
def test_box_losses_of_retinanet_are_least_for_true_boxes(loss_type):
    model = detector("rotated_retinanet", box_reg_loss_type=loss_type, box_reg_weight=3.0)
    output = outputs(model.train(), images((96, 96)))
    matches = model.head.match(output, target())
    prior = (matches >= 0).nonzero().squeeze(1)
    matched = target()["rboxes"][matches[prior]]
    codes = output.codes.clone()
    codes[0, prior] = model.head.coder.encode(output.priors[prior], matched)
    exact = output._replace(codes=codes)
    place = torch.zeros_like(prior), prior
    right, wrong = (
        model.head.box_losses(each, place, matched)["loss_box_reg"].item()
        for each in (exact, output)
    )
    least = 3 * 2 / 3 if loss_type == "kfiou" else 0.0  # KFIoU is 1/3 at best
    assert right == pytest.approx(least, abs=1e-3)
    assert wrong > least + 0.1
    model.head.config = model.head.config.model_copy(update={"box_reg_weight": 1.0})
    third = model.head.box_losses(output, place, matched)["loss_box_reg"].item()
    assert wrong == pytest.approx(3 * third)


@pytest.mark.parametrize("loss_type", ["riou", "probiou", "gwd", "kld"])
def test_box_losses_of_fcos_are_least_for_true_boxes(loss_type):
    model = detector("rotated_fcos", fcos_box_loss_type=loss_type)
    output = outputs(model.train(), images((96, 96)))
    matches = model.head.match(output, target())
    prior = (matches >= 0).nonzero().squeeze(1)
    matched = target()["rboxes"][matches[prior]]
    codes = output.codes.clone()
    codes[0, prior] = model.head.coder.encode(output.priors[prior], matched)
    place = torch.zeros_like(prior), prior
    right, wrong = (
        model.head.box_losses(output._replace(codes=each), place, matched)["loss_box_reg"].item()
        for each in (codes, output.codes)
    )
    assert right == pytest.approx(0, abs=1e-3)
    assert wrong > 0.3


def found_of(output, model, **changes):
    model.head.config = model.head.config.model_copy(
        update={"max_detections_per_image": 10_000, **changes}
    )
    return model.head.detect(output, [(96, 96)])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_pairs_of_each_level_go_on(kind):
    model = detector(kind, final_nms_iou_threshold=1.0).eval()
    output = outputs(model, images((96, 96)))
    noise = torch.randn(output.logits.shape, generator=torch.Generator().manual_seed(5))
    output = output._replace(logits=noise)
    found = found_of(
        output, model, inference_pre_nms_score_threshold=0.5, one_stage_pre_nms_top_n=7
    )
    expected = []
    for level in noise[0].sigmoid().split(output.level_sizes):
        expected += level.flatten()[level.flatten() > 0.5].sort(descending=True).values[:7].tolist()
    assert len(found["scores"]) == len(expected)
    if kind == "rotated_retinanet":
        assert found["scores"].tolist() == pytest.approx(sorted(expected, reverse=True))


def test_centerness_lowers_scores_after_the_threshold():
    model = detector("rotated_fcos", final_nms_iou_threshold=1.0).eval()
    output = outputs(model, images((96, 96)))
    found = {}
    for value in (20.0, -2.0):
        centerness = torch.full_like(output.centerness, value)
        found[value] = found_of(output._replace(centerness=centerness), model)["scores"]
    assert len(found[20.0]) == len(found[-2.0]) > 0
    factor = torch.tensor(-2.0).sigmoid()
    torch.testing.assert_close(found[-2.0], found[20.0] * factor, rtol=1e-5, atol=0)
    assert found[-2.0].max() < model.head.config.inference_pre_nms_score_threshold


def test_boxes_without_area_are_no_detections():
    model = detector("rotated_fcos").eval()
    output = outputs(model, images((96, 96)))
    flat = output.codes.clone()
    flat[..., [0, 2]] = 0  # left and right
    assert len(found_of(output, model)["scores"]) > 0
    assert len(found_of(output._replace(codes=flat), model)["scores"]) == 0


def test_every_distance_learns_from_the_start():
    model = detector("rotated_fcos").train()
    codes = outputs(model, images((96, 96))).codes
    assert (codes[..., :4] > 0).all()


def test_a_group_norm_fits_any_number_of_channels():
    model = detector("rotated_fcos", fpn_channels=20)
    norms = [each for each in model.head.modules() if isinstance(each, nn.GroupNorm)]
    assert len(norms) == 8
    assert {norm.num_groups for norm in norms} == {4}


def test_a_negative_threshold_above_the_positive_one_is_refused():
    with pytest.raises(ValueError, match="retinanet_positive_iou_threshold: must not be below"):
        ModelSection(retinanet_positive_iou_threshold=0.3)
