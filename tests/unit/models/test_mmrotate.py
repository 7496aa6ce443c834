"""Checkpoints of MMRotate: names, meaning, and what their files hold beside tensors."""

import os
import sys
from collections import OrderedDict
from types import ModuleType

import numpy as np
import pytest
import torch

from obbflow.errors import CheckpointError
from obbflow.models import build_model, load_checkpoint
from obbflow.models.checkpoint_file import read_torch_file
from obbflow.models.mmrotate import describe, own_classes, own_names

NARROW = {
    "backbone": "resnet18",
    "pretrained_backbone": False,
    "backbone_width": 0.125,
    "fpn_channels": 16,
    "roi_fc_channels": 16,
}


def published_state(model):
    """The weights of a two-stage model of ours as MMRotate names and orders them."""
    neck = {f"neck.{part}.{i}.conv" for part in ("lateral_convs", "fpn_convs") for i in range(4)}
    heads = {f"rpn_head.{name}" for name in ("rpn_conv", "rpn_cls", "rpn_reg")}
    regions = ("fc_cls", "fc_reg", "shared_fcs.0", "shared_fcs.1")
    layers = neck | heads | {f"roi_head.bbox_head.{name}" for name in regions}
    theirs = {
        own: name
        for name, own in own_names(
            f"{layer}.{leaf}" for layer in layers for leaf in ("weight", "bias")
        ).items()
    }
    state = OrderedDict()
    for name, value in model.state_dict().items():
        if name.startswith("roi_head.classifier"):
            value = torch.cat([value[1:], value[:1]])  # background last
        state[theirs.get(name, name)] = value
    return state


@pytest.fixture
def model():
    torch.manual_seed(1)
    return build_model(NARROW, 3)


@pytest.fixture
def save(tmp_path, model):
    """Write a file like MMRotate's, with given entries of ``meta`` and beside it."""

    def write(meta, **entries):
        torch.save(
            {"meta": meta, "state_dict": published_state(model), **entries}, tmp_path / "mm.pth"
        )
        return tmp_path / "mm.pth"

    return write


META_0X = {
    "env_info": "sys.platform: linux",
    "mmrotate_version": "0.3.4",
    "config": "angle_version = 'le90'\n",
    "CLASSES": ("plane", "ship", "harbor"),
    "PALETTE": [(165, 42, 42), (189, 183, 107), (0, 255, 0)],
    "epoch": 12,
    "hook_msgs": {"best_score": np.float64(0.7), "curve": np.arange(3), "n": np.int64(2)},
}


def assert_equal_weights(model, other):
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_a_file_of_mmrotate_0x_loads_whole_with_what_it_tells(save, model):
    other = build_model(NARROW, 3)
    report = load_checkpoint(save(META_0X), other, strict=True)
    assert_equal_weights(model, other)
    assert "mmrotate 0.3.4" in str(report)
    assert "its classes: plane, ship, harbor" in str(report)
    assert "angle_version" not in str(report)


def test_other_angles_than_le90_are_told(save):
    report = load_checkpoint(
        save({**META_0X, "config": "a = 1\nangle_version = 'oc'\n"}), build_model(NARROW, 3)
    )
    assert "angle_version 'oc': its boxes are no le90 boxes" in str(report)


ROWS = torch.tensor([1.0, 2.0, 3.0, 9.0])  # plane, ship, harbor, background


@pytest.fixture
def marked(save):
    """A file whose rows of the classifier tell their class."""

    def write(meta):
        path = save(meta)
        content = torch.load(path, weights_only=False)
        state = content["state_dict"]
        state["roi_head.bbox_head.fc_cls.bias"] = ROWS
        state["roi_head.bbox_head.fc_cls.weight"] = ROWS[:, None].repeat(1, 16)
        torch.save(content, path)
        return path

    return write


