import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from obbflow.geometry import normalize_le90, rbox_to_hbox, rbox_to_qbox
from obbflow.models.coders import (
    DeltaCoder,
    DistanceAngleCoder,
    HorizontalDeltaCoder,
    MidpointOffsetCoder,
)
from strategies import PROPERTY

SCALES = {
    "raw": {},
    "scaled": {"means": (0.1, -0.2, 0.3, 0.0, 0.05), "stds": (0.1, 0.1, 0.2, 0.2, 0.1)},
}
DELTA_CODERS = {
    f"norm factor {norm_factor}, swap {edge_swap}, proj {proj_xy}, {name}": DeltaCoder(
        norm_factor=norm_factor, edge_swap=edge_swap, proj_xy=proj_xy, **scale
    )
    for norm_factor, edge_swap, proj_xy, (name, scale) in itertools.product(
        (None, 2.0), (True, False), (True, False), SCALES.items()
    )
}
CODERS = {  # with the columns of their priors and deltas
    "midpoint": (MidpointOffsetCoder(), 4, 6),
    "delta": (DeltaCoder(), 5, 5),
    "delta of level priors": (DeltaCoder(norm_factor=2.0), 4, 5),
    "horizontal": (HorizontalDeltaCoder(), 4, 4),
    "distance": (DistanceAngleCoder(), 2, 5),
}
# Sides that a prior of 8 to 80 px can reach: within the limit of 62.5 times its own.
SIDE, PLACE, TURN = st.floats(8, 80), st.floats(0, 500), st.floats(-math.pi / 2, 1.57)
RBOX = st.tuples(PLACE, PLACE, SIDE, SIDE, TURN).map(
    lambda box: normalize_le90(torch.tensor([box], dtype=torch.float64))
)
HBOX = st.tuples(PLACE, PLACE, SIDE, SIDE).map(
    lambda box: torch.tensor(
        [[box[0], box[1], box[0] + box[2], box[1] + box[3]]], dtype=torch.float64
    )
)
POINT = st.tuples(PLACE, PLACE).map(lambda point: torch.tensor([point], dtype=torch.float64))
ROUNDING = 1e-6  # px, of float64 at 500 px


def corner_distance(a: Tensor, b: Tensor) -> float:
    """Return how far the corners of rectangles lie apart at most, whichever is called the first."""
    a, b = (rbox_to_qbox(boxes).reshape(-1, 4, 2) for boxes in (a, b))
    shifted = [(a - b.roll(step, dims=1)).norm(dim=2).amax(dim=1) for step in range(4)]
    return torch.stack(shifted).amin(dim=0).max().item()


@pytest.mark.parametrize("coder", DELTA_CODERS.values(), ids=DELTA_CODERS)
@PROPERTY
@given(prior=st.one_of(RBOX, HBOX), target=RBOX)
def test_decoding_deltas_undoes_encoding(coder, prior, target):
    decoded = coder.decode(prior, coder.encode(prior, target))
    assert corner_distance(decoded, target) < ROUNDING


@pytest.mark.parametrize("stds", [(1.0,) * 6, (0.1, 0.1, 0.2, 0.2, 0.5, 0.5)])
@PROPERTY
@given(target=RBOX, shift=st.floats(-20, 20), grow=st.floats(0.3, 3))
def test_decoding_midpoint_offsets_undoes_encoding(stds, target, shift, grow):
    enclosing = rbox_to_hbox(target)
    centre, half = (enclosing[:, :2] + enclosing[:, 2:]) / 2, enclosing[:, 2:] - enclosing[:, :2]
    prior = torch.cat([centre + shift - half * grow, centre + shift + half * grow], dim=1)
    coder = MidpointOffsetCoder(means=(0.1, -0.2, 0.3, 0.0, 0.05, -0.05), stds=stds)
    decoded = coder.decode(prior, coder.encode(prior, target))
    # Corners within 0.1 px of the upper or right side count as level: the box then tilts by that.
    x, y = rbox_to_qbox(target).reshape(4, 2).unbind(dim=1)
    is_tilted = min((y - y.min()).sort().values[1], (x.max() - x).sort().values[1]) > 0.1
    assert corner_distance(decoded, target) < (ROUNDING if is_tilted else 0.2)


