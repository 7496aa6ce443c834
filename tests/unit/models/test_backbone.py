import pytest
import torch
from torchvision.models import resnet18, resnet50

from obbflow.models.backbone import ResNet


@pytest.mark.parametrize(("name", "build"), [("resnet18", resnet18), ("resnet50", resnet50)])
def test_torchvision_weights_fit_and_give_torchvision_features(name, build):
    torch.manual_seed(0)
    reference = build(weights=None).eval()
    ours = ResNet(name).eval()
    found = ours.load_state_dict(reference.state_dict(), strict=False)
    assert found.missing_keys == []
    assert found.unexpected_keys == ["fc.weight", "fc.bias"]
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        levels = ours(image)
        pooled = reference.fc(levels[-1].mean(dim=(2, 3)))
        torch.testing.assert_close(pooled, reference(image))
    assert [64 // level.shape[-1] for level in levels] == [4, 8, 16, 32]
    assert [level.shape[1] for level in levels] == ours.out_channels


@pytest.mark.parametrize(
    ("layers", "first"), [(0, None), (1, "layer4"), (3, "layer2"), (5, "conv1")]
)
def test_the_last_stages_learn(layers, first):
    backbone = ResNet("resnet18", width=0.125, trainable_layers=layers)
    learning = {name.split(".")[0] for name, p in backbone.named_parameters() if p.requires_grad}
    order = ["conv1", "bn1", "layer1", "layer2", "layer3", "layer4"]
    assert learning == (set(order[order.index(first) :]) if first else set())


def test_frozen_stages_receive_no_gradient():
    backbone = ResNet("resnet18", width=0.125, trainable_layers=2).train()
    sum(level.mean() for level in backbone(torch.randn(1, 3, 64, 64))).backward()
    for name, parameter in backbone.named_parameters():
        assert (parameter.grad is not None) == name.startswith(("layer3", "layer4"))


def statistics(backbone):
    return {k: v.clone() for k, v in backbone.state_dict().items() if "running_" in k}


@pytest.mark.parametrize(
    ("freeze", "layers", "moving"),
    [(True, 5, ()), (False, 5, ("bn1", "layer")), (False, 2, ("layer3", "layer4"))],
    ids=["frozen norms", "free norms", "frozen stages keep theirs"],
)
def test_running_statistics_move_only_where_norms_learn(freeze, layers, moving):
    backbone = ResNet(
        "resnet18", width=0.125, trainable_layers=layers, freeze_batch_norm=freeze
    ).train()
    before = statistics(backbone)
    backbone(torch.randn(2, 3, 64, 64) * 5 + 1)
    for name, value in statistics(backbone).items():
        assert torch.equal(value, before[name]) != name.startswith(moving or ("none",)), name


def test_width_scales_the_channels_and_keeps_multiples_of_eight():
    assert ResNet("resnet18").out_channels == [64, 128, 256, 512]
    assert ResNet("resnet50").out_channels == [256, 512, 1024, 2048]
    assert ResNet("resnet18", width=0.25).out_channels == [16, 32, 64, 128]
    assert ResNet("resnet18", width=0.05).out_channels == [8, 8, 16, 24]