@pytest.mark.parametrize(
    ("meta", "names", "rows"),
    [
        (META_0X, (), [9, 1, 2, 3]),
        (META_0X, ("plane", "ship", "harbor"), [9, 1, 2, 3]),
        (META_0X, ("harbor", "plane", "ship"), [9, 3, 1, 2]),
        (META_0X, ("ship", "plane"), [9, 2, 1]),
        ({}, ("harbor", "plane", "ship"), [9, 1, 2, 3]),
        ({"CLASSES": "ship"}, ("ship", "plane", "harbor"), None),
    ],
    ids=["not asked", "same order", "another order", "a part", "not named", "unknown"],
)
def test_rows_of_the_classifier_follow_the_names_of_the_classes(marked, meta, names, rows):
    other = build_model(NARROW, len(names) or 3)
    before = other.roi_head.classifier.bias.tolist()
    report = load_checkpoint(marked(meta), other, class_names=names)
    assert other.roi_head.classifier.bias.tolist() == (rows or before)
    if rows is None:
        assert "does not know harbor, plane, only ship: its classifier is left out" in str(report)
        assert report.missing == ("roi_head.classifier.weight", "roi_head.classifier.bias")
    else:
        assert report.missing == report.mismatched == ()
        assert other.roi_head.classifier.weight[:, 0].tolist() == rows
    assert ("does not name its classes" in str(report)) == (not meta)


def test_each_anchor_of_a_one_stage_head_keeps_its_rows():
    name = "bbox_head.retina_cls.weight"
    weight = torch.arange(6.0)[:, None, None, None]  # two anchors of three classes
    content = {"meta": {"CLASSES": ("a", "b", "c")}}
    own = own_classes({name: weight}, content, ("c", "a"))[name]
    assert own.flatten().tolist() == [2, 0, 5, 3]
    fcos = own_classes({"bbox_head.conv_cls.bias": torch.arange(3.0)}, content, ("c", "b", "a"))
    assert fcos["bbox_head.conv_cls.bias"].tolist() == [2, 1, 0]


def test_another_number_of_classes_leaves_only_the_classifier_out(save, model):
    other = build_model(NARROW, 5)
    before = other.roi_head.classifier.weight.clone()
    report = load_checkpoint(save(META_0X), other)
    assert report.mismatched == (
        "roi_head.classifier.weight (4, 16), here (6, 16)",
        "roi_head.classifier.bias (4,), here (6,)",
    )
    assert report.missing == report.unexpected == ()
    assert torch.equal(other.roi_head.classifier.weight, before)
    assert torch.equal(other.rpn.conv.weight, model.rpn.conv.weight)


@pytest.mark.parametrize("prefix", ["roi_head.bbox_head.fc_cls", "roi_head.classifier"])
def test_prefixes_are_ours_or_theirs(save, prefix):
    path = save(META_0X)
    only = load_checkpoint(path, build_model(NARROW, 3), include_prefixes=[prefix])
    assert only.loaded == ("roi_head.classifier.weight", "roi_head.classifier.bias")
    rest = load_checkpoint(path, build_model(NARROW, 3), exclude_prefixes=[prefix])
    assert rest.missing == only.loaded


def test_layers_of_another_detector_are_listed_under_their_names(tmp_path, model):
    state = published_state(model)
    state["bbox_head.fam_cls.weight"] = torch.zeros(2)
    torch.save({"state_dict": state, "meta": None}, tmp_path / "mm.pth")
    report = load_checkpoint(tmp_path / "mm.pth", build_model(NARROW, 3))
    assert report.unexpected == ("bbox_head.fam_cls.weight",)
    assert "it does not say which version" in str(report)


