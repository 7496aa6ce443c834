import re

import pytest
import torch
from torchvision.models import get_model, get_model_weights, resnet18, resnet34

from obbflow.config import ModelSection
from obbflow.errors import CheckpointError
from obbflow.models import build_model
from obbflow.models.backbones import build_backbone
from obbflow.models.weights import load_backbone_weights

NARROW = {
    "backbone": "resnet18",
    "pretrained_backbone": False,
    "backbone_width": 0.125,
    "fpn_channels": 16,
    "roi_fc_channels": 16,
}


def test_a_section_and_its_keys_build_the_same_detector():
    torch.manual_seed(0)
    one = build_model(NARROW, 3)
    torch.manual_seed(0)
    other = build_model(ModelSection(**NARROW), 3)
    assert one.roi_head.classifier.out_features == 4
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_unknown_detectors_are_refused():
    with pytest.raises(ValueError, match=r"oriented_rcnn.*got 'yolo'"):
        build_model(NARROW, 3, model_type="yolo")


def test_a_detector_needs_a_class():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        build_model(NARROW, 0)


def test_class_weights_are_not_saved_with_the_weights():
    model = build_model(NARROW, 2, class_weights=torch.tensor([1.0, 2.0, 3.0]))
    assert not [name for name in model.state_dict() if "class_weights" in name]
    assert model.roi_head.class_weights.tolist() == [1.0, 2.0, 3.0]


def pretrained(**changes):
    return {**NARROW, "pretrained_backbone": True, "backbone_width": 1.0, **changes}


def test_the_backbone_starts_from_a_given_file(tmp_path):
    weights = resnet18(weights=None).state_dict()
    torch.save(weights, tmp_path / "resnet18.pth")
    section = pretrained(backbone_weights=str(tmp_path / "resnet18.pth"))
    model = build_model(section, 2)
    for name, value in model.backbone.state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_the_backbone_starts_from_the_file_in_the_cache_of_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    weights = resnet18(weights=None).state_dict()
    torch.save(weights, cache / "resnet18-f37072fd.pth")
    model = build_model(pretrained(), 2)
    assert torch.equal(model.backbone.conv1.weight, weights["conv1.weight"])


def test_absent_weights_are_named_with_their_place_and_never_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def refuse(*_args, **_options):
        raise AssertionError("a download was tried")

    monkeypatch.setattr("torch.hub.download_url_to_file", refuse)
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", refuse)
    with pytest.raises(CheckpointError) as caught:
        build_model(pretrained(), 2)
    message = str(caught.value)
    assert str(tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth") in message
    assert "model.backbone_weights" in message
    assert "model.pretrained_backbone=false" in message


FAMILIES = [
    "resnext50_32x4d",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "regnet_y_400mf",
    "convnext_tiny",
    "swin_t",
    "densenet121",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_starts_from_torchvision_files_and_names_an_absent_one(
    name, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    backbone = build_backbone(ModelSection(backbone=name))
    url = get_model_weights(name).DEFAULT.url
    place = cache / url.rpartition("/")[2]
    with pytest.raises(CheckpointError) as caught:
        load_backbone_weights(backbone, name, None)
    assert f"{place}: the pretrained weights of {name} are not on this machine" in str(caught.value)
    assert url in str(caught.value)

    weights = get_model(name, weights=None).state_dict()
    # Files from before 2019 count no batches, and DenseNet's have other names.
    old = {
        re.sub(r"(denselayer\d+\.(norm|conv))([12])\.", r"\1.\3.", key): value
        for key, value in weights.items()
        if not key.endswith("num_batches_tracked")
    }
    torch.save(old, place)
    load_backbone_weights(backbone, name, None)
    for key, value in backbone.state_dict().items():
        assert torch.equal(value, weights[key]), key


def test_weights_of_a_sibling_are_refused(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(get_model("efficientnet_b1", weights=None).state_dict(), path)
    backbone = build_backbone(ModelSection(backbone="efficientnet_b0"))
    with pytest.raises(CheckpointError, match="not the weights of efficientnet_b0"):
        load_backbone_weights(backbone, "efficientnet_b0", str(path))


def test_an_absent_weights_file_of_the_user_is_named(tmp_path):
    section = pretrained(backbone_weights=str(tmp_path / "mine.pth"))
    with pytest.raises(CheckpointError, match=r"mine\.pth: the pretrained weights of resnet18"):
        build_model(section, 2)


@pytest.mark.parametrize(
    ("changes", "build"),
    [({"backbone_width": 0.5}, resnet18), ({"backbone": "resnet34"}, resnet18)],
    ids=["other width", "too shallow"],
)
def test_weights_of_another_backbone_are_refused(tmp_path, changes, build):
    torch.save(build(weights=None).state_dict(), tmp_path / "weights.pth")
    section = pretrained(backbone_weights=str(tmp_path / "weights.pth"), **changes)
    with pytest.raises(CheckpointError, match="These are not the weights of resnet"):
        build_model(section, 2)


def test_a_deeper_backbone_is_not_taken_for_a_shallower_one(tmp_path):
    torch.save(resnet34(weights=None).state_dict(), tmp_path / "weights.pth")
    section = pretrained(backbone_weights=str(tmp_path / "weights.pth"))
    with pytest.raises(CheckpointError, match="These are not the weights of resnet18"):
        build_model(section, 2)
