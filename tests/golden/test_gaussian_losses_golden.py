"""Gaussian losses and their gradients against MMRotate's; section 5 of the README.

The recorded numbers were computed in float32 with covariance matrices: that rounding, not ours,
makes the tolerances.
"""

import json
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

import gaussian_formulas as published
from obbflow.models.losses.gaussian import (
    bcd_loss,
    gwd_loss,
    kfiou_loss,
    kld_loss,
    kld_v1_loss,
    probiou_loss,
)

LOSSES = {
    "gwd_default": partial(gwd_loss, tau=0),
    "gwd_log1p_tau1": gwd_loss,
    "gwd_sqrt_tau2_unnormalised": partial(gwd_loss, fun="sqrt", tau=2, normalize=False),
    "gwd_v1_sqrt_tau2": partial(gwd_loss, fun="none", tau=2, normalize=False),
    "kld_stable": partial(kld_loss, sqrt=False),
    "kld_sqrt_tau1": partial(kld_loss, fun="sqrt"),
    "kld_none": partial(kld_loss, fun="none", tau=0, sqrt=False),
    "jd_log1p_tau1": partial(kld_loss, symmetric="jeffreys"),
    "kld_symmax": partial(kld_loss, symmetric="max"),
    "kld_symmin": partial(kld_loss, symmetric="min"),
    "kld_v1": kld_v1_loss,
    "bcd_v1": bcd_loss,
}
# bcd_v1: a determinant of a product of two covariances of slivers has lost four digits.
VALUES = {"bcd_v1": 2e-4}
GRADIENTS = {"bcd_v1": 5e-3}


@pytest.fixture(scope="module")
def golden(shared_dir):
    with np.load(shared_dir / "golden" / "losses.npz") as arrays:
        return dict(arrays.items())


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def boxes(golden, request) -> tuple[Tensor, Tensor]:
    pred, target = (torch.from_numpy(golden[name]) for name in ("box_pred", "box_target"))
    return pred.to(request.param).requires_grad_(), target.to(request.param)


def settings(golden, name: str) -> dict:
    rows = json.loads(str(golden["meta"]))["rows"]
    return next((row["settings"] for row in rows if row["name"] == name), {})


def assert_gradient(actual: Tensor, expected: np.ndarray, tolerance: float = 2e-4) -> None:
    """Compare centre, sides and angle, each with its own length in the row and at its largest."""
    expected = torch.from_numpy(expected).to(actual)
    for group in (slice(0, 2), slice(2, 4), slice(4, 5)):
        error = (actual - expected)[:, group].norm(dim=1)
        length = expected[:, group].norm(dim=1)
        assert (error <= tolerance * (length + 0.5 * length.max())).all()


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_gaussian_distances_and_their_gradients(golden, boxes, name):
    pred, target = boxes
    losses = LOSSES[name](pred, target) * settings(golden, name).get("loss_weight", 1.0)
    losses.sum().backward()
    expected = torch.from_numpy(golden[f"{name}_loss"]).flatten().to(losses)
    torch.testing.assert_close(losses, expected, rtol=VALUES.get(name, 2e-5), atol=1e-6)
    assert_gradient(pred.grad, golden[f"{name}_grad"], GRADIENTS.get(name, 2e-4))


@pytest.mark.parametrize("fun", [None, "ln", "exp"])
def test_kfiou_and_its_gradients(golden, boxes, fun):
    name = f"kfiou_{fun or 'none'}"
    pred, target = boxes
    deltas, target_deltas = (torch.from_numpy(golden[f"reg_{of}"]) for of in ("pred", "target"))
    deltas.requires_grad_()
    beta = settings(golden, name)["beta"]
    losses = kfiou_loss(pred, target, deltas, target_deltas, fun=fun, beta=beta)
    losses.sum().backward()
    # The logarithm of MMRotate is that of KFIoU + 1e-6: 3e-5 at the smallest KFIoU here, 0.03.
    expected = torch.from_numpy(golden[f"{name}_loss"]).to(losses)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)
    assert_gradient(pred.grad, golden[f"{name}_grad_decoded"])
    expected = torch.from_numpy(golden[f"{name}_grad_deltas"])
    torch.testing.assert_close(deltas.grad, expected, rtol=1e-6, atol=1e-6)


def test_probiou(golden, boxes):
    pred, target = boxes
    # Recorded with 1e-7 under the root and the distance cut at 100.
    expected = 1 - torch.from_numpy(golden["probiou_value"])
    torch.testing.assert_close(probiou_loss(pred, target).double(), expected, rtol=0, atol=1e-6)
    distance = probiou_loss(pred, target, mode="l2").double().clamp(max=100)
    expected = torch.from_numpy(golden["probiou_bhattacharyya"])
    torch.testing.assert_close(distance, expected, rtol=1e-5, atol=0)


def test_the_recorded_wasserstein_v1_is_the_published_formula(golden):
    """The README says that it subtracts the coupling term twice; these numbers do it once."""
    pred, target = (torch.from_numpy(golden[name]) for name in ("box_pred", "box_target"))
    recorded = torch.from_numpy(golden["gwd_v1_sqrt_tau2_loss"]).double()

    def loss(couplings: int) -> Tensor:
        squared = published.squared_wasserstein(pred, target, couplings)
        return 1 - 1 / (2 + squared.clamp(min=1e-6).sqrt())

    torch.testing.assert_close(recorded, loss(couplings=1), rtol=0, atol=1e-6)
    # Twice would be no distance: nearly all of its squares are negative.
    assert (published.squared_wasserstein(pred, target, couplings=2) < 0).float().mean() > 0.9
    assert (recorded - loss(couplings=2)).abs().median() > 0.4


def test_the_recorded_bhattacharyya_is_rounded_where_ours_is_not(golden):
    pred, target = (torch.from_numpy(golden[name]) for name in ("box_pred", "box_target"))
    recorded = torch.from_numpy(golden["bcd_v1_loss"]).flatten().double()
    distance = published.bhattacharyya(pred, target)
    exact = 1 - 1 / (1 + distance.log1p())
    torch.testing.assert_close(bcd_loss(pred, target).double(), exact, rtol=2e-6, atol=1e-7)
    assert (recorded - exact).abs().max() > 5e-5