@pytest.mark.parametrize("stds", [(1.0,) * 4, (0.1, 0.1, 0.2, 0.2)])
@PROPERTY
@given(prior=HBOX, target=RBOX)
def test_decoding_horizontal_deltas_gives_the_enclosing_box(stds, prior, target):
    coder = HorizontalDeltaCoder(means=(0.1, -0.2, 0.3, 0.0), stds=stds)
    decoded = coder.decode(prior, coder.encode(prior, target))
    torch.testing.assert_close(decoded, rbox_to_hbox(target), rtol=0, atol=ROUNDING)


@PROPERTY
@given(point=POINT, target=RBOX)
def test_decoding_distances_undoes_encoding_even_from_points_outside(point, target):
    coder = DistanceAngleCoder()
    decoded = coder.decode(point, coder.encode(point, target))
    assert corner_distance(decoded, target) < ROUNDING


def test_rotated_deltas_of_a_known_pair():
    prior = torch.tensor([[10.0, 20.0, 40.0, 10.0, math.pi / 2]])
    target = torch.tensor([[10.0, 28.0, 20.0, 10.0, math.pi / 2 - 0.3]])
    deltas = DeltaCoder().encode(prior, target)
    # 8 px down is 8 px along the prior's own w axis; half as long; turned back by 0.3.
    expected = torch.tensor([[0.2, 0.0, math.log(0.5), 0.0, -0.3]])
    torch.testing.assert_close(deltas, expected, rtol=1e-5, atol=1e-6)


def test_edge_swap_regresses_the_smaller_turn():
    prior = torch.tensor([[0.0, 0.0, 30.0, 20.0, 0.0]])
    upright = torch.tensor([[0.0, 0.0, 30.0, 20.0, -1.5]])
    turn = DeltaCoder(edge_swap=True).encode(prior, upright)[0, 4].item()
    assert turn == pytest.approx(math.pi / 2 - 1.5, abs=1e-6)
    assert DeltaCoder(edge_swap=False).encode(prior, upright)[0, 4].item() == pytest.approx(-1.5)


def test_a_tall_level_prior_has_angle_zero():
    prior = torch.tensor([[0.0, 0.0, 20.0, 40.0]])
    target = torch.tensor([[15.0, 20.0, 40.0, 20.0, -math.pi / 2]])
    deltas = DeltaCoder(norm_factor=2.0).encode(prior, target)
    torch.testing.assert_close(deltas, torch.tensor([[0.25, 0.0, 0.0, 0.0, 0.0]]))
    unswapped = DeltaCoder(norm_factor=2.0, edge_swap=False).encode(prior, target)
    # Twice as wide, half as high, and a quarter turn over two half turns.
    expected = torch.tensor([[0.25, 0.0, math.log(2), -math.log(2), -0.25]])
    torch.testing.assert_close(unswapped, expected)


def test_midpoint_offsets_of_a_known_box():
    diamond = torch.tensor([[50.0, 50.0, 30.0, 10.0, math.pi / 6]])
    hbox = rbox_to_hbox(diamond)
    x, y = rbox_to_qbox(diamond).reshape(4, 2).unbind(dim=1)
    width, height = (hbox[0, 2:] - hbox[0, :2]).tolist()
    deltas = MidpointOffsetCoder().encode(hbox, diamond)[0].tolist()
    top, right = x[y.argmin()].item(), y[x.argmax()].item()
    expected = [0, 0, 0, 0, (top - 50) / width / 0.5, (right - 50) / height / 0.5]
    assert deltas == pytest.approx(expected, abs=1e-5)


