import math

import pytest
import torch
from torch import nn
from toy import ToyData, ToyDetector, toy_loader

from obbflow.config import TrainingSection
from obbflow.errors import ConfigError, TrainingError
from obbflow.training import train_one_epoch
from obbflow.training.device import Runtime
from obbflow.training.steps import (
    LossGuard,
    Window,
    accumulate,
    apply_gradients,
    gradient_norms,
    weighted_total,
)


class Slope(nn.Module):
    """Its loss is the weight times the mean of the images: the gradient is that mean."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, images, _targets):
        return {"loss": self.weight * torch.stack(list(images)).mean()}


def window(batches: list[list[float]]) -> Window:
    made = [([torch.full((3, 2, 2), value) for value in values], []) for values in batches]
    return Window(made, len(made), "epoch 1, step 1")


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_accumulated_batches_give_the_gradient_of_their_mean_loss(batches):
    model = Slope()
    accumulate(model, window([[1.0]] * batches), Runtime(), None, None)
    assert model.weight.grad.item() == 1.0


def test_a_window_averages_over_its_own_batches():
    model = Slope()
    result = accumulate(model, window([[1.0], [2.0], [6.0]]), Runtime(), None, None)
    assert model.weight.grad.item() == pytest.approx(3.0)
    assert result.images == 3
    assert [weight for _, weight in result.losses] == [1, 1, 1]


def test_the_rest_of_an_epoch_is_a_step_of_its_own_size():
    model = Slope()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = [([torch.full((3, 2, 2), value)], []) for value in (1.0, 3.0, 5.0)]
    training = TrainingSection(gradient_accumulation_steps=2, max_grad_norm=None)
    train_one_epoch(model, loader, optimizer, None, training)
    # Steps of gradient (1 + 3) / 2 and 5, not 5 / 2.
    assert model.weight.item() == pytest.approx(-7.0)


def test_a_loss_weight_scales_its_loss_only():
    losses = {"loss_a": torch.tensor(2.0), "loss_b": torch.tensor(3.0)}
    assert weighted_total(losses, {"loss_b": 0.5}).item() == pytest.approx(3.5)
    with pytest.raises(ConfigError, match=r"no loss 'loss_bb', did you mean 'loss_b'"):
        weighted_total(losses, {"loss_bb": 1.0})
    with pytest.raises(ValueError, match="must return a dictionary of losses"):
        weighted_total({}, None)


class Chatty(Slope):
    """Returns counts and notes beside its loss."""

    def forward(self, images, targets):
        return {**super().forward(images, targets), "n_pos": 3, "share": 0.5, "note": "x"}


@pytest.mark.parametrize("value", [1.0, math.nan], ids=["finite", "not finite"])
def test_values_that_are_no_tensor_are_no_losses(value):
    model = Chatty()
    result = accumulate(model, window([[value]]), Runtime(), None, None)
    if math.isfinite(value):
        assert result.losses == [({"total_loss": 0.0, "loss": 0.0}, 1)]
        assert model.weight.grad.item() == 1.0
    else:
        assert result.problem.endswith("batch 1 of 1: loss nan")
    with pytest.raises(ConfigError, match=r"no loss 'n_pos'; it returns loss\."):
        accumulate(model, window([[1.0]]), Runtime(), None, {"n_pos": 2.0})


def test_norms_are_measured_before_clipping_and_the_step_uses_the_clipped_gradient():
    weights = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    for parameter, gradient in zip(weights, (3.0, 4.0), strict=True):
        parameter.grad = torch.tensor([gradient])
    parts = {"backbone": weights[:1], "roi": weights[1:]}
    norms = apply_gradients(torch.optim.SGD(weights, lr=1.0), None, parts, max_norm=1.0)
    assert norms == pytest.approx({"backbone": 3.0, "roi": 4.0, "total": 5.0})
    # torch divides by norm + 1e-6
    assert [w.item() for w in weights] == pytest.approx([-0.6, -0.8], rel=1e-5)


def test_without_a_limit_the_gradient_is_measured_and_not_clipped():
    weight = nn.Parameter(torch.zeros(1))
    weight.grad = torch.tensor([30.0])
    optimizer = torch.optim.SGD([weight], lr=1.0)
    assert apply_gradients(optimizer, None, {"roi": [weight]}, None)["total"] == 30.0
    assert weight.item() == -30.0


def test_a_component_without_gradient_has_norm_zero():
    weight = nn.Parameter(torch.zeros(1))
    assert gradient_norms({"rpn": [weight]}) == {"rpn": 0.0, "total": 0.0}


def test_a_gradient_that_is_not_finite_changes_no_weight():
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.tensor([math.nan])
    optimizer = torch.optim.SGD([weight], lr=1.0)
    norms = apply_gradients(optimizer, None, {"roi": [weight]}, 1.0)
    assert math.isnan(norms["total"])
    assert weight.item() == 1.0


def test_gradients_are_unscaled_before_they_are_measured_and_clipped():
    weight = nn.Parameter(torch.zeros(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale((weight * 4.0).sum()).backward()
    optimizer = torch.optim.SGD([weight], lr=1.0)
    assert apply_gradients(optimizer, scaler, {"roi": [weight]}, 2.0)["total"] == 4.0
    assert weight.item() == pytest.approx(-2.0, rel=1e-5)  # torch divides by norm + 1e-6


def test_an_overflow_of_the_scaler_is_no_step_and_lowers_the_scale():
    weight = nn.Parameter(torch.zeros(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale((weight * math.inf).sum()).backward()
    apply_gradients(torch.optim.SGD([weight], lr=1.0), scaler, {"roi": [weight]}, 2.0)
    assert weight.item() == 0.0
    assert scaler.get_scale() == 512.0


def test_a_non_finite_loss_drops_its_window_only(caplog):
    data = ToyData(8, nan_rows=(3,))
    model = ToyDetector(dropout=0.0)
    model.backbone[1].eval()  # batch statistics would take up the NaN
    before = model.rpn_head.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = TrainingSection(gradient_accumulation_steps=2, max_nonfinite_steps=2)
    row = train_one_epoch(model, toy_loader(data), optimizer, None, training)
    assert row["nonfinite_steps"] == 1
    assert math.isfinite(row["train/total_loss"])
    assert torch.isfinite(model.rpn_head.weight).all()
    assert not torch.equal(model.rpn_head.weight, before)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "epoch 1, step 1, batch 2 of 2 (tiles tile_2, tile_3): loss_box nan" in warnings[0]


def test_too_many_non_finite_steps_in_a_row_end_the_training():
    data = ToyData(6, nan_rows=tuple(range(6)))
    model = ToyDetector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = TrainingSection(gradient_accumulation_steps=1, max_nonfinite_steps=3)
    with pytest.raises(TrainingError, match=r"3 optimizer steps in a row .* tile_4, tile_5"):
        train_one_epoch(model, toy_loader(data), optimizer, None, training)


def test_a_good_step_resets_the_count():
    guard = LossGuard(2)
    for _ in range(3):
        guard.dropped("x")
        guard.stepped()
    assert guard.in_a_row == 0
