"""The self-test of tiling: objects that went through it and back are where they were."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

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
    objects = _find_fitting(images, annotations, overlap, tiling.tile_size)
    tiles = tile_index.loc[tile_index["scale"] == 1, ["tile_id", "x", "y"]]
    shown = tile_annotations[(tile_annotations["iof"] >= WHOLE) & is_object(tile_annotations)]
    shown = shown.merge(tiles, on="tile_id").merge(objects, on="object_id")
    if shown.empty:
        return GeometryCheck(len(objects), 0, 0.0)
    corners = qbox_to_rbox(_tensor(shown, CORNERS))
    rboxes = _tensor(shown, RBOX)
    rboxes[:, :2] += _tensor(shown, ("x", "y"))
    error = (rbox_to_qbox(rboxes) - rbox_to_qbox(corners)).abs().amax()
    return GeometryCheck(len(objects), shown["object_id"].nunique(), float(error))


def _tensor(table: pd.DataFrame, columns: Iterable[str]) -> Tensor:
    """Return (N, len(columns)) float64, a copy: pandas may lend its own memory, read-only."""
    return torch.from_numpy(table[list(columns)].to_numpy(np.float64, copy=True))


def _find_fitting(
    images: pd.DataFrame, annotations: pd.DataFrame, overlap: int, tile_size: int
) -> pd.DataFrame:
    """Return object_id and corners of the objects that some tile has to show whole."""
    columns = ["image_id", "width", "height", "is_tile"]
    objects = annotations[is_object(annotations)].merge(images[columns], on="image_id")
    fits = np.ones(len(objects), dtype=bool)
    for axis, side in (("x", "width"), ("y", "height")):
        ends = objects[[name for name in CORNERS if name.startswith(axis)]].to_numpy(np.float64)
        low, high, length = ends.min(axis=1), ends.max(axis=1), objects[side].to_numpy()
        fits &= (low >= 0) & (high <= length)
        is_one_tile = objects["is_tile"].to_numpy(bool) | (length <= tile_size)
        fits &= is_one_tile | (high - low <= overlap)
    return objects.loc[fits, ["object_id", *CORNERS]]
