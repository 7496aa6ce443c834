import math

import pytest
import torch
from torch.nn import functional

from obbflow.errors import ConfigError
from obbflow.models.losses import (
    binary_cross_entropy,
    cross_entropy,
    grouped_alpha,
    grouped_cross_entropy,
    one_hot_targets,
    resolve_groups,
    rotated_iou_loss,
    sigmoid_focal,
    smooth_l1,
    softmax_focal,
)

LOGITS = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0], [0.0, math.log(3.0)]])
LABELS = torch.tensor([0, 0, 0])  # true class at 1/2, 3/4 and 1/4
PROBABILITIES = (1 / 2, 3 / 4, 1 / 4)
CLASSES = {"bus": 1, "car": 2, "plane": 3, "ship": 4}
BOX = (50.0, 40.0, 20.0, 10.0, 0.3)
ODD_PAIRS = {
    "identical": (BOX, BOX),
    "zero side": ((50.0, 40.0, 20.0, 0.0, 0.3), BOX),
    "two zero sides": ((50.0, 40.0, 0.0, 0.0, 0.3), (50.0, 40.0, 0.0, 0.0, 0.3)),
    "far apart": (BOX, (1e5, -1e5, 20.0, 10.0, 0.3)),
    "1e-6 px": ((50.0, 40.0, 1e-6, 1e-6, 0.3), (50.0, 40.0, 1e-6, 1e-6, 0.3)),
    "1e-6 px in a box": ((50.0, 40.0, 1e-6, 1e-6, 0.3), BOX),
    "angle at the border": ((*BOX[:4], -math.pi / 2), (*BOX[:4], math.pi / 2)),
    "a turn apart": (BOX, (*BOX[:4], 0.3 + math.pi)),
    "sides exchanged": (BOX, (50.0, 40.0, 10.0, 20.0, 0.3 + math.pi / 2)),
    "touching": ((50.0, 40.0, 20.0, 10.0, 0.0), (70.0, 40.0, 20.0, 10.0, 0.0)),
}


def test_cross_entropy_is_the_negative_logarithm_of_the_probability():
    expected = [-math.log(p) for p in PROBABILITIES]
    assert cross_entropy(LOGITS, LABELS).tolist() == pytest.approx(expected)


def test_class_weights_multiply_the_samples_of_their_class():
    labels, weights = torch.tensor([0, 1, 0]), torch.tensor([5.0, 0.1])
    factors = torch.tensor([5.0, 0.1, 5.0])
    for loss in (cross_entropy, lambda *x: softmax_focal(*x[:2], 1.0, 2.0, *x[2:])):
        expected = loss(LOGITS, labels) * factors
        torch.testing.assert_close(loss(LOGITS, labels, weights), expected)


def test_label_smoothing_shares_out_the_target():
    expected = functional.cross_entropy(LOGITS, torch.tensor([[0.9, 0.1]] * 3), reduction="none")
    torch.testing.assert_close(cross_entropy(LOGITS, LABELS, smoothing=0.2), expected)


def test_focal_loss_turns_down_what_is_already_right():
    expected = [-2 * (1 - p) ** 2 * math.log(p) for p in PROBABILITIES]
    assert softmax_focal(LOGITS, LABELS, alpha=2.0, gamma=2.0).tolist() == pytest.approx(expected)


def test_focal_loss_without_focus_is_cross_entropy():
    actual = softmax_focal(LOGITS, LABELS, alpha=1.0, gamma=0.0)
    torch.testing.assert_close(actual, cross_entropy(LOGITS, LABELS))


def test_sigmoid_focal_loss_of_a_positive_and_of_a_negative_class():
    logits = torch.tensor([[math.log(3.0), math.log(3.0)]])  # p = 3/4 for both
    actual = sigmoid_focal(logits, torch.tensor([[1.0, 0.0]]), alpha=0.25, gamma=2.0)
    positive = -0.25 * (1 / 4) ** 2 * math.log(3 / 4)
    negative = -0.75 * (3 / 4) ** 2 * math.log(1 / 4)
    assert actual[0].tolist() == pytest.approx([positive, negative])


def test_smooth_l1_is_quadratic_below_its_corner_and_linear_above():
    prediction, target = torch.tensor([0.1, 3.0]), torch.zeros(2)
    assert smooth_l1(prediction, target, beta=0.5).tolist() == pytest.approx([0.01, 2.75])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("size", [200.0, 1e4])
