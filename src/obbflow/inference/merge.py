"""Detections of overlapping windows -> detections of whole images.

Two rules, in this order. A *fragment* is a box that a window's border cut off while another window
saw more of the object; it goes, whatever its score. Then non-maximum suppression with exact rotated
IoU, over all windows of an image. Neither ever compares boxes of two images.

Shapes: N detections of one image.
"""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from obbflow.geometry import rbox_to_hbox
from obbflow.inference.tables import PREDICTION_IMAGES, WINDOW_DETECTIONS
from obbflow.ops import batched_nms_rotated, sparse_iou_rotated
from obbflow.tables import DETECTIONS, RBOX, check_table, make_table

BORDER_TOUCH = 4.0
"""A box that comes so close to a border between windows, px, may be cut by it."""
FRAGMENT_IOF = 0.7
"""A fragment has at least this share of its area inside the larger box."""
FRAGMENT_SCORE = 0.5
"""The larger box has at least this share of the fragment's score."""

_WINDOW = ["window_x", "window_y", "window_width", "window_height"]


def merge_windows(
    window_detections: pd.DataFrame,
    images: pd.DataFrame,
    *,
    iou_threshold: float,
    class_agnostic: bool = False,
) -> pd.DataFrame:
    """Return each object once.

    Args:
        window_detections: Table ``WINDOW_DETECTIONS``, px of the images.
        images: Table ``PREDICTION_IMAGES``: every image of the detections.
        iou_threshold: A box goes when its IoU with a better one is above it.
        class_agnostic: Whether boxes of different classes are compared.

    Returns:
        Table ``DETECTIONS``, in the order of ``images``, best score first within one; equal
        scores keep the order of the windows.

    Raises:
        ValueError: If a column is missing, or an image of the detections.
    """
    check_table(window_detections, WINDOW_DETECTIONS, "window_detections")
    check_table(images, PREDICTION_IMAGES, "prediction_images")
    rows_of = window_detections.groupby("image_id", sort=False).indices
    missing = set(rows_of) - set(images["image_id"])
    if missing:
        raise ValueError(f"prediction_images lacks {', '.join(sorted(map(str, missing)))}")
    labels = np.zeros(len(window_detections), dtype=np.int64)
    if not class_agnostic:
        labels = pd.factorize(window_detections["class_name"])[0]
    rboxes = torch.tensor(window_detections[list(RBOX)].to_numpy("float64"))
    scores = torch.tensor(window_detections["score"].to_numpy("float64"))
    places = torch.tensor(window_detections[_WINDOW].to_numpy("float64"))

    kept = [np.empty(0, dtype=np.int64)]
    for image_id, width, height in images[["image_id", "width", "height"]].itertuples(index=False):
        rows = torch.from_numpy(rows_of.get(image_id, kept[0]))
        label = torch.from_numpy(labels)[rows]
        is_fragment = find_fragments(
            rboxes[rows], scores[rows], label, places[rows], (int(width), int(height))
        )
        rows, label = rows[~is_fragment], label[~is_fragment]
        keep = batched_nms_rotated(rboxes[rows], scores[rows], label, iou_threshold)
        kept.append(rows[keep].numpy())
    merged = window_detections.iloc[np.concatenate(kept)].reset_index(drop=True)
    return make_table(merged, DETECTIONS)


def find_fragments(
    rboxes: Tensor, scores: Tensor, labels: Tensor, places: Tensor, image_size: tuple[int, int]
) -> Tensor:
    """Return which boxes are parts, cut off by a window's border, of what another window saw.

    Such a box comes within ``BORDER_TOUCH`` of a border that its window shares with the rest of
    the image, and lies (``FRAGMENT_IOF``) in a larger box of the same label from another window
    that is not far less certain (``FRAGMENT_SCORE``). IoU alone would keep a short end of a long
    object, or even prefer it for its higher score.

    Args:
        rboxes: (N, 5) px of the image; N may be 0.
        scores: (N,).
        labels: (N,) int64.
        places: (N, 4) x, y, width and height of the window of each box, px of the image.
        image_size: Width and height, px.

    Returns:
        (N,) bool.
    """
    cut = _touches_inner_border(rboxes, places, image_size).nonzero().squeeze(1)
    i, j, iof = sparse_iou_rotated(rboxes[cut], rboxes, mode="iof")
    i = cut[i]
    areas = rboxes[:, 2] * rboxes[:, 3]
    inside = (iof >= FRAGMENT_IOF) & (labels[i] == labels[j]) & (areas[j] > areas[i])
    inside &= scores[j] >= FRAGMENT_SCORE * scores[i]
    inside &= (places[i] != places[j]).any(dim=1)
    is_fragment = torch.zeros(len(rboxes), dtype=torch.bool)
    is_fragment[i[inside]] = True
    return is_fragment


def _touches_inner_border(rboxes: Tensor, places: Tensor, image_size: tuple[int, int]) -> Tensor:
    """Return (N,) bool: does the box reach a side of its window that is not the image's?"""
    hboxes = rbox_to_hbox(rboxes)
    start, end = places[:, :2], places[:, :2] + places[:, 2:]
    is_low_inner = start > 0
    is_high_inner = end < places.new_tensor(image_size)
    low = is_low_inner & (hboxes[:, :2] <= start + BORDER_TOUCH)
    high = is_high_inner & (hboxes[:, 2:] >= end - BORDER_TOUCH)
    return (low | high).any(dim=1)
