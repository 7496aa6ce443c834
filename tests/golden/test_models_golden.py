"""Anchors, box coders, matching and losses against MMRotate 1.x; sections 4, 5 and 8 of its README.

Where several descriptions of one rectangle exist (squares, turns of exactly 45 degrees), rectangles
are compared: the contract describes a square in another way than MMRotate does.
"""

import json
import math
import zlib

import numpy as np
import pytest
import torch
from torch import Tensor

from obbflow.geometry import normalize_le90, rbox_to_hbox, rbox_to_qbox
from obbflow.models.anchors import base_anchors, level_anchors
from obbflow.models.coders import (
    DeltaCoder,
    DistanceAngleCoder,
    HorizontalDeltaCoder,
    MidpointOffsetCoder,
)
from obbflow.models.matching import BACKGROUND, IGNORED, MaxIoUMatcher, Overlap
from obbflow.ops.iou import overlaps_rotated
from obbflow.ops.pairs import overlaps_horizontal

DELTA_CODERS = [
    "oriented_rcnn_head",
    "retinanet",
    "plain_le90",
    "retinanet_le135",
    "rotated_faster_rcnn_head",
]
ASSIGNERS = ["rcnn_rotated", "rpn", "retina_rotated", "retina_enclosing", "faster_rcnn_head"]
# float32 holds 1,000 px to 6e-5; MMRotate's own rectangles of 377 px come out of OpenCV's float32.
PX = 5e-3
ROUNDING = 2e-5  # of deltas, which are near 1: a few units in the last place of float32


class Golden:
    """The arrays of one file as tensors, and its description."""

    def __init__(self, path):
        with np.load(path) as arrays:
            self.arrays = dict(arrays.items())
        self.meta = json.loads(str(self.arrays.pop("meta")))

    def __getitem__(self, name: str) -> Tensor:
        return torch.from_numpy(self.arrays[name])

    def case(self, name: str) -> dict:
        return next(case for case in self.meta["cases"] if case["name"] == name)


@pytest.fixture(scope="module")
def load(shared_dir):
    return lambda name: Golden(shared_dir / "golden" / f"{name}.npz")


def corner_distance(a: Tensor, b: Tensor) -> Tensor:
    """Return (N,) px: how far corners of rectangles lie apart, whichever is called the first."""
    a, b = (rbox_to_qbox(boxes.double()).reshape(-1, 4, 2) for boxes in (a, b))
    shifted = [(a - b.roll(step, dims=1)).norm(dim=2).amax(dim=1) for step in range(4)]
    return torch.stack(shifted).amin(dim=0)


@pytest.mark.parametrize("name", ["rpn", "rpn_224x320"])
@pytest.mark.parametrize("level", range(5))
def test_anchors_equal_those_of_the_published_models_bit_by_bit(load, name, level):
    golden = load("anchors")
    case = golden.case(name)
    stride = case["strides"][level]
    base = base_anchors(stride, case["scales"], case["ratios"])
    anchors = level_anchors(*case["feature_sizes"][level], stride, base, torch.device("cpu"))
    assert len(anchors) == case["levels"][level]["count"]
    assert torch.equal(anchors[:30], golden[f"{name}_l{level}_first"])
    assert torch.equal(anchors[-30:], golden[f"{name}_l{level}_last"])
    assert zlib.crc32(anchors.numpy().tobytes()) == case["levels"][level]["crc32"]


def delta_coder(case: dict) -> DeltaCoder:
    return DeltaCoder(
        means=tuple(case["target_means"]),
        stds=tuple(case["target_stds"]),
        norm_factor=case["norm_factor"],
        edge_swap=case["edge_swap"],
        proj_xy=case.get("proj_xy", False),  # level priors: no difference
    )


@pytest.mark.parametrize("name", DELTA_CODERS)
def test_rotated_deltas_encode_as_published(load, name):
    golden = load("box_coders")
    case, gt = golden.case(name), normalize_le90(golden["gt"])
    priors = golden[case["prior"]]
    coder, expected = delta_coder(case), golden[f"{name}_encoded"]
    encoded = coder.encode(priors, gt)

    # Two readings of a target can be turned equally far: there rounding decides between them.
    turn = gt[:, 4] - (priors[:, 4] if priors.shape[1] == 5 else 0)
    period, limit = (2, math.pi / 4) if case["edge_swap"] else (1, math.pi / 2)
    is_tie = (turn.remainder(math.pi / period) - limit).abs() < 1e-5
    plain = ~(is_tie | (gt[:, 2] == gt[:, 3]))
    assert plain.sum() > 370
    torch.testing.assert_close(encoded[plain], expected[plain], rtol=1e-5, atol=ROUNDING)
    distance = corner_distance(coder.decode(priors, encoded), golden[f"{name}_decoded_back"])
    assert distance.max() < PX


