"""Time and memory of the rotated-box operations beside other ways to the same answer.

``python benchmarks/ops.py`` prints one table for each operation and, last, its figures beside the
limits that the project sets itself. Each line is measured in a process of its own: seconds are the
median of up to seven calls, memory is what the first call adds to the process at its peak. All
contenders get the same input, and their answers are compared. Runs on Linux.
"""

import argparse
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import shapely
import torch
import torchvision
from torch import Tensor

from measuring import (
    Prepared,
    Target,
    compare,
    describe_machine,
    growth,
    judge,
    last,
    ratio,
    show,
)
from obbflow.geometry import rbox_to_hbox, rbox_to_qbox
from obbflow.ops import box_iou_rotated, nms_rotated, roi_align_rotated, sparse_iou_rotated

DENSITY = 0.002  # boxes a px^2: 20,000 of them are a scene of 3,162 px
IOU_THRESHOLD = 0.1  # of NMS
DETECTIONS_OF_AN_OBJECT = 10
STRIDE = 4
OUTPUT_SIZE = 7

MeasureAll = Callable[..., pd.DataFrame]  # ``compare``, but for threads and repeats


# Rotated IoU, many to many


def draw_boxes(count: int, span: float, seed: int) -> Tensor:
    """Return (count, 5) rboxes at random places of a square scene, sides from 10 to 60 px."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.rand(count, 2, generator=generator) * span
    sides = 10 * 6 ** torch.rand(count, 2, generator=generator)
    angle = (torch.rand(count, 1, generator=generator) - 0.5) * math.pi
    return torch.cat([centre, sides, angle], dim=1)


def iou_torchvision(a: Tensor, b: Tensor) -> Tensor:
    """Return the (N, M) table of torchvision's kernel: degrees, counter-clockwise."""
    a, b = (torch.cat([boxes[:, :4], -boxes[:, 4:].rad2deg()], dim=1) for boxes in (a, b))
    return torchvision.ops.box_iou(a, b, fmt="cxcywhr")


def iou_shapely(a: Tensor, b: Tensor) -> np.ndarray:
    """Return the IoU of the pairs that an R-tree finds."""
    p, q = polygons(a), polygons(b)
    columns, rows = shapely.STRtree(p).query(q, predicate="intersects")
    p, q = p[rows], q[columns]
    common = shapely.area(shapely.intersection(p, q))
    return common / (shapely.area(p) + shapely.area(q) - common)


def iou_loop(a: Tensor, b: Tensor) -> list[float]:
    """Return the IoU of all pairs, one polygon with one other at a time."""
    return [p.intersection(q).area / p.union(q).area for p in polygons(a) for q in polygons(b)]


def polygons(rboxes: Tensor) -> np.ndarray:
    """Return (N,) shapely polygons."""
    return shapely.polygons(rbox_to_qbox(rboxes.double()).view(-1, 4, 2).numpy())


LOOP = "Python loop"
IOU = {
    "ours, sparse": lambda a, b: sparse_iou_rotated(a, b).values,
    "ours, table": box_iou_rotated,
    "torchvision, table": iou_torchvision,
    "shapely, R-tree": iou_shapely,
    LOOP: iou_loop,
}


def prepare_iou(contender: str, count: int, other_count: int, span: float) -> Prepared:
    """Prepare the IoU of two sets of boxes in a scene; the answer is the sum over all pairs."""
    a, b = draw_boxes(count, span, seed=0), draw_boxes(other_count, span, seed=1)
    return Prepared(
        lambda: IOU[contender](a, b),
        lambda ious: [float(torch.as_tensor(ious).sum(dtype=torch.float64))],
    )


def count_touching(count: int, other_count: int, span: float) -> int:
    """Return how many pairs of such a scene overlap."""
    a, b = draw_boxes(count, span, seed=0), draw_boxes(other_count, span, seed=1)
    return len(sparse_iou_rotated(a, b).values)


def side_of_scene(count: float) -> float:
    """Return the side, px, of a square scene with ``count`` boxes."""
    return math.sqrt(count / DENSITY)


# NMS


