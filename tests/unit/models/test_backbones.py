"""Backbones: levels, torchvision's weights and features, what is frozen."""

from typing import get_args

import pytest
import torch
from torch.nn.functional import layer_norm
from torchvision.models import get_model
from torchvision.ops import StochasticDepth

from detectors import assert_healthy_step, detector, images, target
from obbflow.config import ModelSection
from obbflow.config.model import BackboneName
from obbflow.models.backbones import BACKBONES, build_backbone
from obbflow.models.backbones.resnet import ResNet

# One of each family computes; the others only trace shapes and gradients, on no data at all.
COMPUTED = (
    "resnet18",
    "resnext50_32x4d",
    "wide_resnet50_2",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "regnet_y_400mf",
    "convnext_tiny",
    "swin_t",
    "densenet121",
)
CLASSIFIERS = {
    "mobilenet_v3_large": ("features.16.", "classifier."),
    "efficientnet_b": ("features.8.", "classifier."),
    "efficientnet_v2_s": ("features.7.", "classifier."),
    "convnext": ("classifier.",),
    "swin": ("norm.", "head."),
    "densenet": ("classifier.",),
    "re": ("fc.",),
    "wide": ("fc.",),
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small images take longer to share out than to compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def build(name, **changes):
    section = ModelSection(backbone=name, pretrained_backbone=False, **changes)
    return build_backbone(section)


def test_every_configured_backbone_can_be_built():
    assert set(get_args(BackboneName)) == set(BACKBONES)


@pytest.mark.parametrize("name", BACKBONES)
def test_a_backbone_gives_four_levels_and_learns_where_it_is_not_frozen(name):
    torch.manual_seed(0)
    # torchvision computes the widths of RegNets with tensors: it cannot build them on "meta".
    built_on = "cpu" if name.startswith("regnet") else "meta"
    with torch.device("cpu" if name in COMPUTED else built_on):
        backbone = build(name, frozen_stages=1, freeze_batch_norm=False).train()
    with torch.device(built_on):
        reference = get_model(name, weights=None).state_dict()
    for module in backbone.modules():
        if isinstance(module, StochasticDepth):
            module.p = 0.0  # a dropped block gets no gradient
    device = "cpu" if name in COMPUTED else "meta"
    levels = backbone.to(device)(torch.randn(1, 3, 64, 96, device=device))
    assert [tuple(level.shape[2:]) for level in levels] == [(16, 24), (8, 12), (4, 6), (2, 3)]
    assert [level.shape[1] for level in levels] == backbone.out_channels

    classifier = next(starts for family, starts in CLASSIFIERS.items() if name.startswith(family))
    assert {key: value.shape for key, value in backbone.state_dict().items()} == {
        key: value.shape for key, value in reference.items() if not key.startswith(classifier)
    }
    assert set(backbone.left_out) == {key for key in reference if key.startswith(classifier)}

    sum(level.square().mean() for level in levels).backward()
    frozen = tuple(f"{part}." for parts in backbone.parts[:2] for part in parts)
    for key, parameter in backbone.named_parameters():
        assert parameter.requires_grad != key.startswith(frozen), key
        assert (parameter.grad is not None) == parameter.requires_grad, key
        if parameter.requires_grad and not parameter.is_meta:
            assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", sorted({*COMPUTED} - {"wide_resnet50_2", "efficientnet_v2_s"}))
def test_torchvision_weights_give_torchvision_features(name):
    torch.manual_seed(0)
    reference = get_model(name, weights=None).eval()
    backbone = build(name).eval()
    backbone.load_state_dict(
        {key: reference.state_dict()[key] for key in backbone.state_dict()}, strict=True
    )
    seen = []
    for part in backbone.parts[1:]:
        reference.get_submodule(part[-1]).register_forward_hook(
            lambda _module, _inputs, output: seen.append(output.detach().clone())
        )
    image = torch.randn(1, 3, 64, 96)
    with torch.no_grad():
        levels = backbone(image)
        reference(image)
    for level, expected in zip(levels, seen, strict=True):
        if name.startswith("swin"):
            expected = expected.permute(0, 3, 1, 2)
        if name.startswith(("swin", "convnext")):
            expected = layer_norm(expected.movedim(1, 3), level.shape[1:2]).movedim(3, 1)
        torch.testing.assert_close(level, expected)


@pytest.mark.parametrize(
    ("keys", "learning"),
    [
        ({"trainable_layers": 5}, ["conv1", "bn1", "layer1", "layer2", "layer3", "layer4"]),
        ({"trainable_layers": 4}, ["layer1", "layer2", "layer3", "layer4"]),
        ({"trainable_layers": 1}, ["layer4"]),
        ({"trainable_layers": 0}, []),
        ({"frozen_stages": -1}, ["conv1", "bn1", "layer1", "layer2", "layer3", "layer4"]),
        ({"frozen_stages": 0}, ["layer1", "layer2", "layer3", "layer4"]),
        ({"frozen_stages": 1, "trainable_layers": 3}, ["layer2", "layer3", "layer4"]),
        ({"frozen_stages": 4}, []),
    ],
    ids=str,
)
def test_keys_say_which_stages_learn(keys, learning):
    backbone = build("resnet18", backbone_width=0.125, **keys)
    found = [key.split(".")[0] for key, p in backbone.named_parameters() if p.requires_grad]
    assert list(dict.fromkeys(found)) == learning


def statistics(backbone):
    return {k: v.clone() for k, v in backbone.state_dict().items() if "running_" in k}


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0"])
@pytest.mark.parametrize(
    ("freeze", "frozen_stages"),
    [(True, -1), (False, -1), (False, 2)],
    ids=["frozen norms", "free norms", "frozen stages keep theirs"],
)
def test_running_statistics_move_only_where_norms_learn(name, freeze, frozen_stages):
    backbone = build(name, frozen_stages=frozen_stages, freeze_batch_norm=freeze).train()
    before = statistics(backbone)
    backbone(torch.randn(2, 3, 64, 64) * 5 + 1)
    moving = () if freeze else backbone.parts[frozen_stages + 1 :]
    prefixes = tuple(f"{name}." for part in moving for name in part)
    for key, value in statistics(backbone).items():
        assert torch.equal(value, before[key]) != key.startswith(prefixes or ("none",)), key


def test_a_backbone_frozen_during_training_drops_no_blocks_and_moves_no_statistics():
    backbone = build("efficientnet_b0", freeze_batch_norm=False)
    backbone.requires_grad_(False).train()
    assert not any(module.training for module in backbone.modules() if not list(module.children()))
    backbone.requires_grad_(True).train()
    assert all(module.training for module in backbone.modules())


def test_layer_norms_learn_although_batch_norms_are_frozen():
    with torch.device("meta"):
        backbone = build("swin_t", freeze_batch_norm=True).train()
    assert all(module.training for module in backbone.modules())


def test_width_scales_the_channels_and_keeps_multiples_of_eight():
    assert ResNet("resnet18").out_channels == [64, 128, 256, 512]
    assert ResNet("resnet50").out_channels == [256, 512, 1024, 2048]
    assert ResNet("resnet18", width=0.25).out_channels == [16, 32, 64, 128]
    assert ResNet("resnet18", width=0.05).out_channels == [8, 8, 16, 24]


@pytest.mark.parametrize("name", ["mobilenet_v3_large", "swin_t"])
def test_a_detector_learns_with_an_extracted_backbone(name):
    model = detector(backbone=name, backbone_width=1.0, frozen_stages=3)
    assert_healthy_step(model, images((100, 90)), [target()])
