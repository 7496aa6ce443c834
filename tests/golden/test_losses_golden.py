"""Losses of classes, deltas and IoU against MMRotate 1.x; section 5 of the golden README."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from obbflow.models.losses import (
    binary_cross_entropy,
    cross_entropy,
    one_hot_targets,
    rotated_iou_loss,
    sigmoid_focal,
    smooth_l1,
)
from obbflow.ops import pairwise_iou_rotated


@pytest.fixture(scope="module")
def golden(shared_dir):
    with np.load(shared_dir / "golden" / "losses.npz") as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files if name != "meta"}
        return arrays | {"rows": json.loads(str(file["meta"]))["rows"]}


def row(golden, name: str) -> dict:
    return next(row for row in golden["rows"] if row["name"] == name)


def assert_published(loss: Tensor, prediction: Tensor, values: Tensor, gradient: Tensor) -> None:
    """Compare unreduced losses, and the gradient of their sum."""
    torch.testing.assert_close(loss, values, rtol=1e-5, atol=1e-6)
    (actual,) = torch.autograd.grad(loss.sum(), prediction)
    torch.testing.assert_close(actual, gradient, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "beta"), [("smooth_l1_beta_1_9", 1 / 9), ("smooth_l1_beta_1", 1.0), ("l1", 0.0)]
)
def test_losses_of_deltas_are_the_published_ones(golden, name, beta):
    prediction = golden["reg_pred"].clone().requires_grad_()
    loss = smooth_l1(prediction, golden["reg_target"], beta)
    assert_published(loss, prediction, golden[f"{name}_loss"], golden[f"{name}_grad"])


def test_cross_entropy_is_the_published_one(golden):
    # Published with background last, here it is class 0.
    prediction = golden["softmax_logits"].roll(1, dims=1).requires_grad_()
    loss = cross_entropy(prediction, (golden["cls_labels"] + 1) % 16)
    gradient = golden["cross_entropy_grad"].roll(1, dims=1)
    assert_published(loss, prediction, golden["cross_entropy_loss"], gradient)


def test_objectness_loss_is_the_published_one(golden):
    prediction = golden["rpn_logits"].clone().requires_grad_()
    is_object = (golden["rpn_labels"] == 0)[:, None]  # published: 0 is the foreground
    loss = binary_cross_entropy(prediction, is_object)
    assert_published(loss, prediction, golden["rpn_bce_loss"], golden["rpn_bce_grad"])


def test_focal_loss_is_the_published_one(golden):
    prediction = golden["cls_logits"].clone().requires_grad_()
    labels = (golden["cls_labels"] + 1) % 16
    loss = sigmoid_focal(prediction, one_hot_targets(labels, 15), alpha=0.25, gamma=2.0)
    assert_published(loss, prediction, golden["focal_loss"], golden["focal_grad"])
    weighted = (loss * golden["focal_weight"][:, None]).sum() / 37
    published = row(golden, "focal_weighted_avg_factor_37")["value"]
    assert weighted.item() == pytest.approx(published, rel=1e-6)


def test_focal_loss_of_soft_targets_is_the_published_one(golden):
    prediction = golden["cls_logits"].clone().requires_grad_()
    loss = sigmoid_focal(prediction, golden["soft_targets"], alpha=0.25, gamma=2.0)
    assert_published(loss, prediction, golden["smooth_focal_loss"], golden["smooth_focal_grad"])


@pytest.mark.parametrize("mode", ["log", "linear", "square"])
def test_iou_loss_is_that_of_the_exact_iou(golden, mode):
    pred, target = golden["box_pred"].double(), golden["box_target"].double()
    loss = rotated_iou_loss(pred, target, mode=mode)
    torch.testing.assert_close(loss, golden[f"riou_{mode}_loss"].double(), rtol=1e-5, atol=1e-6)
    exact = pairwise_iou_rotated(pred, target)
    torch.testing.assert_close(exact, golden["riou_true"].double(), rtol=0, atol=1e-9)


def test_gradient_of_the_iou_loss_is_that_of_the_exact_iou(golden):
    pred = golden["box_pred"].double().requires_grad_()
    loss = rotated_iou_loss(pred, golden["box_target"].double(), mode="log")
    (actual,) = torch.autograd.grad(loss.sum(), pred)
    expected = golden["riou_log_grad"].double()  # central differences
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
