"""What every detector owes: healthy losses, gradients and detections, whatever is in the images."""

import math

import pytest
import torch

from detectors import (
    BOXES,
    NARROW,
    ONE_STAGE_LOSSES,
    TWO_STAGE_LOSSES,
    assert_healthy_step,
    crowd,
    detector,
    images,
    losses_of,
    target,
)
from obbflow.models.build import DETECTORS
from obbflow.ops import box_iou_rotated

LOSSES = {
    "oriented_rcnn": TWO_STAGE_LOSSES,
    "rotated_faster_rcnn": TWO_STAGE_LOSSES,
    "rotated_retinanet": ONE_STAGE_LOSSES,
    "rotated_fcos": ONE_STAGE_LOSSES | {"loss_centerness"},
}
TARGETS = {
    "one empty": [target(), target(())],
    "all empty": [target(()), target(())],
    "only ignore regions": [target((), ignore=BOXES), target((), ignore=())],
    "dots": [
        target(((50.5, 50.5, 1.0, 1.0, 0.0),)),
        target(((200.0, 20.0, 0.01, 0.01, 0.3),)),
    ],
    "huge": [
        target(((48.0, 48.0, 900.0, 500.0, 0.7),)),
        target(((48.0, 48.0, 5e4, 3.0, -0.2),)),
    ],
    "outside and doubled": [target(((-40.0, 20.0, 60.0, 20.0, 0.1),)), target(BOXES * 2)],
}


@pytest.fixture(params=list(DETECTORS))
def kind(request):
    return request.param


def test_the_table_above_names_every_detector():
    assert set(LOSSES) == set(DETECTORS)


@pytest.mark.parametrize("case", list(TARGETS))
def test_losses_and_gradients_are_finite_for(kind, case):
    losses = assert_healthy_step(detector(kind), images((96, 96), (96, 96)), TARGETS[case])
    assert set(losses) == LOSSES[kind]
    assert losses["loss_classifier"] > 0
    if not any(len(each["rboxes"]) for each in TARGETS[case]):
        assert losses["loss_box_reg"] == 0


def test_images_of_different_sizes_share_a_batch(kind):
    model, pictures = detector(kind), images((96, 64), (70, 130))
    assert_healthy_step(model, pictures, [target(), target()])
    together = model.eval()(pictures)
    assert len(together) == 2


def test_detections_are_sorted_le90_boxes_of_known_classes(kind):
    found = detector(kind, inference_pre_nms_score_threshold=0.001).eval()(images((96, 96)))[0]
    count = len(found["scores"])
    assert 0 < count <= NARROW.max_detections_per_image
    assert found["rboxes"].shape == (count, 5)
    assert found["labels"].dtype == torch.int64
    assert set(found["labels"].tolist()) <= {1, 2, 3}
    assert (found["scores"].diff() <= 0).all()
    assert (found["rboxes"][:, 2] >= found["rboxes"][:, 3]).all()
    assert (found["rboxes"][:, 4].abs() <= math.pi / 2).all()
    for label in (1, 2, 3):
        boxes = found["rboxes"][found["labels"] == label]
        overlaps = box_iou_rotated(boxes, boxes).fill_diagonal_(0)
        assert (overlaps <= NARROW.final_nms_iou_threshold + 1e-6).all()


def test_no_detection_reaches_a_score_of_one(kind):
    found = detector(kind, inference_pre_nms_score_threshold=1.0).eval()(images((96, 96)))[0]
    assert found["rboxes"].shape == (0, 5)
    assert found["scores"].shape == found["labels"].shape == (0,)


def test_the_same_seed_gives_the_same_losses_bit_by_bit(kind):
    model, pictures, targets = detector(kind), images((96, 96), (64, 96)), [target(), target(())]
    one, same = (losses_of(model, pictures, targets, 3) for _ in range(2))
    assert all(torch.equal(one[name], same[name]) for name in LOSSES[kind])


def test_ignore_regions_change_the_class_loss_and_empty_ones_do_not(kind):
    model, pictures = detector(kind), images((96, 96))
    region = ((48.0, 48.0, 90.0, 60.0, 0.0),)
    plain, ignoring, nothing = (
        losses_of(model, pictures, [target(ignore=ignore)]) for ignore in (None, region, ())
    )
    assert plain["loss_classifier"] != ignoring["loss_classifier"]
    assert all(torch.equal(plain[name], nothing[name]) for name in LOSSES[kind])


def test_two_thousand_objects_in_a_tile_are_learnt_from(kind):
    assert_healthy_step(detector(kind), images((256, 256)), [crowd(2000, 256)])


def test_diagnostics_are_no_losses(kind):
    model = detector(kind)
    losses = losses_of(model, images((96, 96)), [target()])
    counts = {name: value.item() for name, value in model.diagnostics.items()}
    assert not set(counts) & set(losses)
    positive = [value for name, value in counts.items() if name.endswith("num_pos")]
    assert positive
    assert positive[0] > 0


def test_class_weights_act_on_the_classification_loss_alone(kind):
    weights = torch.full((4,), 3.0)
    pictures, targets = images((96, 96)), [target()]
    plain = losses_of(detector(kind), pictures, targets)
    weighted = losses_of(detector(kind, class_weights=weights), pictures, targets)
    ratio = {name: (weighted[name] / plain[name]).item() for name in LOSSES[kind]}
    assert ratio.pop("loss_classifier") == pytest.approx(3, rel=1e-5)
    assert ratio == dict.fromkeys(ratio, 1.0)


def test_a_narrower_final_suppression_is_scheduled(kind):
    model = detector(
        kind,
        inference_pre_nms_score_threshold=0.001,
        max_detections_per_image=2000,
        final_nms_iou_threshold=0.9,
        final_nms_iou_threshold_schedule_epochs=(2,),
        final_nms_iou_threshold_schedule_values=(0.1,),
    ).eval()
    counts = []
    for epoch in (1, 2):
        model.set_epoch(epoch)
        counts.append(len(model(images((96, 96)))[0]["scores"]))
    assert counts[0] > counts[1] > 0


@pytest.mark.parametrize("targets", [None, [], [target()] * 2], ids=["none", "too few", "too many"])
def test_training_needs_one_target_an_image(kind, targets):
    with pytest.raises(ValueError, match="one target an image"):
        detector(kind).train()(images((96, 96)), targets)
