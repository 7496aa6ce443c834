import math

import pytest
import torch
from torch.nn import functional

from obbflow.models.losses import binary_cross_entropy, cross_entropy, smooth_l1, softmax_focal

LOGITS = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0], [0.0, math.log(3.0)]])
LABELS = torch.tensor([0, 0, 0])  # true class at 1/2, 3/4 and 1/4


def test_cross_entropy_is_a_mean_over_rows():
    expected = -(math.log(1 / 2) + math.log(3 / 4) + math.log(1 / 4)) / 3
    assert cross_entropy(LOGITS, LABELS).item() == pytest.approx(expected)


def test_class_weights_multiply_their_rows_and_leave_the_mean_over_rows():
    weights = torch.tensor([5.0, 0.1])
    expected = 5 * cross_entropy(LOGITS, LABELS).item()
    assert cross_entropy(LOGITS, LABELS, weights).item() == pytest.approx(expected)
    expected = 5 * softmax_focal(LOGITS, LABELS, 1.0, 2.0).item()
    assert softmax_focal(LOGITS, LABELS, 1.0, 2.0, weights).item() == pytest.approx(expected)


def test_label_smoothing_shares_out_the_target():
    expected = functional.cross_entropy(LOGITS, torch.tensor([[0.9, 0.1]] * 3))
    assert cross_entropy(LOGITS, LABELS, smoothing=0.2).item() == pytest.approx(expected.item())


def test_focal_loss_turns_down_what_is_already_right():
    expected = 2 * sum(-((1 - p) ** 2) * math.log(p) for p in (1 / 2, 3 / 4, 1 / 4)) / 3
    assert softmax_focal(LOGITS, LABELS, alpha=2.0, gamma=2.0).item() == pytest.approx(expected)


def test_focal_loss_without_focus_is_cross_entropy():
    actual = softmax_focal(LOGITS, LABELS, alpha=1.0, gamma=0.0)
    assert actual.item() == pytest.approx(cross_entropy(LOGITS, LABELS).item())


def test_smooth_l1_is_quadratic_below_its_corner_and_linear_above():
    prediction, target = torch.tensor([0.1, 3.0]), torch.zeros(2)
    assert smooth_l1(prediction, target, beta=0.5).item() == pytest.approx(0.01 + 2.75)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_a_certain_answer_keeps_the_focal_gradient_finite(gamma):
    logits = torch.tensor([[200.0, 0.0], [-200.0, 0.0]], requires_grad=True)
    softmax_focal(logits, torch.tensor([0, 0]), 1.0, gamma).backward()
    assert logits.grad.isfinite().all()


def test_nothing_to_compare_costs_nothing():
    empty = torch.zeros(0, 2, requires_grad=True)
    labels = torch.zeros(0, dtype=torch.int64)
    losses = [
        cross_entropy(empty, labels),
        softmax_focal(empty, labels, 1.0, 2.0),
        smooth_l1(empty, empty.detach(), 1.0),
        binary_cross_entropy(empty, empty.detach()),
    ]
    assert [loss.item() for loss in losses] == [0, 0, 0, 0]
    sum(losses).backward()
    assert empty.grad.shape == (0, 2)


def test_losses_are_computed_in_float32():
    logits = LOGITS.bfloat16()
    assert cross_entropy(logits, LABELS).dtype == torch.float32
    assert smooth_l1(logits, logits, 1.0).dtype == torch.float32
    assert binary_cross_entropy(logits, logits).dtype == torch.float32