def draw_detections(count: int) -> tuple[Tensor, Tensor]:
    """Return boxes (count, 5) and scores: ten uncertain detections of each object of a scene."""
    objects = count // DETECTIONS_OF_AN_OBJECT
    boxes = draw_boxes(objects, side_of_scene(objects), seed=0).repeat(DETECTIONS_OF_AN_OBJECT, 1)
    generator = torch.Generator().manual_seed(0)
    spread = torch.tensor([2.0, 2.0, 1.0, 1.0, 0.05])
    boxes = boxes + spread * torch.randn(boxes.shape, generator=generator)
    return boxes, torch.rand(len(boxes), generator=generator)


def nms_over_table(
    table: Callable[[Tensor, Tensor], Tensor], boxes: Tensor, scores: Tensor
) -> Tensor:
    """Return what greedy suppression over an (N, N) table of IoU keeps."""
    ious = table(boxes, boxes)
    is_suppressed = torch.zeros(len(boxes), dtype=torch.bool)
    kept = []
    for row in scores.argsort(descending=True, stable=True).tolist():
        if not is_suppressed[row]:
            kept.append(row)
            is_suppressed |= ious[row] > IOU_THRESHOLD
    return torch.tensor(kept)


NMS = {
    "ours": partial(nms_rotated, iou_threshold=IOU_THRESHOLD),
    "greedy, our table": partial(nms_over_table, box_iou_rotated),
    "greedy, torchvision's table": partial(nms_over_table, iou_torchvision),
}


def prepare_nms(contender: str, count: int) -> Prepared:
    """Prepare NMS of detections; the answer is the kept rows, in order."""
    boxes, scores = draw_detections(count)
    return Prepared(lambda: NMS[contender](boxes, scores), lambda kept: kept.tolist())


# RoIAlign, forward and backward


