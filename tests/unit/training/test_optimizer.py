import pytest
import torch
from torch import nn
from toy import ToyDetector

from obbflow.config import TrainingSection
from obbflow.errors import ConfigError
from obbflow.training.optimizer import build_optimizer, component_of, parameters_by_component


def group_of(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict:
    found = [g for g in optimizer.param_groups if any(p is parameter for p in g["params"])]
    assert len(found) == 1
    return found[0]


def test_every_trainable_parameter_is_in_one_group_and_frozen_ones_in_none():
    model = ToyDetector()
    model.rpn_head.weight.requires_grad_(False)
    optimizer = build_optimizer(
        model, TrainingSection(use_lr_param_groups=True, no_decay_norm_and_bias=True)
    )
    placed = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(placed) == sorted(id(p) for p in model.parameters() if p.requires_grad)


def test_a_shared_parameter_is_taken_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    optimizer = build_optimizer(model, TrainingSection())
    assert len(optimizer.param_groups[0]["params"]) == 3


def test_equal_settings_share_a_group():
    assert len(build_optimizer(ToyDetector(), TrainingSection()).param_groups) == 1
    training = TrainingSection(use_lr_param_groups=True, lr_mult_backbone=0.5, lr_mult_rpn=0.5)
    assert len(build_optimizer(ToyDetector(), training).param_groups) == 3


def test_components_learn_at_their_own_rate():
    model = ToyDetector()
    training = TrainingSection(
        use_lr_param_groups=True, learning_rate=0.01, lr_scaling_with_accumulation="none"
    )
    optimizer = build_optimizer(model, training)
    rates = [
        group_of(optimizer, parameter)["lr"]
        for parameter in (
            model.backbone[0].weight,
            model.rpn_head.weight,
            model.roi_head.weight,
            model.scale,
        )
    ]
    assert rates == pytest.approx([0.005, 0.005, 0.02, 0.01])


def test_norms_and_biases_do_not_decay_when_asked():
    model = ToyDetector()
    training = TrainingSection(no_decay_norm_and_bias=True, weight_decay=0.1)
    optimizer = build_optimizer(model, training)
    decays = [
        group_of(optimizer, parameter)["weight_decay"]
        for parameter in (
            model.backbone[0].weight,
            model.backbone[0].bias,
            model.backbone[1].weight,
            model.roi_head.bias,
        )
    ]
    assert decays == [0.1, 0.0, 0.0, 0.0]


def test_momentum_is_that_of_sgd_and_beta_1_of_adamw():
    sgd = build_optimizer(ToyDetector(), TrainingSection(momentum=0.8))
    adamw = build_optimizer(ToyDetector(), TrainingSection(momentum=0.8, optimizer="adamw"))
    assert isinstance(sgd, torch.optim.SGD)
    assert sgd.param_groups[0]["momentum"] == 0.8
    assert isinstance(adamw, torch.optim.AdamW)
    assert adamw.param_groups[0]["betas"] == (0.8, 0.999)


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(ConfigError, match="every parameter of the model is frozen"):
        build_optimizer(ToyDetector().requires_grad_(False), TrainingSection())


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("backbone.layer1.0.conv1.weight", "backbone"),
        ("module.backbone.conv1.weight", "backbone"),
        ("rpn.head.bias", "rpn"),
        ("roi_head.fc.weight", "roi"),
        ("fpn.lateral.0.weight", "other"),
    ],
)
def test_the_module_names_the_component(name, component):
    assert component_of(name) == component


def test_components_without_parameters_are_left_out():
    parts = parameters_by_component(nn.Sequential(nn.Linear(2, 2)))
    assert list(parts) == ["other"]
    assert list(parameters_by_component(ToyDetector())) == ["backbone", "rpn", "roi", "other"]