def test_a_needle_keeps_its_direction():
    # Both corner offsets at their limit: top and right corner coincide, the box is a diagonal.
    prior = torch.tensor([[0.0, 0.0, 40.0, 30.0]])
    deltas = torch.tensor([[0.0, 0.0, 0.0, 0.0, 5.0, -5.0]])
    rbox = MidpointOffsetCoder().decode(prior, deltas)[0].tolist()
    assert rbox == pytest.approx([20, 15, 50, 0, math.atan2(-30, 40)], abs=1e-5)


def test_horizontal_deltas_of_a_known_pair():
    prior = torch.tensor([[0.0, 0.0, 10.0, 20.0]])
    target = torch.tensor([[10.0, 5.0, 20.0, 10.0, math.pi / 2]])  # around it: 5, -5, 15, 15
    deltas = HorizontalDeltaCoder().encode(prior, target)
    expected = torch.tensor([[0.5, -0.25, 0.0, 0.0]])
    torch.testing.assert_close(deltas, expected, rtol=0, atol=1e-6)


def test_horizontal_boxes_are_cut_at_the_border_of_the_image():
    prior = torch.tensor([[-5.0, 50.0, 15.0, 70.0], [200.0, 0.0, 220.0, 10.0]])
    hboxes = HorizontalDeltaCoder().decode(prior, torch.zeros(2, 4), image_size=(60, 120))
    assert hboxes.tolist() == [[0, 50, 15, 60], [120, 0, 120, 10]]


def test_distances_of_a_known_box():
    # w points down: the point, 2 px below and 1 px left of the centre, is 2 px on along w and
    # 1 px on along h.
    box = torch.tensor([[50.0, 50.0, 20.0, 10.0, math.pi / 2]])
    point = torch.tensor([[49.0, 52.0]])
    expected = torch.tensor([[12.0, 6.0, 8.0, 4.0, math.pi / 2]])
    distances = DistanceAngleCoder().encode(point, box)
    torch.testing.assert_close(distances, expected, rtol=0, atol=1e-5)
    beyond = DistanceAngleCoder().encode(torch.tensor([[50.0, 61.0]]), box)
    assert beyond[0].tolist() == pytest.approx([21, 5, -1, 5, math.pi / 2], abs=1e-5)


def test_distances_that_do_not_add_up_leave_no_side():
    distances = torch.tensor([[3.0, 4.0, 5.0, -9.0, 0.0]])
    rbox = DistanceAngleCoder().decode(torch.zeros(1, 2), distances)
    assert rbox[0, 2:].tolist() == [8, 0, 0]


def test_the_centre_is_kept_inside_the_image():
    prior = torch.tensor([[100.0, 50.0, 20.0, 10.0, 0.0]])
    deltas = torch.tensor([[50.0, -50.0, 0.0, 0.0, 0.0]])
    rbox = DeltaCoder().decode(prior, deltas, image_size=(60, 120))
    assert rbox[0, :2].tolist() == [119.0, 0.0]


def test_a_decoded_side_stays_within_62_and_a_half_times_the_prior():
    level = torch.tensor([[0.0, 0.0, 16.0, 16.0]])
    wild = torch.tensor([[0.0, 0.0, 1e4, -1e4, 0.0, 0.0]])
    for prior in (level, torch.tensor([[8.0, 8.0, 16.0, 16.0, 0.3]])):
        rbox = DeltaCoder().decode(prior, wild[:, :5])
        assert rbox[0, 2:4].tolist() == pytest.approx([1000, 0.256], rel=1e-6)
    low, high = HorizontalDeltaCoder().decode(level, wild[:, :4]).reshape(2, 2)
    assert (high - low).tolist() == pytest.approx([1000, 0.256], rel=1e-4)
    # A rhombus, 1000 px wide; its vertical diagonal is stretched to the same length.
    rbox = MidpointOffsetCoder().decode(level, wild)
    assert rbox[0, 2:4].tolist() == pytest.approx([1000 / math.sqrt(2)] * 2, rel=1e-6)