def test_certain_answers_keep_losses_and_gradients_finite(size, gamma):
    logits = torch.tensor([[size, 0.0], [-size, 0.0]] * 2, requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1])
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.5], [0.0, 1.0], [0.0, 0.5]])
    losses = [
        cross_entropy(logits, labels).sum(),
        softmax_focal(logits, labels, 1.0, gamma).sum(),
        sigmoid_focal(logits, targets, 0.25, gamma).sum(),
        grouped_cross_entropy(logits, labels, [[1]], 0.5).sum(),
        binary_cross_entropy(logits, targets).sum(),
    ]
    for loss in losses:
        assert loss.isfinite()
        (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
        assert gradient.isfinite().all()


def test_nothing_to_compare_gives_no_losses_and_a_gradient():
    empty = torch.zeros(0, 2, requires_grad=True)
    boxes = torch.zeros(0, 5, requires_grad=True)
    labels = torch.zeros(0, dtype=torch.int64)
    losses = [
        cross_entropy(empty, labels),
        softmax_focal(empty, labels, 1.0, 2.0),
        sigmoid_focal(empty, one_hot_targets(labels, 2), 0.25, 2.0),
        smooth_l1(empty, empty.detach(), 1.0),
        binary_cross_entropy(empty, empty.detach()),
        grouped_cross_entropy(empty, labels, [[1]], 0.5),
        rotated_iou_loss(boxes, boxes.detach()),
    ]
    assert [len(loss) for loss in losses] == [0] * 7
    sum(loss.sum() for loss in losses).backward()
    assert empty.grad.shape == (0, 2)
    assert boxes.grad.shape == (0, 5)


@pytest.mark.parametrize("enabled", [True, False], ids=["autocast", "no autocast"])
def test_losses_of_bfloat16_are_computed_in_float32(enabled):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 4, generator=generator).bfloat16()
    labels = torch.randint(0, 4, (8,), generator=generator)
    boxes = torch.tensor([BOX] * 8) + torch.randn(8, 5, generator=generator) / 5
    losses = {
        "cross_entropy": lambda x: cross_entropy(x, labels),
        "softmax_focal": lambda x: softmax_focal(x, labels, 1.0, 2.0),
        "sigmoid_focal": lambda x: sigmoid_focal(x, one_hot_targets(labels, 4), 0.25, 2.0),
        "smooth_l1": lambda x: smooth_l1(x, x.roll(1, 0), 1.0),
        "binary_cross_entropy": lambda x: binary_cross_entropy(x, one_hot_targets(labels, 4)),
        "grouped_cross_entropy": lambda x: grouped_cross_entropy(x, labels, [[1, 2]], 0.5),
        "rotated_iou": lambda x: rotated_iou_loss(boxes.to(x.dtype), boxes.roll(1, 0)),
    }
    for name, loss in losses.items():
        expected = loss(logits.float() if name != "rotated_iou" else logits)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            actual = loss(logits)
        assert actual.dtype == torch.float32, name
        torch.testing.assert_close(actual, expected, msg=name, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("mode", "expected"), [("log", math.log(3)), ("linear", 2 / 3), ("square", 8 / 9)]
)
def test_iou_losses_of_a_third(mode, expected):
    pred = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])
    target = torch.tensor([[6.0, 3.0, 4.0, 2.0, 0.0]])
    assert rotated_iou_loss(pred, target, mode=mode).item() == pytest.approx(expected)


def test_unknown_mode_of_the_iou_loss_is_refused():
    with pytest.raises(ValueError, match="'log', 'linear' or 'square', got 'giou'"):
        rotated_iou_loss(torch.zeros(1, 5), torch.zeros(1, 5), mode="giou")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("mode", ["log", "linear", "square"])
@pytest.mark.parametrize("name", ODD_PAIRS)
def test_iou_loss_of_odd_boxes_is_finite_and_so_is_its_gradient(name, mode, dtype):
    pred, target = (torch.tensor([box], dtype=dtype) for box in ODD_PAIRS[name])
    pred.requires_grad_()
    loss = rotated_iou_loss(pred, target, mode=mode)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert pred.grad.isfinite().all()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_iou_loss_of_a_prediction_that_is_not_finite_is_nan(value):
    target = torch.tensor([BOX, BOX])
    pred = target.clone()
    pred[1, 2] = value
    loss = rotated_iou_loss(pred, target)
    assert loss[0] == pytest.approx(0, abs=1e-6)
    assert loss[1].isnan()


