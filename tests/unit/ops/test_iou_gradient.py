import math

import pytest
import torch
from hypothesis import given

from obbflow.ops import pairwise_iou_rotated
from obbflow.ops.iou_gradient import intersection_gradient
from strategies import ODD_RBOXES, PROPERTY, odd_rboxes, rbox_tensors


def box(*values):
    return torch.tensor([values], dtype=torch.float64)


def intersection(a, b):
    iou = pairwise_iou_rotated(a, b)
    return iou / (1 + iou) * (a[:, 2] * a[:, 3] + b[:, 2] * b[:, 3])


def differences(a, b, step):
    """One-sided differences (P, 5) of the intersection area by ``a``, backward and forward."""
    backward, forward = [], []
    here = intersection(a, b)
    for column in range(5):
        moved = torch.zeros_like(a)
        moved[:, column] = step
        backward.append((here - intersection(a - moved, b)) / step)
        forward.append((intersection(a + moved, b) - here) / step)
    return torch.stack(backward, dim=1), torch.stack(forward, dim=1)


@PROPERTY
@given(a=rbox_tensors(min_size=1, span=100.0), b=rbox_tensors(min_size=1, span=100.0))
def test_gradient_lies_between_the_one_sided_differences(a, b):
    count = min(len(a), len(b))
    a, b = a[:count], b[:count]
    analytic = intersection_gradient(a, b)
    for gradient, back_and_forth in (
        (analytic[0], differences(a, b, 1e-6)),
        (analytic[1], differences(b, a, 1e-6)),
    ):
        low, high = torch.minimum(*back_and_forth), torch.maximum(*back_and_forth)
        # Rounding of areas up to 1.6e5 px^2, and the curvature over a step.
        slack = 2e-3 + 1e-4 * (low.abs() + high.abs())
        assert (gradient >= low - slack).all()
        assert (gradient <= high + slack).all()


def test_iou_and_iof_pass_gradcheck():
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([10.0, 10.0, 8.0, 8.0, 1.0], dtype=torch.float64)
    a, b = (
        torch.tensor([[50.0, 50.0, 25.0, 20.0, 0.2]] * 20, dtype=torch.float64)
        + scale * (torch.rand(20, 5, dtype=torch.float64, generator=generator) - 0.5)
        for _ in range(2)
    )
    a.requires_grad_()
    b.requires_grad_()
    for mode in ("iou", "iof"):
        assert torch.autograd.gradcheck(lambda *x, m=mode: pairwise_iou_rotated(*x, m), (a, b))


@pytest.mark.parametrize("turns", range(-2, 3))
@pytest.mark.parametrize("name", ODD_RBOXES)
def test_iou_of_one_rectangle_in_two_descriptions_has_no_slope(name, turns):
    cx, cy, w, h, angle = ODD_RBOXES[name]
    a = box(cx, cy, w, h, angle).requires_grad_()
    sides = (h, w) if turns % 2 else (w, h)
    b = box(cx, cy, *sides, angle + turns * math.pi / 2)
    pairwise_iou_rotated(a, b).sum().backward()
    # Slopes are 1 / px, and by the angle 1 / aspect ratio.
    assert (a.grad[0, :4] * min(w, h)).abs().max() < 1e-9
    assert abs(a.grad[0, 4] * min(w, h) / max(w, h)) < 1e-9


@pytest.mark.parametrize("angle", [0.0, 0.3, -1.2, math.pi / 4])
def test_edges_that_coincide_count_half(angle):
    along, across = math.cos(angle), math.sin(angle)
    a = box(50, 40, 20, 10, angle)
    b = box(50 + 5 * along, 40 + 5 * across, 10, 10, angle)  # right, top and bottom are shared
    gradient = intersection_gradient(a, b)[0][0]
    # The right edge: 10 px, half. Top and bottom: 10 px each, half. The left one lies outside.
    assert gradient[:4].tolist() == pytest.approx([5 * along, 5 * across, 2.5, 5], abs=1e-9)


