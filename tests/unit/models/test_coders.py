import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from obbflow.geometry import normalize_le90, rbox_to_hbox, rbox_to_qbox
from obbflow.models.coders import DeltaCoder, MidpointOffsetCoder

DELTA_CODERS = {
    "published": DeltaCoder(stds=(0.1, 0.1, 0.2, 0.2, 0.1)),
    "norm factor": DeltaCoder(norm_factor=2.0, proj_xy=False),
    "shifted": DeltaCoder(means=(0.1, -0.2, 0.3, 0.0, 0.05)),
    "no swap": DeltaCoder(edge_swap=False),
}
# Sides that a prior of 8 to 80 px can reach: within the limit of 62.5 times its own.
SIDE, PLACE, TURN = st.floats(8, 80), st.floats(0, 500), st.floats(-math.pi / 2, 1.57)
RBOX = st.tuples(PLACE, PLACE, SIDE, SIDE, TURN)


def corner_distance(a: Tensor, b: Tensor) -> float:
    """Return how far the corners of rectangles lie apart at most, whichever is called the first."""
    a, b = (rbox_to_qbox(boxes).reshape(-1, 4, 2) for boxes in (a, b))
    shifted = [(a - b.roll(step, dims=1)).norm(dim=2).amax(dim=1) for step in range(4)]
    return torch.stack(shifted).amin(dim=0).max().item()


@pytest.mark.parametrize("coder", DELTA_CODERS.values(), ids=DELTA_CODERS)
@given(prior=RBOX, target=RBOX)
def test_decoding_rotated_deltas_undoes_encoding(coder, prior, target):
    prior = normalize_le90(torch.tensor([prior], dtype=torch.float64))
    target = normalize_le90(torch.tensor([target], dtype=torch.float64))
    decoded = coder.decode(prior, coder.encode(prior, target))
    assert corner_distance(decoded, target) < 1e-6  # float64 at 500 px


@given(target=RBOX, shift=st.floats(-20, 20), grow=st.floats(0.3, 3))
def test_decoding_midpoint_offsets_undoes_encoding(target, shift, grow):
    target = normalize_le90(torch.tensor([target], dtype=torch.float64))
    enclosing = rbox_to_hbox(target)
    centre, half = (enclosing[:, :2] + enclosing[:, 2:]) / 2, enclosing[:, 2:] - enclosing[:, :2]
    prior = torch.cat([centre + shift - half * grow, centre + shift + half * grow], dim=1)
    coder = MidpointOffsetCoder()
    decoded = coder.decode(prior, coder.encode(prior, target))
    # Corners within 0.1 px of the upper or right side count as level: the box then tilts by that.
    assert corner_distance(decoded, target) < 0.2


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


def test_the_centre_is_kept_inside_the_image():
    prior = torch.tensor([[100.0, 50.0, 20.0, 10.0, 0.0]])
    deltas = torch.tensor([[50.0, -50.0, 0.0, 0.0, 0.0]])
    rbox = DeltaCoder().decode(prior, deltas, image_size=(60, 120))
    assert rbox[0, :2].tolist() == [119.0, 0.0]


@pytest.mark.parametrize("size", [-1e4, 1e4])
def test_wild_deltas_give_finite_boxes(size):
    priors = torch.tensor([[0.0, 0.0, 16.0, 16.0]])
    rbox = MidpointOffsetCoder().decode(priors, torch.full((1, 6), size))
    assert rbox.isfinite().all()
    assert rbox[0, 2] <= 16 * 62.5 * math.sqrt(2) + 0.1
    rotated = torch.tensor([[8.0, 8.0, 16.0, 16.0, 0.3]])
    assert DeltaCoder().decode(rotated, torch.full((1, 5), size)).isfinite().all()


def test_no_boxes_give_no_deltas_and_no_boxes():
    assert MidpointOffsetCoder().encode(torch.zeros(0, 4), torch.zeros(0, 5)).shape == (0, 6)
    assert MidpointOffsetCoder().decode(torch.zeros(0, 4), torch.zeros(0, 6)).shape == (0, 5)
    for coder in DELTA_CODERS.values():
        assert coder.encode(torch.zeros(0, 5), torch.zeros(0, 5)).shape == (0, 5)
        assert coder.decode(torch.zeros(0, 5), torch.zeros(0, 5)).shape == (0, 5)