@pytest.mark.parametrize("column", range(5), ids=["cx", "cy", "w", "h", "angle"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_iou_loss_pulls_every_parameter_towards_the_target(column, sign):
    target = torch.tensor([[50.0, 40.0, 30.0, 10.0, 0.2]])
    pred = target.clone()
    pred[0, column] += sign * (0.2 if column == 4 else 2.0)
    pred.requires_grad_()
    rotated_iou_loss(pred, target).sum().backward()
    assert pred.grad[0, column] * sign > 1e-3


def test_a_group_is_one_target():
    logits = torch.tensor([[0.0, 1.0, 2.0, 0.5]] * 4)
    p = logits[0].softmax(dim=0)
    labels = torch.tensor([0, 1, 2, 3])
    actual = grouped_cross_entropy(logits, labels, [[1, 2]], alpha=1.0)
    group = -math.log(p[1] + p[2])
    expected = [-math.log(p[0]), group, group, -math.log(p[3])]
    assert actual.tolist() == pytest.approx(expected)


def test_grouped_and_fine_loss_are_mixed_by_alpha():
    logits, labels = torch.tensor([[0.0, 1.0, 2.0]] * 3), torch.tensor([0, 1, 2])
    weights = torch.tensor([1.0, 2.0, 0.5])
    ends = [grouped_cross_entropy(logits, labels, [[1, 2]], a, weights) for a in (0.0, 1.0)]
    torch.testing.assert_close(ends[0], cross_entropy(logits, labels, weights))
    mixed = grouped_cross_entropy(logits, labels, [[1, 2]], 0.25, weights)
    torch.testing.assert_close(mixed, 0.75 * ends[0] + 0.25 * ends[1])


def test_a_group_of_one_class_and_a_group_of_all_classes():
    logits, labels = torch.tensor([[0.0, 1.0, 2.0]] * 2), torch.tensor([1, 2])
    fine = cross_entropy(logits, labels)
    one = grouped_cross_entropy(logits, labels, [[1]], 1.0)
    torch.testing.assert_close(one, fine)
    objectness = -math.log(1 - logits[0].softmax(dim=0)[0])
    both = grouped_cross_entropy(logits, labels, [[1, 2]], 1.0)
    assert both.tolist() == pytest.approx([objectness] * 2)


@pytest.mark.parametrize(
    ("schedule", "options", "expected"),
    [
        (None, {}, [0, 0, 0, 0, 0]),
        ("step", {"end_epoch": 2}, [1, 1, 0, 0, 0]),
        ("linear_ramp", {"end_epoch": 4}, [1, 0.75, 0.5, 0.25, 0]),
        ("linear_ramp", {"start_epoch": 2, "end_epoch": 4, "power": 2}, [1, 1, 1, 0.25, 0]),
        ("linear_ramp", {"start_epoch": 3, "end_epoch": 3}, [0, 0, 0, 0, 0]),
    ],
)
def test_share_of_the_grouped_loss_by_epoch(schedule, options, expected):
    alphas = [grouped_alpha(epoch, schedule, **options) for epoch in range(5)]
    assert alphas == pytest.approx(expected)


def test_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="'step', 'linear_ramp' or None, got 'cosine'"):
        grouped_alpha(0, "cosine")


def test_groups_are_ids_and_unknown_names_are_left_out_with_a_warning(caplog):
    groups = resolve_groups([["car", "bus", "shipp"], ["yacht"], ["plane"]], CLASSES)
    assert groups == [[1, 2], [3]]
    assert "'shipp', did you mean 'ship'" in caplog.text
    assert "'yacht'" in caplog.text


@pytest.mark.parametrize(
    ("groups", "class_map", "message"),
    [
        ([["bus", "car"], ["car"]], CLASSES, "'car' is in groups 1 and 2"),
        ([["bus", "bus"]], CLASSES, "'bus' is in group 1 twice"),
        ([["yacht", "barge"]], CLASSES, "no name is a class.*bus, car, plane, ship"),
        ([], CLASSES, "no name is a class"),
        ([["bus"]], {}, "need a class map"),
        ([["bus"]], None, "need a class map"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups, class_map, message):
    with pytest.raises(ConfigError, match=message):
        resolve_groups(groups, class_map)