@pytest.mark.parametrize("shift", [(15.0, 0.0), (0.0, 12.0), (100.0, 100.0)])
def test_boxes_apart_have_no_gradient(shift):
    a, b = box(50, 40, 20, 10, 0.3), box(50 + 2 * shift[0], 40 + 2 * shift[1], 20, 10, 0.3)
    for gradient in intersection_gradient(a, b):
        assert (gradient == 0).all()


def test_a_small_box_inside_moves_freely_and_grows_by_its_own_sides():
    inner, outer = box(50, 40, 6, 4, 0.7), box(50, 40, 200, 100, -0.2)
    gradient_of_inner, gradient_of_outer = intersection_gradient(inner, outer)
    torch.testing.assert_close(gradient_of_inner, box(0, 0, 4, 6, 0), rtol=0, atol=1e-12)
    assert (gradient_of_outer == 0).all()


@PROPERTY
@given(a=rbox_tensors(min_size=1, span=100.0), b=rbox_tensors(min_size=1, span=100.0))
def test_moving_both_boxes_changes_nothing(a, b):
    count = min(len(a), len(b))
    of_a, of_b = intersection_gradient(a[:count], b[:count])
    torch.testing.assert_close(of_a[:, :2], -of_b[:, :2], rtol=0, atol=1e-8)


def test_gradient_does_not_depend_on_where_the_boxes_lie_or_how_large_they_are():
    a, b = box(3, 2, 20, 10, 0.3), box(5, 1, 18, 12, -0.4)
    here = intersection_gradient(a, b)[0]
    far = torch.tensor([[1e5, -3e5, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(intersection_gradient(a + far, b + far)[0], here, rtol=1e-9, atol=0)
    shrink = torch.tensor([[1e-6] * 4 + [1.0]], dtype=torch.float64)
    small = intersection_gradient(a * shrink, b * shrink)[0]
    expected = here * torch.tensor([[1e-6] * 4 + [1e-12]], dtype=torch.float64)
    torch.testing.assert_close(small, expected, rtol=1e-9, atol=0)


def test_float32_boxes_lose_nothing():
    a, b = odd_rboxes(torch.float32), odd_rboxes(torch.float32).roll(1, 0)
    for actual, expected in zip(
        intersection_gradient(a, b), intersection_gradient(a.double(), b.double()), strict=True
    ):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_every_pair_of_odd_boxes_has_a_finite_gradient():
    zero_sides = box(50, 40, 20, 0, 0.3), box(50, 40, 0, 0, 0)
    almost_level = box(90, 40, 10, 10, 1e-310)
    boxes = torch.cat([odd_rboxes(), *zero_sides, almost_level])
    a = boxes.repeat_interleave(len(boxes), dim=0).requires_grad_()
    b = boxes.repeat(len(boxes), 1).requires_grad_()
    pairwise_iou_rotated(a, b).sum().backward()
    assert a.grad.isfinite().all()
    assert b.grad.isfinite().all()


def test_a_quarter_turn_of_both_turns_the_gradient():
    a, b = box(3, 2, 20, 10, 0.3), box(5, 1, 18, 12, -0.4)
    quarter = box(0, 0, 0, 0, math.pi / 2)
    turned_a = torch.cat([-a[:, 1:2], a[:, :1], a[:, 2:]], dim=1) + quarter
    turned_b = torch.cat([-b[:, 1:2], b[:, :1], b[:, 2:]], dim=1) + quarter
    gradient, turned = intersection_gradient(a, b)[0], intersection_gradient(turned_a, turned_b)[0]
    expected = torch.cat([-gradient[:, 1:2], gradient[:, :1], gradient[:, 2:]], dim=1)
    torch.testing.assert_close(turned, expected, rtol=0, atol=1e-10)


def test_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"b must be \(N, 5\)"):
        intersection_gradient(torch.zeros(1, 5), torch.zeros(1, 4))
