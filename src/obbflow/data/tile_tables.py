"""Which tiles there are and what lies on them: tables ``tile_index`` and ``tile_annotations``.

No pixel is touched here; ``tile_store`` writes the files.
"""

import hashlib
import logging
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from obbflow.data.class_rules import no_object_on_tiles
from obbflow.data.progress import track
from obbflow.data.tiling import CutObjects, ObjectCutter, windows
from obbflow.tables import CORNERS, RBOX, TILE_ANNOTATIONS, TILE_INDEX, make_table

logger = logging.getLogger(__name__)


@dataclass
class _Rows:
    """Rows of both tables, as they come."""

    tiles: list[tuple[str, str, str, int, int, int, int, int]] = field(default_factory=list)
    objects: list[pd.DataFrame] = field(default_factory=list)
    n_thinned: int = 0


def plan_tiles(
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    *,
    tile_size: int,
    overlap: int,
    min_visible: float,
    keep_empty: float,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tiles of all images, and the objects and ignore regions on each.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``; its ignore regions stay such.
        tile_size: Side of a tile, px.
        overlap: Of neighbouring tiles, px.
        min_visible: Share of an object's area inside, below which it is an ignore region.
        keep_empty: Share of the training tiles without an object that is kept. Which ones depends
            on their names alone.

    Returns:
        Table ``tile_index`` with an empty ``path``, in the order of ``images`` and row by row
        within one; and table ``tile_annotations``.
    """
    rows = _Rows()
    by_image = annotations.groupby("image_id").indices
    nothing = np.array([], dtype=np.int64)
    for image in track(images.to_dict("records"), len(images), "Cutting labels"):
        image_id, split = image["image_id"], image["split"]
        objects = annotations.iloc[by_image.get(image_id, nothing)]
        cutter = ObjectCutter(objects[list(CORNERS)].to_numpy(np.float64))
        for x, y in windows(image["width"], image["height"], tile_size, overlap):
            width = min(tile_size, image["width"] - x)
            height = min(tile_size, image["height"] - y)
            cut = cutter.cut(x, y, width, height, min_visible)
            ignore = cut.ignore | objects["ignore"].to_numpy(bool)[cut.rows]
            tile_id = f"{image_id.replace('/', '__')}__{tile_size}__{x}___{y}"
            n_objects = int((~ignore).sum())
            if n_objects == 0 and split == "train" and _share(tile_id) >= keep_empty:
                rows.n_thinned += 1
                continue
            rows.tiles.append((tile_id, image_id, split, x, y, width, height, n_objects))
            if len(cut.rows):
                rows.objects.append(_describe_objects(tile_id, objects, cut, ignore))
    if rows.n_thinned:
        logger.info("Left out %s training tiles without objects", f"{rows.n_thinned:,}")
    columns = [name for name in TILE_INDEX if name != "path"]
    index = make_table(pd.DataFrame(rows.tiles, columns=columns).assign(path=""), TILE_INDEX)
    objects_found = pd.concat(rows.objects, ignore_index=True) if rows.objects else None
    tile_annotations = make_table(objects_found, TILE_ANNOTATIONS)
    _warn_about_lost(annotations, tile_annotations, min_visible)
    return index, tile_annotations


def require_tile_with_object(
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    where: str,
    *,
    tile_size: int,
    overlap: int,
    min_visible: float,
) -> None:
    """Raise unless some training tile shows enough of an object; stops at the first that does.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``.
        where: The data set's folder, for the message.
        tile_size: Side of a tile, px.
        overlap: Of neighbouring tiles, px.
        min_visible: Share of an object's area inside, below which it is an ignore region.

    Raises:
        DataError: If no training tile does.
    """
    by_image = annotations[~annotations["ignore"]].groupby("image_id")
    n_tiles = 0
    for image in images[images["split"] == "train"].to_dict("records"):
        corners = windows(image["width"], image["height"], tile_size, overlap)
        n_tiles += len(corners)
        if image["image_id"] not in by_image.indices:
            continue
        objects = by_image.get_group(image["image_id"])
        cutter = ObjectCutter(objects[list(CORNERS)].to_numpy(np.float64))
        for x, y in corners:
            width, height = min(tile_size, image["width"] - x), min(tile_size, image["height"] - y)
            if not cutter.cut(x, y, width, height, min_visible).ignore.all():
                return
    raise no_object_on_tiles(where, n_tiles)


def _share(tile_id: str) -> float:
    """Return a number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(tile_id.encode()).digest()[:6], "big") / 2**48


def _describe_objects(
    tile_id: str, objects: pd.DataFrame, cut: CutObjects, ignore: np.ndarray
) -> pd.DataFrame:
    shown = objects.iloc[cut.rows]
    return pd.DataFrame(
        {
            "tile_id": tile_id,
            "class_name": shown["class_name"].to_numpy(),
            **dict(zip(RBOX, cut.rboxes.T, strict=True)),
            "difficult": shown["difficult"].to_numpy(),
            "ignore": ignore,
            "iof": cut.iof,
            "object_id": shown["object_id"].to_numpy(),
        }
    )


def _warn_about_lost(
    annotations: pd.DataFrame, tile_annotations: pd.DataFrame, min_visible: float
) -> None:
    """Say which objects no tile shows enough of: they are never trained on."""
    shown = tile_annotations.loc[~tile_annotations["ignore"], "object_id"]
    lost = annotations[~annotations["ignore"] & ~annotations["object_id"].isin(shown)]
    if lost.empty:
        return
    counts = lost["class_name"].value_counts().sort_index()
    logger.warning(
        "No tile shows %g of the area of these objects, so they are ignore regions only: %s. "
        "Raise tiling.tile_size or dataset.overlap, or lower tiling.min_visible",
        min_visible,
        ", ".join(f"{count:,} {name}" for name, count in counts.items()),
    )
