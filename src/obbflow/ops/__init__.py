"""Exact operations on rotated boxes: IoU, non-maximum suppression, RoIAlign."""

from obbflow.ops.iou import box_iou_rotated, pairwise_iou_rotated, sparse_iou_rotated
from obbflow.ops.nms import batched_nms_rotated, nms_rotated
from obbflow.ops.roi_align import roi_align_rotated

__all__ = [
    "batched_nms_rotated",
    "box_iou_rotated",
    "nms_rotated",
    "pairwise_iou_rotated",
    "roi_align_rotated",
    "sparse_iou_rotated",
]
