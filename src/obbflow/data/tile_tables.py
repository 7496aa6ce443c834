"""Which tiles there are and what lies on them: tables ``tile_index`` and ``tile_annotations``.

No pixel is touched here; ``tile_store`` writes the files.
"""

import hashlib
import logging
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from obbflow.config import TilingSection
from obbflow.data.class_rules import no_object_on_tiles
from obbflow.data.progress import track
from obbflow.data.tiling import CutObjects, ObjectCutter, Window, fuller_windows, windows
from obbflow.tables import CORNERS, RBOX, TILE_ANNOTATIONS, TILE_INDEX, is_object, make_table

logger = logging.getLogger(__name__)

Image = Mapping[Hashable, Any]
"""A row of table ``images``."""


@dataclass(frozen=True)
class TilePlace:
    """Where a tile lies: ``x``, ``y``, ``width``, ``height`` in px of the image at ``scale``.

    ``size`` is the side of the square that the tile is padded to, None for an image that is a tile
    already.
    """

    scale: float
    size: int | None
    x: int
    y: int
    width: int
    height: int


def plan_tiles(
    images: pd.DataFrame, annotations: pd.DataFrame, overlap: int, tiling: TilingSection
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tiles of all images, and the objects, ignore regions and look-alikes on each.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``; its ignore regions stay such. So do its look-alikes,
            whatever part of them a tile shows: background is background.
        overlap: Of neighbouring tiles, px.
        tiling: Section ``tiling``. Which of the tiles without object and look-alike
            stay depends on their names.

    Returns:
        Table ``tile_index`` with an empty ``path`` and one more column ``size`` (of the padded
        tile, px; missing for an image that is a tile already), in the order of ``images``, scales
        and sizes; and table ``tile_annotations``.
    """
    of_image = _ObjectsOfImages(annotations)
    tiles: list[tuple[Any, ...]] = []
    found: list[tuple[NDArray[np.int64], CutObjects, NDArray[np.bool_]]] = []
    n_thinned = 0
    for image in track(images.to_dict("records"), len(images), "Cutting labels"):
        rows, cut_all = of_image.cut(image, overlap, tiling)
        for place, cut in cut_all:
            lookalike = of_image.lookalike[rows[cut.rows]]
            ignore = (cut.ignore | of_image.ignore[rows[cut.rows]]) & ~lookalike
            tile_id = name_tile(image["image_id"], place)
            n_objects = int((~ignore & ~lookalike).sum())
            is_empty = n_objects == 0 and not lookalike.any()
            is_train = image["split"] == "train"
            if is_empty and is_train and _share(tile_id) >= tiling.keep_empty:
                n_thinned += 1
                continue
            box = (place.x, place.y, place.width, place.height)
            facts = (tile_id, image["image_id"], image["split"], *box)
            tiles.append((*facts, "", n_objects, place.scale, place.size))
            found.append((rows[cut.rows], cut, ignore))
    if n_thinned:
        logger.info("Left out %s training tiles without objects", f"{n_thinned:,}")
    sized = TILE_INDEX | {"size": "Int64"}
    index = make_table(pd.DataFrame(tiles, columns=list(sized)), sized)
    tile_annotations = _describe_objects(index["tile_id"], annotations, found)
    return index, tile_annotations


def list_places(image: Image, overlap: int, tiling: TilingSection) -> list[TilePlace]:
    """Return where the tiles of an image lie.

    Args:
        image: Row of table ``images``. One that ``is_tile`` is its only tile, whatever the size;
            validation images are cut at scale 1 into tiles of ``tile_size`` alone.
        overlap: Of neighbouring tiles, px.
        tiling: Section ``tiling``.
    """
    if image["is_tile"]:
        return [TilePlace(1.0, None, 0, 0, image["width"], image["height"])]
    is_train = image["split"] == "train"
    sizes = (tiling.tile_size, *(tiling.extra_tile_sizes if is_train else ()))
    places = []
    for scale in tiling.scales if is_train else (1.0,):
        width, height = scaled_size(image["width"], image["height"], scale)
        for x, y, size in _list_windows(width, height, sizes, overlap, tiling):
            shown = min(size, width - x), min(size, height - y)
            places.append(TilePlace(scale, size, x, y, *shown))
    return places


def scaled_size(width: int, height: int, scale: float) -> tuple[int, int]:
    """Return the size of an image that was resized by ``scale``, px, at least 1 each."""
    return max(1, round(width * scale)), max(1, round(height * scale))


def name_tile(image_id: str, place: TilePlace) -> str:
    """Return the name of a tile, which no other tile has.

    What follows the image's name has a form of its own (the numbers hold no underscore), so two
    images never share a tile's name, however they are called. Nothing reads it.

    Example:
        >>> name_tile("train/P1", TilePlace(1.0, 1024, 824, 0, 1024, 900))
        'train/P1__1024__824___0'
    """
    if place.size is None:
        return f"{image_id}__tile"
    scale = "" if place.scale == 1 else f"@{place.scale!r}"
    return f"{image_id}__{place.size}{scale}__{place.x}___{place.y}"


def require_tile_with_object(
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    where: str,
    overlap: int,
    tiling: TilingSection,
) -> None:
    """Raise unless some training tile shows enough of an object; stops at the first that does.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``.
        where: The data set's folder, for the message.
        overlap: Of neighbouring tiles, px.
        tiling: Section ``tiling``.

    Raises:
        DataError: If no training tile does.
    """
    train = images[images["split"] == "train"].to_dict("records")
    of_image = _ObjectsOfImages(annotations[is_object(annotations)])
    for image in train:
        if image["image_id"] in of_image.rows:
            _, cut_all = of_image.cut(image, overlap, tiling)
            if any(not cut.ignore.all() for _, cut in cut_all):
                return
    n_tiles = sum(len(list_places(image, overlap, tiling)) for image in train)
    raise no_object_on_tiles(where, n_tiles)


class _ObjectsOfImages:
    """The objects of all images, as arrays, ready to be cut image by image."""

    def __init__(self, annotations: pd.DataFrame) -> None:
        self.rows: dict[Any, Any] = dict(annotations.groupby("image_id").indices.items())
        self.ignore = annotations["ignore"].to_numpy(bool)
        self.lookalike = annotations["lookalike"].to_numpy(bool)
        self._corners = annotations[list(CORNERS)].to_numpy(np.float64)

    def cut(
        self, image: Image, overlap: int, tiling: TilingSection
    ) -> tuple[NDArray[np.int64], Iterator[tuple[TilePlace, CutObjects]]]:
        """Return the rows of an image's objects, and what each tile shows of these."""
        rows = self.rows.get(image["image_id"], np.array([], dtype=np.int64))
        return rows, self._cut(image, self._corners[rows], overlap, tiling)

    @staticmethod
    def _cut(
        image: Image, corners: NDArray[np.float64], overlap: int, tiling: TilingSection
    ) -> Iterator[tuple[TilePlace, CutObjects]]:
        width, height = image["width"], image["height"]
        of_scale = groupby(list_places(image, overlap, tiling), key=lambda place: place.scale)
        for scale, group in of_scale:
            places = list(group)
            # The sides are whole px, so the true factors differ a little from scale.
            resized = scaled_size(width, height, scale)
            factors = np.array([resized[0] / width, resized[1] / height])
            boxes = np.array([(each.x, each.y, each.width, each.height) for each in places])
            yield from zip(
                places,
                ObjectCutter(corners * np.tile(factors, 4)).cut_all(
                    boxes, tiling.min_visible, keep_corners=tiling.corners == "untouched"
                ),
                strict=True,
            )


def _list_windows(
    width: int, height: int, sizes: tuple[int, ...], overlap: int, tiling: TilingSection
) -> list[Window]:
    if tiling.window_rule == "mmrotate":
        overlaps = [overlap] * len(sizes)
        return fuller_windows(width, height, sizes, overlaps, tiling.min_image_rate)
    return [Window(x, y, size) for size in sizes for x, y in windows(width, height, size, overlap)]


def _share(tile_id: str) -> float:
    """Return a number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(tile_id.encode()).digest()[:6], "big") / 2**48


def _describe_objects(
    tile_ids: "pd.Series[str]",
    annotations: pd.DataFrame,
    found: list[tuple[NDArray[np.int64], CutObjects, NDArray[np.bool_]]],
) -> pd.DataFrame:
    """Return table ``tile_annotations`` from what was found on each tile."""
    if not found:
        return make_table(None, TILE_ANNOTATIONS)
    shown = annotations.take(np.concatenate([rows for rows, _, _ in found]))
    rboxes = np.concatenate([cut.rboxes for _, cut, _ in found])
    columns = {
        "tile_id": tile_ids.to_numpy().repeat([len(rows) for rows, _, _ in found]),
        "class_name": shown["class_name"].to_numpy(),
        **dict(zip(RBOX, rboxes.T, strict=True)),
        "difficult": shown["difficult"].to_numpy(),
        "ignore": np.concatenate([ignore for _, _, ignore in found]),
        "lookalike": shown["lookalike"].to_numpy(),
        "iof": np.concatenate([cut.iof for _, cut, _ in found]),
        "object_id": shown["object_id"].to_numpy(),
    }
    return make_table(columns, TILE_ANNOTATIONS)


def warn_about_lost(
    annotations: pd.DataFrame, tile_annotations: pd.DataFrame, min_visible: float
) -> None:
    """Say which objects no tile shows enough of: they are never trained on.

    Args:
        annotations: Table ``annotations``.
        tile_annotations: Table ``tile_annotations``.
        min_visible: ``tiling.min_visible``.
    """
    shown = tile_annotations.loc[is_object(tile_annotations), "object_id"]
    lost = annotations[is_object(annotations) & ~annotations["object_id"].isin(shown)]
    if lost.empty:
        return
    counts = lost["class_name"].value_counts().sort_index()
    logger.warning(
        "No tile shows %g of the area of these objects, so they are ignore regions only: %s. "
        "Raise tiling.tile_size or dataset.overlap, or lower tiling.min_visible",
        min_visible,
        ", ".join(f"{count:,} {name}" for name, count in counts.items()),
    )