@pytest.mark.parametrize("name", DELTA_CODERS)
@pytest.mark.parametrize("what", ["decoded", "decoded_back"])
def test_rotated_deltas_decode_as_published(load, name, what):
    golden = load("box_coders")
    deltas = golden["deltas5"] if what == "decoded" else golden[f"{name}_encoded"]
    case, expected = golden.case(name), golden[f"{name}_{what}"]
    decoded = delta_coder(case).decode(golden[case["prior"]], deltas)
    assert corner_distance(decoded, expected).max() < PX
    if case["angle_version"] == "le135":  # ours is always le90
        expected = normalize_le90(expected)
    plain = (expected[:, 2] - expected[:, 3]).abs() > 1e-3 * expected[:, 2].abs()
    torch.testing.assert_close(decoded[plain], expected[plain], rtol=1e-6, atol=1e-4)


def test_midpoint_offsets_encode_as_published(load):
    golden = load("box_coders")
    case = golden.case("oriented_rpn")
    coder = MidpointOffsetCoder(tuple(case["target_means"]), tuple(case["target_stds"]))
    encoded = coder.encode(golden["hbox_priors"], golden["gt"])
    torch.testing.assert_close(encoded, golden["oriented_rpn_encoded"], rtol=1e-5, atol=ROUNDING)


@pytest.mark.parametrize("what", ["decoded", "decoded_back"])
def test_midpoint_offsets_decode_to_the_published_rectangles(load, what):
    golden = load("box_coders")
    deltas = golden["deltas6"] if what == "decoded" else golden["oriented_rpn_encoded"]
    decoded = MidpointOffsetCoder().decode(golden["hbox_priors"], deltas)
    assert corner_distance(decoded, golden[f"oriented_rpn_{what}"]).max() < PX
    assert (decoded[:, 2] >= decoded[:, 3]).all()
    assert ((decoded[:, 4] >= -math.pi / 2) & (decoded[:, 4] < math.pi / 2)).all()


def test_horizontal_deltas_encode_as_published(load):
    golden = load("box_coders")
    case = golden.case("faster_rpn")
    coder = HorizontalDeltaCoder(tuple(case["target_means"]), tuple(case["target_stds"]))
    encoded = coder.encode(golden["hbox_priors"], golden["gt"])
    torch.testing.assert_close(encoded, golden["faster_rpn_encoded"], rtol=1e-5, atol=ROUNDING)


def test_horizontal_deltas_decode_to_the_published_boxes_cut_at_the_border(load):
    golden = load("box_coders")
    size = tuple(golden.case("faster_rpn")["decode_max_shape"])
    decoded = HorizontalDeltaCoder().decode(golden["hbox_priors"], golden["deltas4"], size)
    torch.testing.assert_close(decoded, golden["faster_rpn_decoded"], rtol=1e-6, atol=1e-4)


def test_distances_encode_as_published(load):
    golden = load("box_coders")
    encoded = DistanceAngleCoder().encode(golden["fcos_points"], golden["fcos_gt"])
    torch.testing.assert_close(encoded, golden["fcos_encoded"], rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(
    ("distances", "rboxes"),
    [("fcos_distances", "fcos_decoded"), ("fcos_encoded", "fcos_decoded_back")],
)
def test_distances_decode_to_the_published_rectangles(load, distances, rboxes):
    golden = load("box_coders")
    decoded = DistanceAngleCoder().decode(golden["fcos_points"], golden[distances])
    assert corner_distance(decoded, golden[rboxes]).max() < PX
    # Published with either side longer.
    expected = normalize_le90(golden[rboxes])
    plain = (expected[:, 2] - expected[:, 3]).abs() > 1e-3 * expected[:, 2]
    torch.testing.assert_close(decoded[plain], expected[plain], rtol=1e-6, atol=1e-4)


def assigner_input(golden: Golden, case: dict) -> tuple[Tensor, Tensor, Overlap]:
    """Return ground truth, priors and the overlaps that the published assigner compares."""
    gt, priors = golden["gt"], golden[case["priors"]]
    if case["iou_calculator"]["type"] == "RBboxOverlaps2D":
        return gt, priors, overlaps_rotated
    if priors.shape[1] == 5:
        priors = rbox_to_hbox(priors)
    return rbox_to_hbox(gt), priors, overlaps_horizontal


@pytest.mark.parametrize("name", ASSIGNERS)
def test_the_best_overlap_of_every_prior_is_as_published(load, name):
    golden = load("assigners")
    gt, priors, overlap = assigner_input(golden, golden.case(name))
    best = torch.zeros(len(priors))
    for _, columns, values in overlap(gt, priors):
        best.scatter_reduce_(0, columns, values, "amax")
    expected = golden[f"assign_{name}_max_overlaps"]
    torch.testing.assert_close(best, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ASSIGNERS)
def test_every_prior_is_matched_as_published(load, name):
    golden = load("assigners")
    case = golden.case(name)
    gt, priors, overlap = assigner_input(golden, case)
    matcher = MaxIoUMatcher(
        positive=case["pos_iou_thr"],
        negative=case["neg_iou_thr"],
        min_positive=case["min_pos_iou"],
        low_quality=case["match_low_quality"],
    )
    # Published: -1 ignored, 0 background, k the ground truth k - 1.
    published = golden[f"assign_{name}_gt_inds"]
    expected = torch.where(published == -1, IGNORED, published - 1)
    matches = matcher.match(gt, priors, overlap)
    assert torch.equal(matches, expected)
    assert (matches == BACKGROUND).sum() == case["negatives"]
