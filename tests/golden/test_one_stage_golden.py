"""Rotated RetinaNet and Rotated FCOS against MMRotate 1.x; sections 8 and 9 of its README.

The folder's own script makes the weights; they go through a file such as MMRotate publishes.
Tolerances are those of issue 5 or tighter; the README says how far two runs of MMRotate differ.
"""

import json
import zlib

import numpy as np
import pytest
import torch

from obbflow.config import LossSection, ModelSection
from obbflow.models import build_model
from obbflow.models.anchors import (
    anchor_rboxes,
    base_anchors,
    level_anchors,
    level_points,
    octave_scales,
    squarest_first,
)
from obbflow.models.batching import pad_batch
from obbflow.models.matching import BACKGROUND
from obbflow.models.mmrotate import own_names
from obbflow.ops import box_iou_rotated
from published import PublishedModel, assert_features, assert_statistics, unpaired

CPU = torch.device("cpu")
SETTINGS = {
    "rotated_retinanet": {"retinanet_anchor_angle": "le90"},
    "rotated_retinanet_v0anchors": {"retinanet_anchor_angle": "zero"},
    "rotated_fcos": {},
}
SMALL = [(f"{name}_r18", case) for name in SETTINGS for case in ("square", "pair")]
CASES = [*SMALL, ("rotated_retinanet_r50", "square"), ("rotated_fcos_r50", "square")]
BROKEN_TIES = {
    ("rotated_retinanet_r18", "square"): [(0, 6136), (0, 4674)],
    ("rotated_retinanet_v0anchors_r18", "square"): [(0, 6136), (0, 4674)],
    ("rotated_retinanet_r18", "pair"): [(1, 9432)],
}
"""(image, anchor): no object overlaps it enough, but one overlaps no anchor more. Others have the
same IoU by symmetry. MMRotate's float32 IoU tells them apart and leaves these to the background."""


