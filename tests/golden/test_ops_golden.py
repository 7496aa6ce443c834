"""Rotated IoU, NMS and RoIAlign against shapely (exact) and mmcv 2.3.6 (RoIAlign)."""

import json

import numpy as np
import pytest
import torch

from obbflow.ops import (
    batched_nms_rotated,
    box_iou_rotated,
    nms_rotated,
    pairwise_iou_rotated,
    roi_align_rotated,
    sparse_iou_rotated,
)

IOU_GROUPS = [
    "perturbed",
    "random",
    "identical",
    "equivalent_angle",
    "touching_edge",
    "touching_corner",
    "tiny",
    "huge_coordinates",
    "thin",
    "nested",
    "near_parallel",
    "disjoint",
    "tiny_in_huge",
    "axis_aligned",
    "bug_reports",
]


def load(path):
    with np.load(path) as file:
        golden = {name: torch.from_numpy(file[name]) for name in file.files if name != "meta"}
        return golden | {"meta": json.loads(str(file["meta"]))}


@pytest.fixture(scope="module")
def rotated_iou(request):
    return load(request.getfixturevalue("shared_dir") / "golden" / "rotated_iou.npz")


@pytest.fixture(scope="module")
def rotated_nms(request):
    return load(request.getfixturevalue("shared_dir") / "golden" / "rotated_nms.npz")


@pytest.fixture(scope="module")
def pooling(request):
    return load(request.getfixturevalue("shared_dir") / "golden" / "roi_align_rotated.npz")


def test_every_group_of_the_golden_pairs_is_tested(rotated_iou):
    assert sorted(rotated_iou["meta"]["groups"]) == sorted(IOU_GROUPS)


@pytest.mark.parametrize("mode", ["iou", "iof"])
@pytest.mark.parametrize("group", IOU_GROUPS)
def test_iou_is_the_exact_one(rotated_iou, group, mode):
    rows = rotated_iou["group"] == rotated_iou["meta"]["groups"].index(group)
    a, b = rotated_iou["boxes_a"][rows], rotated_iou["boxes_b"][rows]
    expected = rotated_iou[f"{mode}_true"][rows]
    # shapely clips in absolute coordinates and is itself right to about 1e-8 in the worst group.
    exact = pairwise_iou_rotated(a.double(), b.double(), mode)
    torch.testing.assert_close(exact, expected, rtol=0, atol=1e-8)
    rounded = pairwise_iou_rotated(a, b, mode)
    torch.testing.assert_close(rounded.double(), expected, rtol=0, atol=1e-7)  # float32 result


@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_tables_and_sparse_overlaps_hold_the_exact_values_of_all_pairs(rotated_iou, mode):
    columns = (rotated_iou[name] for name in ("boxes_a", "boxes_b", f"{mode}_true"))
    for a, b, expected in zip(*(column.split(600) for column in columns), strict=True):
        for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 1e-7)):
            table = box_iou_rotated(a.to(dtype), b.to(dtype), mode)
            paired = table.diagonal().double()
            torch.testing.assert_close(paired, expected, rtol=0, atol=tolerance)
            rows, columns, values = sparse_iou_rotated(a.to(dtype), b.to(dtype), mode)
            assert torch.equal(torch.stack([rows, columns], dim=1), table.nonzero())
            assert torch.equal(values, table[rows, columns])


@pytest.mark.parametrize("percent", [10, 30, 50, 70])
@pytest.mark.parametrize("name", ["s100", "s500", "s2000", "dense"])
def test_nms_keeps_what_greedy_suppression_with_exact_iou_keeps(rotated_nms, name, percent):
    boxes, scores, labels = (
        rotated_nms[f"{name}_{part}"] for part in ("boxes", "scores", "labels")
    )
    keep = nms_rotated(boxes, scores, percent / 100)
    assert keep.tolist() == rotated_nms[f"{name}_keep_{percent}_shapely"].tolist()
    keep = batched_nms_rotated(boxes, scores, labels, percent / 100)
    assert keep.tolist() == rotated_nms[f"{name}_batched_keep_{percent}_shapely"].tolist()


@pytest.mark.parametrize("direction", ["cw", "ccw"])
@pytest.mark.parametrize("ratio", [2, 0], ids=["two samples", "adaptive"])
@pytest.mark.parametrize("stride", [4, 8, 16, 32])
def test_pooled_features_are_those_of_mmcv(pooling, stride, ratio, direction):
    pooled = roi_align_rotated(
        pooling["features"],
        pooling[f"rois_s{stride}"],
        7,
        1 / stride,
        ratio,
        clockwise=direction == "cw",
    )
    expected = pooling[f"out_s{stride}_r{ratio}_{direction}"]
    torch.testing.assert_close(pooled, expected, rtol=0, atol=1e-4)


def test_pooled_features_without_the_half_pixel_are_those_of_mmcv(pooling):
    pooled = roi_align_rotated(pooling["features"], pooling["rois_s8"], 7, 1 / 8, 2, aligned=False)
    torch.testing.assert_close(pooled, pooling["out_s8_r2_cw_notaligned"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("ratio", [2, 0], ids=["two samples", "adaptive"])
def test_gradient_of_pooling_is_that_of_mmcv(pooling, ratio):
    features = pooling["features"].clone().requires_grad_()
    pooled = roi_align_rotated(features, pooling["rois_s8"], 7, 1 / 8, ratio)
    pooled.backward(torch.linspace(-1, 1, pooled.numel()).view_as(pooled))
    expected = pooling[f"grad_s8_r{ratio}_cw"]
    torch.testing.assert_close(features.grad, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("ratio", [2, 0], ids=["two samples", "adaptive"])
def test_level_rois_pool_as_plain_roi_align(pooling, ratio):
    image, x1, y1, x2, y2 = pooling["hrois_s8"].unbind(dim=1)
    level = [image, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, torch.zeros_like(image)]
    pooled = roi_align_rotated(pooling["features"], torch.stack(level, dim=1), 7, 1 / 8, ratio)
    torch.testing.assert_close(pooled, pooling[f"hout_s8_r{ratio}"], rtol=0, atol=1e-4)
