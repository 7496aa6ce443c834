"""The self-test of tiling: objects that went through it and back are where they were."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from obbflow.config import TilingSection
from obbflow.data.tiling import WHOLE
from obbflow.geometry import qbox_to_rbox, rbox_to_qbox
from obbflow.tables import CORNERS, RBOX, is_object


@dataclass(frozen=True)
class GeometryCheck:
    """What came of the self-test.

    ``n_fitting`` objects fit into the overlap of tiles, ``n_whole`` of these some tile shows whole;
    ``largest_error`` is the largest distance of a corner, along x or y, to where it was, px.
    """

    n_fitting: int
    n_whole: int
    largest_error: float


def check_geometry(
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    tile_index: pd.DataFrame,
    tile_annotations: pd.DataFrame,
    overlap: int,
    tiling: TilingSection,
) -> GeometryCheck:
    """Return how well objects are found again when tiles are put back into their images.

    An object inside its image whose enclosing box fits into the overlap is whole on some tile, as
    one whose image is no larger than a tile is. Looks at the tiles of scale 1.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``; ignore regions and look-alikes are left out.
        tile_index: Table ``tile_index``.
        tile_annotations: Table ``tile_annotations``.
        overlap: Of neighbouring tiles, px.
        tiling: Section ``tiling``; ``tile_size`` counts.
    """
    fitting = _find_fitting(images, annotations, overlap, tiling.tile_size)
    # Rows instead of merged tables: an unchanged run has to cost next to nothing.
    tile = pd.Index(tile_index["tile_id"]).get_indexer(tile_annotations["tile_id"])
    row = pd.Index(annotations["object_id"]).get_indexer(tile_annotations["object_id"])
    known = (tile >= 0) & (row >= 0)
    whole = (tile_annotations["iof"] >= WHOLE) & is_object(tile_annotations)
    shown = known & whole.to_numpy(bool)
    shown[shown] &= fitting[row[shown]] & tile_index["scale"].eq(1).to_numpy(bool)[tile[shown]]
    if not shown.any():
        return GeometryCheck(int(fitting.sum()), 0, 0.0)
    tile, row = tile[shown], row[shown]
    corners = qbox_to_rbox(torch.from_numpy(_columns(annotations, CORNERS)[row]))
    rboxes = _columns(tile_annotations, RBOX)[shown]
    rboxes[:, :2] += _columns(tile_index, ("x", "y"))[tile]
    error = (rbox_to_qbox(torch.from_numpy(rboxes)) - rbox_to_qbox(corners)).abs().amax()
    return GeometryCheck(int(fitting.sum()), len(np.unique(row)), float(error))


def _columns(table: pd.DataFrame, columns: Iterable[str]) -> NDArray[np.float64]:
    """Return (N, len(columns)) float64."""
    return table[list(columns)].to_numpy(np.float64)


def _find_fitting(
    images: pd.DataFrame, annotations: pd.DataFrame, overlap: int, tile_size: int
) -> NDArray[np.bool_]:
    """Return which objects some tile has to show whole, one value a row of ``annotations``."""
    image = pd.Index(images["image_id"]).get_indexer(annotations["image_id"])
    fits = is_object(annotations).to_numpy(bool) & (image >= 0)
    is_tile = images["is_tile"].to_numpy(bool)[image]
    corners = _columns(annotations, CORNERS).reshape(-1, 4, 2)
    low, high = corners.min(axis=1), corners.max(axis=1)
    lengths = images[["width", "height"]].to_numpy(np.float64)[image]
    fits &= ((low >= 0) & (high <= lengths)).all(axis=1)
    is_one_tile = is_tile[:, None] | (lengths <= tile_size)
    return fits & (is_one_tile | (high - low <= overlap)).all(axis=1)