@pytest.mark.parametrize("size", [-1e4, 1e4])
@pytest.mark.parametrize(("coder", "columns", "count"), CODERS.values(), ids=CODERS)
def test_wild_deltas_give_finite_boxes(coder, columns, count, size):
    prior = torch.tensor([[8.0, 8.0, 16.0, 24.0, 0.3]])[:, :columns]
    boxes = coder.decode(prior, torch.full((1, count), size))
    assert boxes.isfinite().all()
    assert columns == 4 or (boxes[:, 2:4] >= 0).all()


DEGENERATE_RBOXES = torch.tensor(
    [[30.0, 40.0, 20.0, 0.0, 0.3], [30.0, 40.0, 0.0, 0.0, 0.0], [30.0, 40.0, 1e-9, 1e-9, 1.0]]
)
DEGENERATE_HBOXES = torch.tensor(
    [[10.0, 20.0, 10.0, 60.0], [10.0, 20.0, 10.0, 20.0], [10.0, 20.0, 60.0, 20.0]]
)


@pytest.mark.parametrize(("coder", "columns", "count"), CODERS.values(), ids=CODERS)
@pytest.mark.parametrize("is_degenerate", [(True, False), (False, True), (True, True)])
def test_boxes_without_width_or_height_give_finite_deltas_boxes_and_gradients(
    coder, columns, count, is_degenerate
):
    priors = torch.tensor([[25.0, 35.0, 50.0, 60.0, 0.2]]).repeat(3, 1)[:, :columns]
    targets = torch.tensor([[30.0, 40.0, 20.0, 10.0, 0.3]]).repeat(3, 1)
    if is_degenerate[0] and columns > 2:
        priors = DEGENERATE_RBOXES if columns == 5 else DEGENERATE_HBOXES
    if is_degenerate[1]:
        targets = DEGENERATE_RBOXES
    priors, targets = priors.clone().requires_grad_(), targets.clone().requires_grad_()
    deltas = coder.encode(priors, targets)
    decoded = coder.decode(priors, deltas)
    assert deltas.shape == (3, count)
    assert deltas.isfinite().all()
    assert decoded.isfinite().all()
    for result in (deltas, decoded):
        for gradient in torch.autograd.grad(result.sum(), (priors, targets), retain_graph=True):
            assert gradient.isfinite().all()


def test_a_side_below_a_millionth_of_a_pixel_counts_as_that():
    prior, none = torch.tensor([[0.0, 0.0, 10.0, 10.0, 0.0]]), torch.zeros(1, 5)
    _, _, dw, dh, _ = DeltaCoder().encode(prior, none)[0].tolist()
    assert (dw, dh) == pytest.approx((math.log(1e-7), math.log(1e-7)))
    dx, dy, dw, dh, _ = DeltaCoder().encode(none, prior + 1)[0].tolist()
    assert (dx, dy) == pytest.approx((math.hypot(1e6, 0), 1e6))
    assert (dw, dh) == pytest.approx((math.log(11e6), math.log(11e6)))
    assert DeltaCoder().decode(none, torch.ones(1, 5))[0, :4].tolist() == [0, 0, 0, 0]
    # The smallest side that can be regressed is all that is left of a target without width.
    decoded = DeltaCoder().decode(prior, DeltaCoder().encode(prior, none))
    assert decoded[0, 2:4].tolist() == pytest.approx([0.16, 0.16])


@pytest.mark.parametrize(("coder", "columns", "count"), CODERS.values(), ids=CODERS)
def test_no_boxes_give_no_deltas_and_no_boxes(coder, columns, count):
    assert coder.encode(torch.zeros(0, columns), torch.zeros(0, 5)).shape == (0, count)
    boxes = coder.decode(torch.zeros(0, columns), torch.zeros(0, count))
    assert boxes.shape == (0, 4 if count == 4 else 5)
