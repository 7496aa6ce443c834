"""Options of the region head: losses, schedules, memory, what it reports."""

import pytest
import torch
from pydantic import ValidationError

from detectors import BOXES, NARROW, detector, images, losses_of, target
from obbflow.config import ModelSection
from obbflow.models.coders import DeltaCoder
from obbflow.models.losses import kfiou_loss, probiou_loss, rotated_iou_loss, smooth_l1
from obbflow.models.roi_box_loss import RoIBoxLoss

CODER = DeltaCoder(stds=(0.1, 0.1, 0.2, 0.2, 0.1))
PRIORS = torch.tensor([[30.0, 40.0, 38.0, 22.0, 0.3], [72.0, 61.0, 30.0, 30.0, -1.0]])
TARGETS = torch.tensor(BOXES)
DELTAS = torch.tensor([[0.3, -0.2, 0.1, 0.5, 0.4], [-0.5, 0.1, 0.0, -0.3, -0.9]])


def box_loss(epoch=0, **changes):
    loss = RoIBoxLoss(ModelSection(**changes), CODER)
    loss.set_epoch(epoch)
    return loss(PRIORS, DELTAS, TARGETS)


def by_deltas(angle_weight=1.0):
    wanted = CODER.encode(PRIORS, TARGETS)
    return smooth_l1(DELTAS, wanted, 1.0) @ torch.tensor([1.0, 1.0, 1.0, 1.0, angle_weight])


def by_boxes(kind, **options):
    boxes, wanted = CODER.decode(PRIORS, DELTAS), CODER.encode(PRIORS, TARGETS)
    if kind == "riou":
        return rotated_iou_loss(boxes, TARGETS)
    if kind == "probiou":
        return probiou_loss(boxes, TARGETS, **options)
    return kfiou_loss(boxes, TARGETS, DELTAS, wanted, **options)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, by_deltas()),
        ({"roi_box_reg_angle_weight": 3.0}, by_deltas(3.0)),
        ({"roi_box_reg_iou_weight": 0.5}, by_deltas() + 0.5 * by_boxes("riou")),
        ({"roi_box_reg_main_loss_type": "iou"}, by_boxes("riou")),
        (
            {
                "roi_box_reg_main_loss_type": "iou",
                "roi_box_reg_iou_loss_type": "kfiou",
                "roi_box_reg_kfiou_fun": "ln",
                "roi_box_reg_smooth_l1_aux_weight": 0.25,
            },
            by_boxes("kfiou", fun="ln") + 0.25 * by_deltas(),
        ),
        (
            {
                "roi_box_reg_main_loss_type": "iou",
                "roi_box_reg_iou_loss_type": "probiou",
                "roi_box_reg_probiou_mode": "l2",
            },
            by_boxes("probiou", mode="l2"),
        ),
    ],
    ids=["deltas", "angle", "deltas and boxes", "boxes", "kfiou and deltas", "probiou"],
)
def test_the_box_loss_is_the_sum_that_the_section_names(changes, expected):
    assert box_loss(**changes).tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    assert expected.min() > 0.01


def test_weights_of_the_box_loss_follow_their_schedules():
    schedules = {
        "roi_box_reg_angle_schedule_epochs": (2, 4),
        "roi_box_reg_angle_schedule_values": (2.0, 0.0),
        "roi_box_reg_iou_schedule_epochs": (3,),
        "roi_box_reg_iou_schedule_values": (1.5,),
    }
    riou = by_boxes("riou")
    expected = {
        1: by_deltas(),
        2: by_deltas(2.0),
        3: by_deltas(2.0) + 1.5 * riou,
        4: by_deltas(0.0) + 1.5 * riou,
    }
    for epoch, losses in expected.items():
        assert box_loss(epoch, **schedules).tolist() == pytest.approx(losses.tolist()), epoch


def test_before_the_first_entry_of_a_schedule_the_base_value_holds():
    section = ModelSection(
        roi_box_reg_iou_weight=9.0,
        roi_box_reg_iou_schedule_epochs=(2, 5),
        roi_box_reg_iou_schedule_values=(1.0, 0.0),
    )
    reached = [section.at_epoch(epoch) for epoch in (0, 1, 2, 4, 5, 99)]
    assert [each.roi_box_reg_iou_weight for each in reached] == [9.0, 9.0, 1.0, 1.0, 0.0, 0.0]
    assert {each.roi_box_reg_iou_schedule_epochs for each in reached} == {None}
    assert ModelSection().at_epoch(7) == ModelSection()


@pytest.mark.parametrize(
    ("epochs", "values", "complaint"),
    [
        ((1, 2), (0.5,), "two lists of one length"),
        ((1,), None, "two lists of one length"),
        ((3, 2), (0.5, 0.4), "must rise"),
        ((2, 2), (0.5, 0.4), "must rise"),
    ],
)
def test_a_schedule_that_is_no_schedule_is_refused(epochs, values, complaint):
    with pytest.raises(ValidationError, match=f"final_nms_iou_threshold_schedule.*{complaint}"):
        ModelSection(
            final_nms_iou_threshold_schedule_epochs=epochs,
            final_nms_iou_threshold_schedule_values=values,
        )


