"""Every tensor of the published models has its place in ours; section 9 of the golden README."""

import json
import zlib

import pytest
import torch

from obbflow.config import ModelSection
from obbflow.models import build_model, load_checkpoint
from obbflow.models.build import DETECTORS
from obbflow.models.mmrotate import own_names

SETTINGS = {
    "oriented_rcnn": {"anchor_scales": (8.0,)},
    "rotated_faster_rcnn": {"anchor_scales": (8.0,)},
    "rotated_retinanet": {"retinanet_anchor_angle": "le90"},
    "rotated_retinanet_v0anchors": {"retinanet_anchor_angle": "zero"},
    "rotated_fcos": {},
}


def detector_of(name):
    return name.removesuffix("_v0anchors")


@pytest.mark.parametrize("depth", ["r18", "r50"])
@pytest.mark.parametrize("name", [name for name in SETTINGS if detector_of(name) in DETECTORS])
def test_a_published_checkpoint_fills_the_whole_model(name, depth, shared_dir, tmp_path):
    keys = json.loads((shared_dir / "golden" / f"keys_{name}_{depth}.json").read_text())
    # One number stands for each tensor: the file stays small, and says what went where.
    marks = {key: float(zlib.crc32(key.encode()) % 10**6) for key in keys["shapes"]}
    assert len(set(marks.values())) == len(marks)
    state = {key: torch.tensor(marks[key]).expand(shape) for key, shape in keys["shapes"].items()}
    torch.save({"meta": {"mmrotate_version": "1.0.0"}, "state_dict": state}, tmp_path / "mm.pth")

    section = ModelSection(
        backbone=f"resnet{depth[1:]}", pretrained_backbone=False, **SETTINGS[name]
    )
    model = build_model(section, 15, model_type=detector_of(name))
    report = load_checkpoint(tmp_path / "mm.pth", model, strict=True)

    angle = SETTINGS[name].get("retinanet_anchor_angle")
    assert (angle is None) or f"the model has {angle}" in str(report)
    assert len(report.loaded) == len(keys["shapes"])
    assert sum(parameter.numel() for parameter in model.parameters()) == keys["parameters"]
    names = own_names(marks)
    loaded = model.state_dict()
    for key, mark in marks.items():
        assert (loaded[names[key]] == mark).all(), key