class Published(PublishedModel):
    """A published one-stage model."""

    def judged_sizes(self, case: str) -> list[tuple[int, int]]:
        """What MMRotate learns from: some padding too, which our detectors leave out."""
        if "fcos" in self.name:  # all of the batch
            return [tuple(self.facts["inference"][case]["batch_input_shape"])] * len(
                self.facts["cases"][case]
            )
        sizes = self.sizes(case)
        return [(-(-height // 32) * 32, -(-width // 32) * 32) for height, width in sizes]


def published_model(name: str) -> torch.nn.Module:
    kind, _, depth = name.rpartition("_r")
    section = ModelSection(
        backbone=f"resnet{depth}",
        pretrained_backbone=False,
        trainable_layers=3,
        use_hbb_for_matching=False,
        box_reg_loss_type="l1",
        final_nms_iou_threshold=0.1,
        max_detections_per_image=2000,
        **SETTINGS[kind],
    )
    loss = LossSection(loss_type="cross_entropy")
    return build_model(section, 15, model_type=kind.removesuffix("_v0anchors"), loss=loss)


@pytest.fixture(scope="module")
def published(shared_dir, tmp_path_factory):
    made: dict[str, Published] = {}

    def get(name: str) -> Published:
        if name not in made:
            scratch = tmp_path_factory.mktemp(name)
            made[name] = Published(shared_dir / "golden", name, published_model(name), scratch)
        return made[name]

    return get


@pytest.fixture(scope="module", params=CASES, ids=["-".join(case) for case in CASES])
def run(request, published):
    """The published model, the case's name, our C2 .. C5, P3 .. P7 and head output for it."""
    name, case = request.param
    golden = published(name)
    model = golden.model.eval()
    with torch.no_grad():
        batch, _ = pad_batch(golden.images(case), 32)
        backbone = model.backbone(batch)
        levels = model.fpn(backbone)
        return golden, case, backbone, levels, model.head(levels)


def test_features_equal_the_published_ones(run):
    golden, case, backbone, levels, _ = run
    assert_features(golden, case, backbone, levels)


def test_head_outputs_equal_the_published_ones(run):
    golden, case, _, _, output = run
    parts = [output.logits, output.codes]
    if output.centerness is not None:
        parts = [output.logits, output.codes[..., :4], output.codes[..., 4:], output.centerness]
    recorded = golden.facts["inference"][case]["head_outputs"]
    for ours, levels in zip(parts, recorded, strict=True):
        for level, facts in zip(ours.split(output.level_sizes, dim=1), levels, strict=True):
            assert level.numel() == np.prod(facts["shape"])
            assert_statistics(level, facts)


def test_detections_are_the_published_ones(run):
    golden, case, _, _, output = run
    for row, ours in enumerate(golden.model.head.detect(output, golden.sizes(case))):
        boxes, scores, labels = (
            golden.arrays[f"{case}_{row}_{what}"] for what in ("boxes", "scores", "labels")
        )
        assert len(boxes) > 300
        lost = unpaired(boxes, labels + 1, ours["rboxes"], ours["labels"])
        extra = unpaired(ours["rboxes"], ours["labels"], boxes, labels + 1)
        # Measured: the same sets. On another machine a score may cross the threshold.
        assert lost.sum() <= 1
        assert extra.sum() <= 1
        # Both sorted: equal sets agree row by row.
        torch.testing.assert_close(ours["scores"][~extra], scores[~lost], rtol=0, atol=1e-4)


def break_ties(head, monkeypatch, ties, targets) -> None:
    """Leave these anchors to the background, after a look whether they are tied at all."""
    match, images = head.match, iter(range(len(targets)))

    def match_as_published(output, target):
        matches, image = match(output, target), next(images)
        for anchor in (anchor for where, anchor in ties if where == image):
            gt = target["rboxes"][matches[anchor]][None]
            rivals = (matches == matches[anchor]).nonzero().squeeze(1)
            overlaps = box_iou_rotated(output.priors[rivals].double(), gt.double()).squeeze(1)
            own = overlaps[rivals == anchor]
            assert own < head.config.retinanet_negative_iou_threshold
            assert ((overlaps - own).abs() < 1e-8).sum() > 1
            matches[anchor] = BACKGROUND
        return matches

    monkeypatch.setattr(head, "match", match_as_published)


@pytest.mark.parametrize(("name", "case"), SMALL)
def test_losses_and_gradients_of_a_step_are_the_published_ones(name, case, published, monkeypatch):
    golden = published(name)
    model, targets = golden.model.train(), golden.targets(case)
    model.zero_grad()
    break_ties(model.head, monkeypatch, BROKEN_TIES.get((name, case), ()), targets)
    if case == "square":
        losses = model(golden.images(case), targets)
    else:
        batch, _ = pad_batch(golden.images(case), 32)
        output = model.head(model.fpn(model.backbone(batch)))
        losses = model.head.losses(output, targets, golden.judged_sizes(case))
    facts = golden.facts["training"][case]
    ours = {"loss_cls": "loss_classifier", "loss_bbox": "loss_box_reg"}
    ours["loss_centerness"] = "loss_centerness"
    expected = {ours[key]: np.sum(value) for key, value in facts["losses"].items()}
    # Measured: 1e-6, for FCOS 2e-5: MMRotate's IoU is 2e-4 off there.
    assert {k: v.item() for k, v in losses.items()} == pytest.approx(expected, rel=1e-4)

    sum(losses.values()).backward()
    norms = {
        parameter_name: parameter.grad.double().norm().item()
        for parameter_name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    recorded = facts["gradient_norms"]
    names = own_names(recorded)
    assert norms == pytest.approx({names[k]: v for k, v in recorded.items()}, rel=3e-3)


@pytest.fixture(scope="module")
def grids(shared_dir):
    with np.load(shared_dir / "golden" / "anchors.npz") as arrays:
        cases = json.loads(str(arrays["meta"]))["cases"]
    return {case["name"]: case for case in cases}


@pytest.mark.parametrize("name", ["retina_le90", "retina_None", "fcos_points"])
@pytest.mark.parametrize("level", range(5))
def test_priors_equal_those_of_the_published_models_bit_by_bit(grids, name, level):
    case, stride = grids[name], 8 * 2**level
    if name == "fcos_points":
        priors = level_points(*case["feature_sizes"][level], stride, CPU)
    else:
        scales = octave_scales(case["octave_base_scale"], case["scales_per_octave"])
        base = base_anchors(stride, scales, squarest_first(sorted(case["ratios"])))
        hboxes = level_anchors(*case["feature_sizes"][level], stride, base, CPU)
        priors = anchor_rboxes(hboxes, case["angle_version"] or "zero")
    assert len(priors) == case["levels"][level]["count"]
    assert zlib.crc32(priors.numpy().tobytes()) == case["levels"][level]["crc32"]