def prepare_roi_align(
    contender: str, count: int, channels: int, side: int, sampling_ratio: int
) -> Prepared:
    """Prepare rois of 2 to 32 feature px; the answer is the sums of result and gradient."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, channels, side, side, generator=generator)
    if contender.endswith("channels last"):
        features = features.contiguous(memory_format=torch.channels_last)
    features.requires_grad_()
    rboxes = draw_boxes(count, span=side * STRIDE, seed=0)
    rboxes[:, 2:4] = STRIDE * 2 * 16 ** torch.rand(count, 2, generator=generator)
    grad = torch.rand(count, channels, OUTPUT_SIZE, OUTPUT_SIZE, generator=generator)
    if "any angle" not in contender:
        rboxes[:, 4] = 0
    is_ours = contender.startswith("ours")
    boxes = rboxes if is_ours else rbox_to_hbox(rboxes)
    rois = torch.cat([torch.zeros(count, 1), boxes], dim=1)
    pool = roi_align_rotated if is_ours else torchvision.ops.roi_align

    def call() -> tuple[Tensor, Tensor]:
        pooled = pool(features, rois, OUTPUT_SIZE, 1 / STRIDE, sampling_ratio, aligned=True)
        return pooled.detach(), torch.autograd.grad(pooled, features, grad)[0]

    def answer(result: tuple[Tensor, Tensor]) -> list[float]:
        if "any angle" in contender:
            return []  # no peer turns its rois
        return [float(values.abs().sum(dtype=torch.float64)) for values in result]

    return Prepared(call, answer)


# What is compared


def benchmark_iou(measure_all: MeasureAll, *, is_quick: bool) -> list[Target]:
    """Compare rotated IoU of two sets: in one scene, in growing ones, and in denser ones."""
    contenders = dict.fromkeys(IOU, math.inf)
    scene = (100, 50, 224) if is_quick else (2000, 500, 1000)
    fixed = measure_all(prepare_iou, contenders, [scene])
    show("Rotated IoU of {} x {} boxes over {} px".format(*scene), fixed)

    small = 100 if is_quick else 1000
    counts = (100, 200, 400) if is_quick else (500, 1000, 2000, 5000, 10_000, 20_000)
    settings = [(count, count, side_of_scene(count)) for count in counts]
    growing = measure_all(prepare_iou, contenders | {LOOP: small}, settings)
    growing.insert(3, "pairs", [count_touching(*setting) for setting in growing["setting"]])
    title = f"Rotated IoU of N x N boxes, scene grows at equal density ({LOOP} up to {small} boxes)"
    show(title, growing, "boxes")

    count, densities = (200, (1, 4)) if is_quick else (5000, (0.25, 1, 4, 16))
    settings = [(count, count, side_of_scene(count / density)) for density in densities]
    dense = measure_all(prepare_iou, contenders | {LOOP: 0}, settings)
    dense.insert(3, "pairs", [count_touching(*setting) for setting in dense["setting"]])
    show(f"Rotated IoU of N x N boxes, growing density (without {LOOP})", dense, "pairs")

    sparse, table, peer = "ours, sparse", "ours, table", "torchvision, table"
    fixed_size, largest = "{} x {}".format(*scene), f"{counts[-1]} x {counts[-1]}"
    return [
        Target(f"IoU {fixed_size}: torchvision / our table", ratio(fixed, peer, table), at_least=3),
        Target(f"IoU {largest}: torchvision / sparse", ratio(growing, peer, sparse), at_least=20),
        Target(f"IoU {largest}: torchvision / our table", ratio(growing, peer, table), at_least=20),
        Target(f"IoU {largest}, sparse: MB", last(growing, sparse, "MB"), at_most=2000),
        Target(f"IoU {largest}, table: MB", last(growing, table, "MB"), at_most=2000),
        Target("IoU, sparse: power of boxes", growth(growing, sparse, "boxes"), at_most=1.2),
        Target("IoU, sparse: power of pairs", growth(dense, sparse, "pairs"), at_most=1.2),
    ]


def benchmark_nms(measure_all: MeasureAll, *, is_quick: bool) -> list[Target]:
    """Compare NMS with greedy suppression over a table."""
    counts = (200, 400) if is_quick else (1000, 2000, 5000, 10_000, 20_000)
    settings = [(count,) for count in counts]
    measured = measure_all(prepare_nms, dict.fromkeys(NMS, math.inf), settings)
    show("NMS, ten detections of each object", measured, "boxes")
    return [
        Target(f"NMS {counts[-1]}: {peer} / ours", ratio(measured, peer, "ours"), at_least=5)
        for peer in ("greedy, torchvision's table", "greedy, our table")
    ]


def benchmark_roi_align(measure_all: MeasureAll, *, is_quick: bool) -> list[Target]:
    """Compare RoIAlign, forward and backward, with torchvision's for level boxes."""
    names = ["ours, level", "ours, any angle", "torchvision, level"]
    contenders = dict.fromkeys([*names, *(f"{name}, channels last" for name in names)], math.inf)
    channels, side = (16, 64) if is_quick else (256, 256)
    counts = (32,) if is_quick else (128, 2000, 512)  # the last one is judged
    targets = []
    for sampling_ratio, samples in ((2, "2 x 2 samples"), (0, "adaptive")):
        settings = [(count, channels, side, sampling_ratio) for count in counts]
        measured = measure_all(prepare_roi_align, contenders, settings)
        show(f"RoIAlign + backward, {channels} x {side} x {side} features, {samples}", measured)
        for name in names[:2]:
            what = f"RoIAlign {counts[-1]}, {samples}: {name} / torchvision"
            targets.append(Target(what, ratio(measured, name, names[2]), at_most=2))
    return targets


def main() -> None:
    """Measure and print."""
    benchmarks = {"iou": benchmark_iou, "nms": benchmark_nms, "roi_align": benchmark_roi_align}
    parser = argparse.ArgumentParser(description="Time and memory of rotated-box operations.")
    parser.add_argument("--quick", action="store_true", help="small sizes, which prove nothing")
    parser.add_argument("--only", default=",".join(benchmarks), help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(benchmarks):
        parser.error(f"--only knows {', '.join(benchmarks)}, not {', '.join(sorted(unknown))}")

    print(describe_machine(options.threads))
    repeats = 2 if options.quick else 7
    measure_all = partial(compare, threads=options.threads, repeats=repeats)
    targets: list[Target] = []
    for name in chosen:
        targets += benchmarks[name](measure_all, is_quick=options.quick)
    figures = judge(targets)
    if options.quick:
        figures = figures.drop(columns="verdict")  # limits are meant for the full sizes
    print(f"\nFigures and limits\n\n{figures.to_string(index=False)}")


if __name__ == "__main__":
    main()