@pytest.mark.parametrize(
    ("meta", "needed"),
    [
        ({"mmrotate_version": "0.3.4"}, "zero; "),
        ({"CLASSES": ("ship",), "mmcv_version": "1.7.0"}, "zero; "),
        ({"mmengine_version": "0.10.1"}, "le90; "),
        ({}, "zero if it is one of the published files, le90 if"),
    ],
    ids=["version", "classes of 0.x", "1.x", "nothing told"],
)
def test_a_retinanet_says_which_anchors_it_needs(meta, needed):
    notes = describe({"bbox_head.retina_cls.weight"}, {"meta": meta}, (), "le90")
    assert f"model.retinanet_anchor_angle {needed}" in notes[-1]
    assert notes[-1].endswith("; the model has le90")
    assert "anchor" not in "\n".join(describe(set(), {"meta": meta}, ()))


@pytest.fixture
def mmengine(monkeypatch):
    """Stand-ins for two classes whose objects MMEngine saves."""
    code = (
        "import numpy as np\n"
        "class HistoryBuffer:\n"
        "    def __init__(self):\n"
        "        self._log_history = np.array([0.5, 0.25])\n"
        "    def mean(self):\n"
        "        return self._log_history.mean()\n"
        "    def __getstate__(self):\n"
        "        return {**self.__dict__, 'methods': {'mean': HistoryBuffer.mean}}\n"
        "class ConfigDict(dict):\n"
        "    pass\n"
    )
    for name in ("mmengine", "mmengine.logging", "mmengine.logging.history_buffer"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    module = sys.modules["mmengine.logging.history_buffer"]
    exec(code, module.__dict__)
    return module


META_1X = {
    "experiment_name": "oriented-rcnn",
    "cfg": "angle_version = 'le90'\n",
    "dataset_meta": {"classes": ("plane", "ship", "harbor")},
    "mmengine_version": "0.10.1",
}


def test_a_training_checkpoint_of_mmrotate_1x_loads_without_mmengine(
    save, model, mmengine, monkeypatch
):
    hub = {"log_scalars": {"train/loss": mmengine.HistoryBuffer()}, "runtime_info": {"iter": 3}}
    path = save(META_1X, message_hub=hub)
    monkeypatch.delitem(sys.modules, "mmengine.logging.history_buffer")
    other = build_model(NARROW, 3)
    report = load_checkpoint(path, other, strict=True)
    assert_equal_weights(model, other)
    assert "mmengine 0.10.1" in str(report)
    assert "its classes: plane, ship, harbor" in str(report)


def test_other_objects_are_refused_with_the_command_that_makes_a_plain_file(
    save, model, mmengine, tmp_path, monkeypatch
):
    path = save(META_1X, cfg=mmengine.ConfigDict(a=1))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, build_model(NARROW, 3))
    message = str(caught.value)
    assert "mmengine.logging.history_buffer.ConfigDict" in message
    command = message.partition('python -c "')[2].partition('"')[0]
    monkeypatch.chdir(tmp_path)
    exec(command, {})  # here, where the class exists, as on the machine with mmengine
    other = build_model(NARROW, 3)
    load_checkpoint(tmp_path / "plain.pth", other, strict=True)
    assert_equal_weights(model, other)


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("made",)


@pytest.mark.parametrize(
    "value",
    [np.array([RunsCode()], dtype=object), RunsCode(), {"scores": [np.float64(1), RunsCode()]}],
    ids=["in an array", "alone", "beside a number"],
)
def test_code_is_refused_wherever_it_hides(save, tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="reading it could run code"):
        load_checkpoint(save({**META_0X, "extra": value}), build_model(NARROW, 3))
    assert not (tmp_path / "made").exists()


def test_an_attribute_that_a_file_names_is_never_looked_up(tmp_path):
    """The stand-in for getattr lets no file reach what hangs at an allowed object."""

    class Reaches:
        def __reduce__(self):
            return getattr, (torch.Tensor, "__init_subclass__")

    torch.save({"found": Reaches(), "w": torch.ones(1)}, tmp_path / "a.pth")
    assert type(read_torch_file(tmp_path / "a.pth")["found"]).__name__ == "_Dropped"