def test_the_final_suppression_follows_its_schedule():
    model = detector(
        final_nms_iou_threshold=0.9,
        final_nms_iou_threshold_schedule_epochs=(3,),
        final_nms_iou_threshold_schedule_values=(0.1,),
        max_detections_per_image=1000,
    ).eval()
    plain = detector(final_nms_iou_threshold=0.1, max_detections_per_image=1000).eval()
    counts = []
    for epoch in (2, 3):
        model.set_epoch(epoch)
        counts.append(len(model(images((96, 96)))[0]["scores"]))
    assert counts[0] > counts[1] == len(plain(images((96, 96)))[0]["scores"])


def test_the_loss_can_be_divided_by_the_positive_regions_alone():
    pictures, targets = images((96, 96)), [target()]
    by_all = losses_of(detector(), pictures, targets)
    model = detector(roi_box_reg_norm="sampled_positive")
    by_positive = losses_of(model, pictures, targets)
    counts = model.diagnostics
    share = counts["roi_sampled_fg"] / (counts["roi_sampled_fg"] + counts["roi_sampled_bg"])
    assert by_all["loss_box_reg"].item() == pytest.approx(
        (by_positive["loss_box_reg"] * share).item(), rel=1e-5
    )
    assert by_all["loss_classifier"] == by_positive["loss_classifier"]


@pytest.mark.parametrize(
    "changes",
    [{"roi_chunk_size": 7}, {"roi_use_checkpoint": True, "roi_chunk_size": 5}],
    ids=["chunks", "chunks, computed again"],
)
def test_looking_at_regions_piece_by_piece_changes_nothing(changes):
    found = []
    for model in (detector(), detector(**changes)):
        losses = losses_of(model, images((96, 96), (64, 96)), [target(), target(())])
        sum(losses.values()).backward()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])
        found.append((torch.stack(list(losses.values())), gradients))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-3, atol=1e-5)


def test_chunks_and_checkpoints_hold_less_for_the_backward_pass():
    def kept_bytes(**changes):
        model = detector(**changes, roi_batch_size_per_image=100, roi_positive_fraction=1.0)
        kept: dict[int, int] = {}

        def note(tensor):
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            losses = losses_of(model, images((96, 96)), [target()])
        assert losses
        return sum(kept.values())

    assert kept_bytes(roi_use_checkpoint=True, roi_chunk_size=10) < 0.9 * kept_bytes()


def test_a_region_may_be_of_its_most_likely_class_alone():
    options = {"max_detections_per_image": 1000, "final_nms_iou_threshold": 1.0}
    every = detector(**options).eval()(images((96, 96)))[0]
    top = detector(**options, roi_inference_top_class_only=True).eval()(images((96, 96)))[0]
    assert len(top["scores"]) == NARROW.rpn_post_nms_top_n < len(every["scores"])
    # Class-agnostic regression: detections of one region share their box.
    _, region = every["rboxes"].unique(dim=0, return_inverse=True)
    best = torch.zeros(int(region.max()) + 1).scatter_reduce(0, region, every["scores"], "amax")
    assert top["scores"].sort().values.tolist() == pytest.approx(best.sort().values.tolist())


def test_suppression_on_the_cpu_gives_the_same():
    plain = detector().eval()(images((96, 96)))[0]
    on_cpu = detector(final_nms_use_cpu=True).eval()(images((96, 96)))[0]
    assert torch.equal(plain["rboxes"], on_cpu["rboxes"])


def test_regions_may_be_matched_by_their_enclosing_boxes():
    # Crossed bars in one enclosing square: their rotated IoU is small, that of the squares is 1.
    proposals = torch.tensor([[48.0, 48.0, 60.0, 8.0, -0.785]])
    found = {
        by_hbb: detector(roi_use_hbb_for_matching=by_hbb, add_gt_as_proposals=False)
        .roi_head.sample_regions(proposals, target(((48.0, 48.0, 60.0, 8.0, 0.785),)))
        .labels.tolist()
        for by_hbb in (False, True)
    }
    assert found == {False: [0], True: [1]}


def test_a_horizontal_head_adds_objects_as_their_enclosing_boxes():
    head = detector("rotated_faster_rcnn").roi_head
    tall = ((48.0, 48.0, 60.0, 20.0, 1.5707963),)
    found = head.sample_regions(torch.zeros(0, 5), target(tall))
    assert found.labels.tolist() == [1]
    assert found.rboxes[0].tolist() == pytest.approx([48, 48, 20, 60, 0], abs=1e-4)
    assert found.matched[0].tolist() == pytest.approx(list(tall[0]))
