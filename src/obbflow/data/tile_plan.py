"""The plan of the tiles of a data set, kept beside the tiles: an unchanged run only reads it."""

import hashlib
import io
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from obbflow.config import TilingSection
from obbflow.data.tile_check import GeometryCheck, check_geometry
from obbflow.data.tile_tables import plan_tiles

logger = logging.getLogger(__name__)

_FILES = ("plan_index.parquet", "plan_annotations.parquet")
_KEY, _GEOMETRY = "plan", "geometry"


class TilePlan(NamedTuple):
    """What ``plan_tiles`` returns, and what the self-test says of it."""

    tiles: pd.DataFrame
    annotations: pd.DataFrame
    geometry: GeometryCheck


def load_or_plan(
    store: Path,
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    digests: Mapping[str, str],
    overlap: int,
    tiling: TilingSection,
) -> TilePlan:
    """Return the plan of all tiles: that of the last run if nothing changed, else a new one.

    Args:
        store: Folder of the tile files; a new plan is written there.
        images: Table ``images``.
        annotations: Table ``annotations``.
        digests: image_id -> digest of all that its tiles depend on, in the order of ``images``.
        overlap: Of neighbouring tiles, px.
        tiling: Section ``tiling``.
    """
    key = _digest(images, annotations, digests)
    found = _load(store, key)
    if found is not None:
        return found
    index, tile_annotations = plan_tiles(images, annotations, overlap, tiling)
    geometry = check_geometry(images, annotations, index, tile_annotations, overlap, tiling)
    index.attrs |= {_KEY: key, _GEOMETRY: asdict(geometry)}
    tile_annotations.attrs[_KEY] = key
    for name, table in zip(_FILES, (index, tile_annotations), strict=True):
        partial = store / f"{name}.partial"  # one name: what a killed run left is replaced
        table.to_parquet(partial, index=False)
        partial.replace(store / name)
    return _plan(index, tile_annotations)


def _digest(images: pd.DataFrame, annotations: pd.DataFrame, digests: Mapping[str, str]) -> str:
    """Return a digest of all that the plan depends on."""
    sizes = images[["image_id", "width", "height"]].to_numpy(dtype=object).tolist()
    digest = hashlib.sha256(json.dumps([sizes, list(digests.items())]).encode())
    digest.update(annotations["object_id"].to_numpy("<i8").tobytes())
    digest.update(annotations["image_id"].str.cat(sep="\n").encode())
    return digest.hexdigest()


def _load(store: Path, key: str) -> TilePlan | None:
    """Return the plan in the store if it has this key."""
    tables = []
    for name in _FILES:
        if not (store / name).is_file():
            return None
        content = (store / name).read_bytes()
        try:
            tables.append(pd.read_parquet(io.BytesIO(content)))
        except (ValueError, OSError) as error:  # pyarrow's ways to say: damaged
            logger.warning("%s cannot be read (%s): planning the tiles again", store / name, error)
            return None
    if any(table.attrs.get(_KEY) != key for table in tables):
        return None
    return _plan(*tables)


def _plan(index: pd.DataFrame, tile_annotations: pd.DataFrame) -> TilePlan:
    """Return a plan of its two tables, without their notes."""
    geometry = GeometryCheck(**index.attrs[_GEOMETRY])
    index.attrs, tile_annotations.attrs = {}, {}
    return TilePlan(index, tile_annotations, geometry)
